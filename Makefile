# Unshard's front door. `make` alone prints the targets; each installs what it needs first.
#
# Variables: WERROR=ON   warnings are errors (what our own checks use)
#            JOBS=N      how many compilers and tests run at once (default: all processors)
#            INSTALL=no  never call the package manager
#            BACKEND=mpi ranks are processes: for make test, demo, run, bench, test-taskN and grade
#            DEVICE=cuda ranks compute on a CUDA card or, without one, on the stand-in: for make demo
#                        run and test-taskN. make test is make test-cuda then, always on the stand-in
#            CUDA_ON_HOST=lazy:3   one plan of the stand-in, not three, for make test-cuda
#            PARAM=bfloat16 REDUCE=bfloat16   make demo in 16 bits, over masters in float32
#            DEBUGGER=lldb  or gdb: for make run and debug-3.2, which also takes CASE="part of a name"
# The course's targets take ONLY=3.2 SEED=N W=N IMPL=student|solution LEVEL=1..3

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo run estimate test bench doctor docs playground check format tidy sanitize sanitize-dev sanitize-tsan \
  check-clang check-arm64 check-cuda check-grader compare-pytorch cuda-kernels clean figures skeletons warm-up \
  test-cuda test-integrated progress watch race submit grade grade-all gradescope autolab race-board \
  student-kit install check-install

WERROR ?= OFF
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
INSTALL ?= yes
PYTHON ?= python3
BACKEND ?= threads
$(if $(filter threads mpi,$(BACKEND)),,$(error BACKEND=$(BACKEND): there are threads and mpi))
have-processes = demo run test bench test-task% grade
$(if $(filter mpi,$(BACKEND)),$(if $(filter-out $(have-processes),$(MAKECMDGOALS)),\
  $(error BACKEND=mpi: make demo, run, test, bench, test-taskN and grade run ranks as processes; \
  $(firstword $(filter-out $(have-processes),$(MAKECMDGOALS))) has ranks that are threads)))
DEVICE ?= cpu
$(if $(filter cpu cuda,$(DEVICE)),,$(error DEVICE=$(DEVICE): there are cpu and cuda))
have-devices = demo run test test-task%
$(if $(filter cuda,$(DEVICE)),$(if $(filter-out $(have-devices),$(MAKECMDGOALS)),\
  $(error DEVICE=cuda: make demo, run, test and test-taskN can use CUDA; \
  $(firstword $(filter-out $(have-devices),$(MAKECMDGOALS))) computes on the CPU)))
mpi = $(filter mpi,$(BACKEND))
cuda = $(filter cuda,$(DEVICE))
$(if $(mpi),$(if $(cuda),$(error DEVICE=cuda BACKEND=mpi: make test \
  BACKEND=mpi has the tests of processes with cards, and docs/gpu.md says how to train. NCCL adds in an \
  order of its own, so make demo and test-taskN could not compare bits)))
# Without a card, nvcc and NCCL, the stand-in takes their place.
card = $(shell sh common/scripts/cuda_card.sh)
$(if $(filter test-cuda $(if $(cuda),test),$(MAKECMDGOALS)),$(if $(wildcard tests/cuda),,$(error A \
  student kit has no tests of CUDA; make demo and test-taskN can use it, with DEVICE=cuda)))
# The build whose ranks are what BACKEND says, and compute where DEVICE says.
preset = $(if $(mpi),mpi,$(if $(cuda),$(if $(card),cuda,cuda-host),release))

