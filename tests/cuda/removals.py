"""Removes each wait and barrier of the CUDA code, one at a time: a test must fail without it.

    removals.py [--list] [--only PATTERN] [--jobs N]

The tree is copied to build/removals/tree and built in build/removals/build, so this tree and its
builds stay as they are. For each site (removal_sites.py), the copy is built without that statement,
and the tests on the stand-in run until one fails, and fails again: those of test_cuda,
test_cuda_fsdp and mpi_cuda, whose ranks are processes. Without MPI, what only these would notice is
skipped. For each site, the output names the test that failed, or says SURVIVED. The exit code is 1
if a site survived that is not in EXEMPT, if one in EXEMPT did not, or if one cannot be built.

About 45 minutes on two processors. --only takes a regular expression for path:line: statement.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "apps" / "course"), str(ROOT / "tests" / "cuda")]
import kit  # noqa: E402
import verdicts  # noqa: E402
import removal_sites  # noqa: E402
from removal_sites import Site  # noqa: E402

FOLDER = ROOT / "build" / "removals"
TREE, BUILD, RUNS = FOLDER / "tree", FOLDER / "build", FOLDER / "runs"
MPIRUN = shutil.which("mpirun")
OF_PROCESSES = "mpi_cuda"
PROGRAMS = ("test_cuda", "test_cuda_fsdp", *([OF_PROCESSES] if MPIRUN else []))
Test = tuple[str, str]  # its program, and its name
SECONDS = 240  # one test takes a minute at most
TRIES = 5  # of a test that failed: a second failure counts, one alone may be of another cause

# What is used by processes only.
NEED_MPI = ("common/comm/cuda/process_plane.cpp", "common/comm/processes/engine_rank.cpp")

# What no test can miss, and why: (path, statement) -> a proof.
_WORK = "the Work is destroyed before anything else happens, and ~Work waits as wait() does"
EXEMPT = {
    ("common/optim/gradient_engine.cpp",
     'group->all_reduce(squares.counters(), ReduceOp::sum, {"grad_norm", Phase::optimizer})'
     ".wait();"): _WORK,
    ("common/parallel/zero.cpp",
     "group_->broadcast(data, slice.owner, {parameter.path, Phase::checkpoint}).wait();"): _WORK,
    ("common/parallel/zero.cpp", "copy.wait();"):
        "whatever computes on the host waits for all copies (common/tensor/dispatch.h), and the sums "
        "that are copied keep their bytes until the optimizer has computed",
    ("common/parallel/ddp.cpp", "bucket.work.wait();"):
        "it only takes the overlap away, if asked: end_micro_step() waits for the same Work before "
        "the sum is read (tests/common/parallel/zero_switches.cpp sees it in the trace)",
    ("solutions/task3_forward/forward.cpp", "gather.wait();"): _WORK,
    ("solutions/task4_backward/backward.cpp", "reduction.wait();"): _WORK,
    ("solutions/task5_sharded_optimizer/sharded_optimizer.cpp",
     'group_->all_reduce(squares.counters(), ReduceOp::sum, {"grad_norm", Phase::optimizer})'
     ".wait();"): _WORK,
    ("solutions/task7_integration/state.cpp",
     "unit.group().all_gather(full, input, {unit.name(), Phase::checkpoint}).wait();"): _WORK,
}


class RemovalError(Exception):
    """The tree cannot be copied, configured or built, or fails its tests as it is."""


def run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RemovalError(f"{command[0]} failed:\n{done.stdout[-3000:]}")


def copy_tree() -> None:
    """Makes TREE a copy of this tree. Files that are alike keep their time, so builds go on."""
    names = set(kit.files_of_tree(ROOT))
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for target in [path for path in TREE.rglob("*") if path.is_file()]:
        if str(target.relative_to(TREE)) not in names:
            target.unlink()


def configure() -> None:
    # Warnings are no errors: without a wait, a variable may be unused.
    if not (BUILD / "build.ninja").is_file():
        run("cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DFSDP_WERROR=OFF", f"-DFSDP_MPI={'ON' if MPIRUN else 'OFF'}", "--log-level=NOTICE")


def build(name: str, jobs: int) -> dict[str, Path]:
    """Builds the copy. @returns files of its own, for the next build may begin while they run."""
    run("cmake", "--build", BUILD, "-j", str(jobs), "--target", *PROGRAMS)
    RUNS.mkdir(parents=True, exist_ok=True)
    return {program: Path(shutil.copy2(BUILD / "bin" / program, RUNS / f"{program}_{name}"))
            for program in PROGRAMS}


def fails(program: Path, test: str) -> str:
    """What to say of the test if it fails, else nothing. It runs alone: some end the process."""
    command: list[str | Path] = [program]
    if program.name.startswith(OF_PROCESSES):
        command = ["sh", TREE / "common/scripts/mpirun.sh", MPIRUN or "mpirun", "4", program]
    spec = re.sub(r'([\\,\[\]*"])', r"\\\1", test)
    try:
        done = subprocess.run([*command, spec], cwd=RUNS, timeout=SECONDS, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return f"{test} (no end in {SECONDS} s)"
    if done.returncode == 0 and re.search(rb"No tests? (ran|cases matched)", done.stdout):
        raise RemovalError(f"{program} does not run its test '{test}'")
    return test if done.returncode != 0 else ""


def fails_again(program: Path, test: str) -> str:
    """As fails(), of a test that does so twice in TRIES runs. Not to end is no matter of chance."""
    if (failed := fails(program, test)) != test:
        return failed
    return next((again for _ in range(TRIES - 1) if (again := fails(program, test))), "")


class Tests:
    """The tests of the tree as it is, in the order in which they will notice a removal soonest."""

    def __init__(self, pool: ThreadPoolExecutor, jobs: int) -> None:
        """Builds and runs all of them. @throws RemovalError if one fails"""
        whole = build("as_it_is", jobs)
        self.contents = {program: path.read_bytes() for program, path in whole.items()}
        self.seconds: dict[Test, float] = {}
        self.noticed: list[Test] = []  # that have failed without a statement, the latest at the end

        def check_one(test: Test) -> None:
            begin = time.monotonic()
            if failed := fails(whole[test[0]], test[1]):
                raise RemovalError(f"before anything is removed, this test of {test[0]} fails: "
                                   f"{failed}")
            self.seconds[test] = time.monotonic() - begin

        tests = [(program, case.name) for program, path in whole.items()
                 for case in verdicts.list_cases(path)]
        try:
            for _ in pool.map(check_one, tests):
                pass
        except RemovalError:
            pool.shutdown(cancel_futures=True)
            raise
        finally:
            for path in whole.values():
                path.unlink()

    def in_order(self) -> list[Test]:
        """First those that have noticed other removals, from the latest on: one test mostly needs
        several statements that stand beside each other. Then the quick ones."""
        first = list(reversed(self.noticed))
        return first + sorted(self.seconds.keys() - set(first), key=self.seconds.__getitem__)

    def first_failure(self, programs: dict[str, Path]) -> str:
        """Which test fails, or nothing. Removes the programs."""
        # Not all that one program consists of is in the others.
        changed = [program for program, path in programs.items()
                   if path.read_bytes() != self.contents[program]]
        try:
            for test in self.in_order():
                if test[0] in changed and (failed := fails_again(programs[test[0]], test[1])):
                    self.noticed = [each for each in self.noticed if each != test] + [test]
                    return f"{test[0]}: {failed}"
            return ""
        finally:
            for path in programs.values():
                path.unlink()


def verdict(site: Site, failed: str) -> tuple[bool, str]:
    """Whether this is as it should be, and the words for it."""
    reason = EXEMPT.get((site.path, site.statement))
    if not failed:
        return reason is not None, "survived, as it may" if reason else "SURVIVED"
    return reason is None, failed + (", though it is in EXEMPT" if reason else "")


def results(sites: list[Site], jobs: int) -> Iterator[tuple[Site, str]]:
    """Builds the programs without each site, and runs the tests of some while it builds the next.
    @returns each site with the test that failed, or nothing"""
    waiting: list[tuple[Site, Future[str]]] = []
    with ThreadPoolExecutor(jobs) as pool:
        tests = Tests(pool, jobs)
        for number, site in enumerate(sites):
            source = TREE / site.path
            text = source.read_text(encoding="utf-8")
            try:
                source.write_text(removal_sites.removed(text, site), encoding="utf-8")
                built = build(str(number), jobs)
                waiting.append((site, pool.submit(tests.first_failure, built)))
            except RemovalError as error:
                raise RemovalError(f"{site}\ncannot be built: {error}") from error
            finally:
                source.write_text(text, encoding="utf-8")
            while waiting and (len(waiting) > jobs or waiting[0][1].done()):
                site, future = waiting.pop(0)
                yield site, future.result()
        for site, future in waiting:
            yield site, future.result()


def check(sites: list[Site], jobs: int) -> int:
    """Removes each. @returns how many are not as they should be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = os.open(FOLDER, os.O_RDONLY)  # until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RemovalError(f"another run uses {FOLDER}: wait for it, or end it") from error
    copy_tree()
    configure()
    wrong = 0
    for site, failed in results(sites, jobs):
        is_right, words = verdict(site, failed)
        wrong += not is_right
        print(f"{site}\n    {words}", flush=True)
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the sites; remove none")
    parser.add_argument("--only", default="", metavar="PATTERN", help="sites that match this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    sites = [site for site in removal_sites.find(ROOT)
             if re.search(options.only, str(site))]
    if not MPIRUN and (skipped := [site for site in sites if site.path in NEED_MPI]):
        print(f"skipped without MPI: {len(skipped)} in {', '.join(NEED_MPI)}")
        sites = [site for site in sites if site not in skipped]
    if options.list:
        print("\n".join(map(str, sites)))
        return 0
    begin = time.monotonic()
    try:
        wrong = check(sites, max(1, options.jobs))
    except (RemovalError, verdicts.JudgeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(sites)} removed in {time.monotonic() - begin:.0f} s: {len(sites) - wrong} as they "
          f"should be, {wrong} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
