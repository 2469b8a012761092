# Unshard's front door. `make` alone prints the targets; each installs what it needs first.
#
# Variables: WERROR=ON   warnings are errors (what our own checks use)
#            JOBS=N      how many compilers and tests run at once (default: all processors)
#            INSTALL=no  never call the package manager

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test bench doctor docs check format tidy sanitize sanitize-dev sanitize-tsan \
  check-clang clean

WERROR ?= OFF
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
INSTALL ?= yes

install = INSTALL=$(INSTALL) sh common/scripts/install.sh
configure = cmake --preset $(1) -DFSDP_WERROR=$(WERROR) --log-level=NOTICE >/dev/null
compile = cmake --build build/$(1) -j $(JOBS) --target
# g++ 12's thread sanitizer cannot start where newer kernels randomise addresses more widely.
fixed-addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)
run-tests = ctest --test-dir build/$(1) --output-on-failure --no-tests=error -j $(JOBS)

help: ## Print these lines
	@sed -n 's/^\([a-z%][a-z0-9%-]*\):.*## /\1|/p' Makefile | \
	  awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: ## Train a small model, alone and sharded, and compare every bit (writes build/demo/)
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) unshard_demo
	@build/release/bin/unshard-demo

test: ## Build and run every test
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) all
	@$(call run-tests,release)

test-%: ## Build and run the tests of one part: test-task3, test-common, test-structure …
	@$(install) build
	@$(call configure,release)
	@$(call compile,release) tests_$*
	@$(call run-tests,release) -L '^$*$$'

bench: ## Measure speed, as ratios to what the machine can do
	@$(install) build bench
	@$(call configure,release)
	@$(call compile,release) bench
	@sh common/scripts/bench.sh build/release/bin

doctor: ## Say what this machine can do, and what is missing
	@sh common/scripts/doctor.sh

docs: ## Build the reference pages into build/docs/html
	@$(install) docs
	@sh common/scripts/docs.sh build/docs

check: ## The quick rules: floors, headers that compile alone, formatting
	@$(install) build format
	@$(call configure,release)
	@$(call compile,release) check_headers tests_structure
	@sh common/scripts/format.sh --check
	@$(call run-tests,release) -L '^structure$$'

format: ## Format the sources in place
	@$(install) format
	@sh common/scripts/format.sh

tidy: ## Run clang-tidy over the sources
	@$(install) build tidy
	@$(call configure,release)
	@sh common/scripts/tidy.sh build/release $(JOBS)

sanitize: sanitize-dev sanitize-tsan ## Run the tests under ASan+UBSan, then TSan

sanitize-dev: ## Run the tests under the address and undefined-behaviour sanitizers
	@$(install) build
	@$(call configure,dev)
	@$(call compile,dev) all
	@$(call run-tests,dev)

sanitize-tsan: ## Run the tests under the thread sanitizer
	@$(install) build
	@$(call configure,tsan)
	@$(fixed-addresses) $(call compile,tsan) all
	@$(fixed-addresses) $(call run-tests,tsan)

check-clang: ## Compile everything with clang, warnings as errors
	@$(install) build clang
	@cmake --preset clang --log-level=NOTICE >/dev/null
	@$(call compile,clang) all

clean: ## Delete everything that was built
	rm -rf build