install = INSTALL=$(INSTALL) sh common/scripts/install.sh
configure = cmake --preset $(1) -DFSDP_WERROR=$(WERROR) --log-level=NOTICE >/dev/null
compile = cmake --build build/$(1) -j $(JOBS) --target
# Starts so many processes, with the launcher of the library that build/mpi is linked with.
mpirun = sh common/scripts/mpirun.sh "$$(sed -n 's/^FSDP_MPIRUN:[^=]*=//p' build/mpi/CMakeCache.txt)" $(1)
bench-all = sh common/scripts/bench.sh build/release/bin
bench-mpi = build/mpi/bin/bench_mpi
# The thread sanitizer cannot start where newer kernels randomize addresses more widely.
fixed-addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)
course = python3 apps/course/course.py --jobs $(JOBS)
# Before a program: DEBUGGER=none only builds it, for a debugger of an editor.
debugger-gdb = gdb -q --args
debugger-lldb = lldb --
debugger-none = :
in-debugger = $(if $(DEBUGGER),$(or $(debugger-$(DEBUGGER)),$(error DEBUGGER=$(DEBUGGER): \
  there are gdb, lldb and none)))
# A student kit's programs need every task but the optional one: this names the steps that are not written yet, and ends.
# Nothing in the full tree, which has references.
written = $(if $(wildcard apps/course/kit.json),$(install) course && $(course) written $@)
# The tests of CUDA bring the stand-in along.
race-programs = $(call configure,release) && $(call compile,release) race_judge race_policy
tests = $(if $(cuda),release,$(preset))
run-tests = ctest --test-dir build/$(1) --output-on-failure --no-tests=error -j $(JOBS)
# THIRD=2: every third test, from the second on. And of the headers likewise, in make check.
comma = ,
third = $(if $(filter-out 1 2 3,$(THIRD)),$(error THIRD=$(THIRD): there are 1, 2 and 3))$(if \
  $(THIRD),-I $(THIRD)$(comma)$(comma)3)
# In three orders of the stand-in's streams, threads and blocks (docs/cuda_stand_in.md).
run-cuda-tests = set -e; for plan in $(or $(CUDA_ON_HOST),lazy eager:17 random:3); do \
  echo "The stand-in's streams and threads: CUDA_ON_HOST=$$plan"; \
  CUDA_ON_HOST=$$plan $(call run-tests,release) -L '^cuda$$'; done

help: ## Print these lines
	@sed -n 's/^\([a-z%][a-z0-9%-]*\):.*## /\1|/p' Makefile | \
	  awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

demo: ## Train a small model, alone and sharded, and compare every bit (DEVICE=cuda: on a card)
	@$(written)
	@$(install) build $(mpi)
	@$(call configure,$(preset))
	@$(call compile,$(preset)) unshard_demo
	@$(if $(cuda),$(if $(card),,echo "No CUDA card, nvcc and NCCL here: a shorter demo runs on the stand-in for a card."))
	@$(if $(mpi),$(call mpirun,4)) build/$(preset)/bin/unshard-demo \
	  $(if $(PARAM),--mixed-precision-param $(PARAM)) $(if $(REDUCE),--mixed-precision-reduce $(REDUCE)) \
	  $(if $(cuda),--device cuda $(if $(card),,--brief))

run: ## Build and run a program of yours over the tasks: make run FILE=mine.cpp ARGS=4 (NP=4, DEBUGGER=gdb)
	@test -f "$(FILE)" || { echo "make run FILE=mine.cpp: $(if $(FILE),there is no file '$(FILE)',name \
	  your program); apps/examples/first_training.cpp is one to begin with"; exit 2; }
	@$(written)
	@$(install) build $(mpi) $(filter gdb lldb,$(DEBUGGER))
	@$(call configure,$(preset)) -DFSDP_RUN="$(abspath $(FILE))"
	@$(call compile,$(preset)) unshard_run
	@$(or $(in-debugger),$(if $(mpi),$(call mpirun,$(or $(NP),4)))) build/$(preset)/bin/unshard-run $(ARGS)

