"""Removes each wait and barrier of the CUDA code, one at a time: a test must fail without it.

    removals.py [--list] [--only PATTERN] [--jobs N]

The tree is copied to build/removals/tree and built in build/removals/build, so this tree and its
builds stay as they are. For each site (removal_sites.py), the copy is built without that statement,
and the tests on the stand-in run until one fails: those of test_cuda, then those of test_cuda_fsdp.
One line per site says which one failed, or SURVIVED. The exit code is 1 if a site survived that is
not in EXEMPT, if one in EXEMPT did not, or if one cannot be built.

An hour on two processors; --only takes a part of path:line: statement.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
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
PROGRAMS = ("test_cuda", "test_cuda_fsdp")
SECONDS = 240  # one test takes 20 at most

# What no test can miss, and why: (path, statement) -> a proof.
EXEMPT: dict[tuple[str, str], str] = {}


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


def build(jobs: int) -> None:
    # Warnings are no errors: without a wait, a variable may be unused. -O1 compiles faster.
    if not (BUILD / "build.ninja").is_file():
        run("cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
            "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DFSDP_WERROR=OFF", "--log-level=NOTICE")
    run("cmake", "--build", BUILD, "-j", str(jobs), "--target", *PROGRAMS)


def keep_programs(name: str) -> Path:
    """A folder with the programs of this build: the next one may begin while they run."""
    folder = RUNS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for program in PROGRAMS:
        shutil.copy2(BUILD / "bin" / program, folder)
    return folder


def first_failure(folder: Path) -> str:
    """The first test that fails, or nothing. Each runs alone: some failures end the process."""
    for program in PROGRAMS:
        for case in verdicts.list_cases(folder / program):
            spec = re.sub(r'([\\,\[\]*"])', r"\\\1", case.name)
            try:
                done = subprocess.run([folder / program, spec], cwd=folder, timeout=SECONDS,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            except subprocess.TimeoutExpired:
                return f"{program}: {case.name} (no end in {SECONDS} s)"
            if done.returncode != 0:
                return f"{program}: {case.name}"
            if re.search(rb"No tests? (ran|cases matched)", done.stdout):
                raise RemovalError(f"{folder / program} does not run its test '{case.name}'")
    return ""


def tested(folder: Path) -> str:
    try:
        return first_failure(folder)
    finally:
        shutil.rmtree(folder)


def verdict(site: Site, failed: str) -> tuple[bool, str]:
    """Whether this is as it should be, and the words for it."""
    reason = EXEMPT.get((site.path, site.statement))
    if not failed:
        return reason is not None, "survived, as it may" if reason else "SURVIVED"
    return reason is None, failed + (", though it is in EXEMPT" if reason else "")


def check(sites: list[Site], jobs: int) -> int:
    """Removes each. @returns how many are not as they should be."""
    copy_tree()
    build(jobs)
    wrong = 0
    waiting: list[tuple[Site, Future[str]]] = []

    def report(at_most: int) -> None:
        nonlocal wrong
        while waiting and (len(waiting) > at_most or waiting[0][1].done()):
            site, future = waiting.pop(0)
            is_right, words = verdict(site, future.result())
            wrong += not is_right
            print(f"{site}\n    {words}", flush=True)

    if failed := tested(keep_programs("as_it_is")):
        raise RemovalError(f"before anything is removed, this fails: {failed}")
    with ThreadPoolExecutor(jobs) as pool:
        for number, site in enumerate(sites):
            source = TREE / site.path
            text = source.read_text(encoding="utf-8")
            try:
                source.write_text(removal_sites.removed(text, site), encoding="utf-8")
                build(jobs)
                waiting.append((site, pool.submit(tested, keep_programs(str(number)))))
            except RemovalError as error:
                wrong += 1
                print(f"{site}\n    cannot be built: {error}", flush=True)
            finally:
                source.write_text(text, encoding="utf-8")
            report(at_most=jobs)
        report(at_most=0)
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the sites; remove none")
    parser.add_argument("--only", default="", metavar="PATTERN", help="sites that contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    sites = [site for site in removal_sites.find(ROOT)
             if re.search(options.only, str(site))]
    if options.list:
        print("\n".join(map(str, sites)))
        return 0
    begin = time.monotonic()
    try:
        wrong = check(sites, options.jobs)
    except (RemovalError, verdicts.JudgeError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(sites)} removed in {time.monotonic() - begin:.0f} s: {len(sites) - wrong} as they "
          f"should be, {wrong} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
