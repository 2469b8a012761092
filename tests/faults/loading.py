#!/usr/bin/env python3
"""Loads every checkpoint with every other strategy and number of ranks: the bits must be the same.

    python3 tests/faults/loading.py [COUNT]

A training is stopped half way and goes on in another way: all pairs of strategies, at 1 to 4 ranks,
in float32 and in bfloat16, or COUNT of them that are drawn. What it comes to is compared with a
training on one rank that nobody stopped. At the end: "tried N, as promised N, otherwise N".
"""

import itertools
import pathlib
import random
import sys
import tempfile

import trials

WAYS = [("single", 1), *((strategy, ranks) for strategy in ("ddp", "zero1", "zero2", "fsdp")
                         for ranks in (1, 2, 4))]
FORMATS = ["float32", "bfloat16"]


def train(folder: pathlib.Path, way: tuple[str, int], form: str, steps: int) -> str:
    """What went wrong, or nothing."""
    strategy, ranks = way
    done = trials.run([*trials.arguments(folder, ranks, strategy),
                       f"--training.mixed_precision_param={form}", f"--training.steps={steps}",
                       f"--lr_scheduler.total_steps={trials.STEPS}"])
    return done.stderr.strip() if done.returncode else ""


def main() -> None:
    pairs = list(itertools.product(WAYS, WAYS, FORMATS))
    if len(sys.argv) > 1:
        pairs = random.Random(1).sample(pairs, int(sys.argv[1]))
    tally = trials.Tally()
    with tempfile.TemporaryDirectory() as home:
        whole = {}
        for form in FORMATS:
            folder = pathlib.Path(home) / form
            folder.mkdir()
            train(folder, ("single", 1), form, trials.STEPS)
            whole[form] = trials.fingerprint(folder)
        for number, (first, then, form) in enumerate(pairs):
            folder = pathlib.Path(home) / str(number)
            folder.mkdir()
            fault = train(folder, first, form, trials.STEPS // 2) \
                or train(folder, then, form, trials.STEPS)
            if not fault and trials.fingerprint(folder) != whole[form]:
                fault = "other bits"
            tally.add(f"{first} then {then}, {form}", fault)
    tally.finish()


if __name__ == "__main__":
    main()