install: ## Install the library for projects elsewhere: make install PREFIX=folder
	@test -n "$(PREFIX)" || { echo "make install PREFIX=folder: name where to, such as $$HOME/unshard"; exit 2; }
	@$(written)
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) fsdp_task8 fsdp_program
	@cmake --install build/release --prefix "$(PREFIX)" >/dev/null
	@echo "Installed in $(PREFIX). cmake finds it there with -DCMAKE_PREFIX_PATH=$(abspath $(PREFIX))"

estimate: ## Say how much memory a training takes: make estimate ARGS="--model.preset llama3_8b --parallel.ranks 8"
	@$(written)
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) unshard_estimate
	@build/release/bin/unshard-estimate $(ARGS)

test: ## Build and run every test (BACKEND=mpi, DEVICE=cuda: those of processes, of CUDA)
	@$(written)
	@$(install) build course $(mpi)
	@$(call configure,$(tests))
	@$(call compile,$(tests)) $(if $(mpi)$(cuda),tests_$(or $(mpi),$(cuda)),all)
	@$(if $(cuda),$(run-cuda-tests),$(call run-tests,$(tests)) $(if $(mpi),-L '^mpi$$'))

test-%: ## Build and run the tests of one part: test-common, test-memory, test-schedule …
	@test -d tests/$* || { echo "make test-$*: there is no such part; make help lists what there is"; exit 2; }
	@$(if $(filter common faults program structure,$*),,$(written))
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) tests_$*
	@$(call run-tests,release) -L '^$*$$'

warm-up: ## Your first function, before task 1: compiled and tested in seconds
	@$(install) compiler
	@mkdir -p build/warm_up
	@c++ -std=c++20 -Wall -Wextra -Itasks -o build/warm_up/check tests/warm_up/check.cpp \
	  $(if $(filter solution,$(IMPL)),solutions,tasks)/warm_up/shard_range.cpp
	@build/warm_up/check

test-task%: ## Judge your task 1 … 8: one line per step, and why the first failing one failed
	@$(install) build course $(mpi)
	@$(course) test $* $(if $(mpi),--backend mpi) $(if $(cuda),--device cuda) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(IMPL),--impl $(IMPL)) $(if $(SEED),--seed $(SEED)) $(if $(W),--world $(W))

show-task%: ## See what your task 1 … 8 does now, on a tiny model
	@$(install) build course
	@$(course) show $* $(if $(IMPL),--impl $(IMPL))

test-integrated: ## Judge all of your tasks together, and name the wrong one
	@$(written)
	@$(install) build course
	@$(course) integrated

race: ## After task 7: plan the fastest step you can, within the memory (TRACK=2; ESTIMATE=yes: on paper, any time)
	@$(if $(ESTIMATE),,$(written))
	@$(install) build course
	@$(course) race $(if $(TRACK),--track $(TRACK)) $(if $(IMPL),--impl $(IMPL)) $(if $(ESTIMATE),--estimate)

hint-%: ## Print a hint for a step, e.g. hint-4.2; LEVEL=1, 2 or 3
	@$(install) course
	@$(course) hint $* --level $(or $(LEVEL),1)

progress: ## Show your progress: seven bars, the points, the next step
	@$(install) course
	@$(course) progress

watch: ## Judge a task whenever you save one of its files (TASK=3: that task only)
	@$(install) build course
	@$(course) watch $(TASK) $(if $(ONLY),--only $(ONLY))

debug-%: ## Debug a step's first failing case, e.g. debug-3.2 (CASE="part of its name" DEBUGGER=lldb)
	@$(install) build course $(if $(DEBUGGER),$(filter gdb lldb,$(DEBUGGER)),gdb)
	@$(course) debug $* $(if $(CASE),--case "$$CASE") $(if $(DEBUGGER),--debugger "$$DEBUGGER")

reset-task%: ## Start a task over; your files are kept beside the new ones
	@$(install) course
	@$(course) reset $*

submit: ## Check and score your work, and pack it into build/submission.tar.gz
	@$(install) build course
	@$(course) submit

