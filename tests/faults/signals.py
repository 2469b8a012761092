#!/usr/bin/env python3
"""Sends signals to one rank of a job of mpirun, or to mpirun, at moments that are drawn.

    python3 tests/faults/signals.py [COUNT] [--seed N]

COUNT (20) trainings of build/mpi. After SIGINT or SIGTERM, wherever it goes, all ranks must end
after their step with a checkpoint; after any other that ends a process, all must end. The same
command then goes on, to the same parameters as a training that nobody stopped. At the end: "tried
N, as promised N, otherwise N".
"""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import trials

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/mpi/bin/unshard-train"
SECONDS = 120
ASKED = [signal.SIGINT, signal.SIGTERM]
FORCED = [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGHUP]


def mpirun() -> str:
    for line in (ROOT / "build/mpi/CMakeCache.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("FSDP_MPIRUN:"):
            return line.partition("=")[2]
    sys.exit("build/mpi knows no mpirun")


def job(launcher: str, folder: pathlib.Path, ranks: int, steps: int) -> list[str]:
    words = [str(PROGRAM), *trials.arguments(folder, ranks)[1:], f"--training.steps={steps}",
             "--lr_scheduler.kind=constant"]
    return ["sh", str(ROOT / "common/scripts/mpirun.sh"), launcher, str(ranks), *words]


def ranks_of(folder: pathlib.Path) -> dict[int, int]:
    """The processes of a job by their rank."""
    sys.argv[1:] = [str(ROOT / "common/scripts/mpirun.sh"), "mpirun", str(PROGRAM)]
    sys.path.insert(0, str(ROOT / "tests" / "mpi"))
    import jobs  # it reads these words
    return jobs.ranks(str(folder))


def attempt(launcher: str, folder: pathlib.Path, draw: random.Random) -> tuple[str, str]:
    """What was done, and what is wrong with how it ended, or nothing."""
    ranks = draw.choice([2, 4])
    number = draw.choice(ASKED if draw.random() < 0.7 else FORCED)
    rank = draw.randrange(-1, ranks)
    process = subprocess.Popen(job(launcher, folder, ranks, 1_000_000), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    what = f"{number.name} to {'mpirun' if rank < 0 else f'rank {rank} of {ranks}'}"
    for _ in range(draw.randrange(5, 20)):
        process.stdout.readline()
    if rank < 0:
        process.send_signal(number)
    else:
        os.kill(ranks_of(folder)[rank], number)
    try:
        said, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return what, "does not end"
    if process.returncode == 0:
        return what, "ends with exit code 0"
    if number in ASKED and rank >= 0 and f"stopped by {number.name}" not in said:
        return what, f"does not stop after a step: {said[-300:]}"
    latest = (folder / "runs" / "latest").read_text(encoding="utf-8")
    steps = int(latest.strip().removeprefix("step_")) + 2
    again = trials.run(job(launcher, folder, ranks, steps))
    if again.returncode != 0:
        return what, f"does not go on: {again.stdout[-300:]}{again.stderr[-300:]}"
    resumed = trials.fingerprint(folder)
    whole = folder / "whole"
    whole.mkdir()
    trials.run(job(launcher, whole, ranks, steps))
    return what, "" if trials.fingerprint(whole) == resumed else "goes on to other bits"


def main() -> None:
    parser = argparse.ArgumentParser(description="sends signals to the ranks of a job")
    parser.add_argument("count", nargs="?", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    tally = trials.Tally()
    launcher = mpirun()
    for _ in range(given.count):
        with tempfile.TemporaryDirectory() as home:
            tally.add(*attempt(launcher, pathlib.Path(home), draw))
    tally.finish()


if __name__ == "__main__":
    main()
