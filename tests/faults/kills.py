#!/usr/bin/env python3
"""Kills a training at some moment, resumes it, and compares the result with an uninterrupted one.

    python3 tests/faults/kills.py --random 200 --chosen 200

A random moment is drawn from the whole duration of the run; a chosen one follows a line of its
output by up to 3 ms, which is where checkpoints and exports are written. Each trial kills once or
twice, at moments of one kind. Every folder also holds files of somebody else's, which must be there
at the end.
"""

import argparse
import pathlib
import random
import subprocess
import tempfile
import time

import trials

MINE = "years of work"


def start(folder: pathlib.Path, ranks: int) -> subprocess.Popen:
    return subprocess.Popen(trials.arguments(folder, ranks), stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True)


def kill(folder: pathlib.Path, ranks: int, kind: str, draw: random.Random,
         duration: float) -> str:
    """@return the moment, in words"""
    process = start(folder, ranks)
    if kind == "random":
        moment = draw.random() * duration
        what = f"after {1e3 * moment:.0f} ms"
        time.sleep(moment)
    else:
        line = draw.randrange(2 * trials.STEPS + 4)
        what = f"after line {line}"
        for _ in range(line):
            process.stdout.readline()
        time.sleep(draw.random() * 3e-3)
    process.kill()
    process.communicate()
    return what


def fault_in(folder: pathlib.Path, ranks: int, expected: str) -> str:
    resumed = trials.run(trials.arguments(folder, ranks))
    if resumed.returncode != 0:
        return f"not resumed: {resumed.stderr.strip()}"
    if trials.fingerprint(folder) != expected:
        return "resumed to other bits"
    left = [path.name for path in folder.rglob("*") if path.suffix in (".tmp", ".old")]
    if left != ["step_99.tmp"]:
        return f"temporary folders: {left}"
    if (folder / "runs" / "step_99.tmp" / "mine").read_text(encoding="utf-8") != MINE:
        return "somebody's file is not what it was"
    if not (folder / "model" / "model.safetensors").exists():
        return "not exported"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description="kills trainings and resumes them")
    parser.add_argument("--random", type=int, default=100, help="trials killed at random moments")
    parser.add_argument("--chosen", type=int, default=100, help="trials killed after a line")
    given = parser.parse_args()
    draw = random.Random(1)
    tally = trials.Tally()
    with tempfile.TemporaryDirectory() as home:
        whole = pathlib.Path(home) / "whole"
        whole.mkdir()
        begin = time.monotonic()
        subprocess.run(trials.arguments(whole, 1), check=True, stdout=subprocess.DEVNULL)
        duration = time.monotonic() - begin
        for number, kind in enumerate(["random"] * given.random + ["chosen"] * given.chosen):
            folder = pathlib.Path(home) / str(number)
            (folder / "runs" / "step_99.tmp").mkdir(parents=True)
            (folder / "runs" / "step_99.tmp" / "mine").write_text(MINE, encoding="utf-8")
            ranks = draw.choice([1, 2])
            moments = [kill(folder, ranks, kind, draw, duration)
                       for _ in range(draw.choice([1, 1, 2]))]
            tally.add(f"{kind}, {ranks} rank(s), killed {' and '.join(moments)}",
                      fault_in(folder, draw.choice([1, 2]), trials.fingerprint(whole)))
    tally.finish()


if __name__ == "__main__":
    main()