skeletons: ## Write tasks/*/*.cpp from solutions/ (never over a file that was edited)
	@$(install) course
	@python3 apps/course/skeletons.py

bench: ## Measure speed, as ratios to what the machine can do
	@$(written)
	@$(install) build bench $(mpi)
	@$(call configure,$(preset))
	@$(call compile,$(preset)) $(if $(mpi),bench_mpi bench_mpi_step,bench)
	@$(if $(mpi),$(call mpirun,2) $(bench-mpi) && $(call mpirun,4) $(bench-mpi) && $(bench-mpi)_step,$(bench-all))

figures: ## Regenerate the book's figures from runs on a modeled machine (writeup/figures/)
	@$(written)
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) unshard_report
	@build/release/bin/unshard-report --book writeup/figures

doctor: ## Show what this machine provides, and what is missing
	@sh common/scripts/doctor.sh

docs: ## Build the reference pages into build/docs/html
	@$(install) docs playground
	@sh common/scripts/docs.sh build/docs

playground: ## Build the page to play with, build/playground/index.html: sliders for one training step
	@$(install) playground
	@sh common/scripts/playground.sh build/playground
	@test -e build/playground/engine.js

check: ## Check the quick rules: floors, headers that compile alone, formatting, prose, spelling
	@$(install) build format spelling
	@$(call configure,release)
	@$(call compile,release) check_headers$(THIRD:%=_%) tests_structure
	@sh common/scripts/format.sh --check
	@sh common/scripts/spelling.sh
	@$(call run-tests,release) -L '^structure$$'

format: ## Format the sources in place
	@$(install) format
	@sh common/scripts/format.sh

compare-pytorch: ## Compare with PyTorch and transformers, both ways (PYTHON=one that has them)
	@$(written)
	@$(install) build
	@$(PYTHON) -c 'import torch, transformers, safetensors' || { \
	  echo "This needs the packages torch, transformers and safetensors: pip install them, or" \
	    "name a Python that has them: make compare-pytorch PYTHON=…"; exit 1; }
	@$(call configure,release)
	@$(call compile,release) oracle_numbers unshard_train
	@$(PYTHON) tests/oracle/compare.py build/release/bin

tidy: ## Run clang-tidy over the sources (SINCE=commit: over what differs from it)
	@$(install) build tidy
	@$(call configure,release)
	@sh common/scripts/tidy.sh build/release $(JOBS) $(SINCE)

sanitize: sanitize-dev sanitize-tsan ## Run the tests under ASan+UBSan, then TSan (THIRD=2: every third)

# Eight callers of each allocation are noted, not thirty: a tenth of the time.
sanitize-dev: ## Run the tests under the address and undefined-behavior sanitizers
	@$(install) build clang
	@$(call configure,dev)
	@$(call compile,dev) all
	@ASAN_OPTIONS=malloc_context_size=8:$$ASAN_OPTIONS $(call run-tests,dev) $(third)

sanitize-tsan: check-clang ## Run the tests under the thread sanitizer, compiled by clang
	@$(fixed-addresses) $(call run-tests,tsan) $(third)

check-clang: ## Compile everything with clang (and its thread sanitizer)
	@$(install) build clang
	@$(call configure,tsan)
	@$(fixed-addresses) $(call compile,tsan) all

check-arm64: ## Cross-compile for arm64, and compare bits there (under an emulator)
	@$(install) build arm64
	@sh common/scripts/arm64_libraries.sh build/arm64-libraries
	@$(call configure,arm64)
	@$(call compile,arm64) test_common_base test_common_tensor test_solutions
	@$(call run-tests,arm64) -R 'bits of its definition|fixed functions|on every machine'

cuda-kernels: ## Print and check what nvcc makes of each CUDA kernel (ARGS=--families: less)
	@$(install) course
	@python3 tests/cuda/kernel_table.py $(ARGS)

check-grader: ## Test the grader with wrong and hostile submissions (QUICK=yes, HOSTILE=no, SINCE=commit: less)
	@$(install) build course
	@$(call configure,grade $(if $(SINCE),-DCMAKE_UNITY_BUILD=ON))
	@python3 tests/grader/mutants.py --jobs $(JOBS) --all $(if $(QUICK)$(SINCE),--sample 1) \
	  $(if $(SINCE),--since $(SINCE))
	@python3 tests/grader/whole_mutants.py
	@$(if $(QUICK)$(SINCE)$(filter no,$(HOSTILE)),,python3 tests/grader/hostile.py --jobs $(JOBS))

test-cuda: ## Build and run the tests of CUDA, under three plans of the stand-in
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) tests_cuda
	@$(run-cuda-tests)

check-install: ## Build a program elsewhere: over the installed library, and over the sources (minutes)
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) example_own_model
	@for how in find_package add_subdirectory; do sh tests/examples/elsewhere.sh $$how build/release \
	  build/release/bin/example_own_model c++ --build || exit 1; done

check-cuda: ## Remove each wait of the CUDA code in a copy: a test must fail (ONLY=host_copy.cpp)
	@$(install) build course
	@env -u CUDA_ON_HOST python3 tests/cuda/removals.py --jobs $(JOBS) $(if $(ONLY),--only "$(ONLY)")

# ---- for instructors (a student kit has none of these)

grade: ## Grade a submission: SUBMISSION=folder or archive (TASK=3: that task; RACE=yes: and the race)
	@test -n "$(SUBMISSION)" || { echo "make grade SUBMISSION=folder-or-archive [TASK=3]"; exit 2; }
	@$(install) build course $(mpi)
	@$(call configure,grade$(if $(mpi),-mpi))
	@$(if $(RACE),$(race-programs))
	@python3 apps/course/grade.py "$(SUBMISSION)" $(if $(TASK),--task $(TASK)) $(if $(RACE),--race) \
	  $(if $(mpi),--backend mpi) \
	  $(foreach email,$(SUBMITTER),--submitter $(email))

grade-all: ## Grade all submissions in DIR=folder, JOBS at once; goes on where it stopped (AGAIN=yes: not)
	@test -n "$(DIR)" || { echo "make grade-all DIR=folder [TASK=3] [JOBS=2] [AGAIN=yes]"; exit 2; }
	@$(install) build course
	@$(call configure,grade)
	@python3 apps/course/grade_all.py "$(DIR)" $(if $(TASK),--task $(TASK)) \
	  $(if $(filter-out file default,$(origin JOBS)),--jobs $(JOBS)) $(if $(AGAIN),--again) \
	  $(if $(SUBMITTERS),--submitters "$(SUBMITTERS)")

gradescope: ## Pack the autograder for Gradescope: TASK=3, or TASK=all (RACE=yes: and the leaderboard)
	@$(install) course
	@python3 apps/course/gradescope.py pack --task "$(or $(TASK),all)" \
	  $(if $(HIDDEN),--hidden $(HIDDEN)) $(if $(RACE),--race)

race-board: ## Judge the policies of all submissions in DIR=folder, into build/race/board.html
	@test -n "$(DIR)" || { echo "make race-board DIR=folder"; exit 2; }
	@$(install) build course
	@$(race-programs)
	@python3 apps/course/race_board.py "$(DIR)" --jobs $(JOBS)

autolab: ## Pack the autograder for Autolab: TASK=3, or TASK=all
	@$(install) course
	@python3 apps/course/autolab.py pack --task "$(or $(TASK),all)"

student-kit: ## Pack the student kit (GIVEN=1-2: with those references; UPDATE=yes: not their files)
	@$(install) build course
	@$(call configure,grade)
	@python3 apps/course/kit.py $(if $(GIVEN),--given $(GIVEN)) $(if $(UPDATE),--update)

# ---- end

clean: ## Delete everything that was built
	rm -rf build
