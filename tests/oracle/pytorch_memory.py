#!/usr/bin/env python3
"""Asks PyTorch itself what a rank of a torchtitan run holds, over a grid of configurations.

    python3 tests/oracle/pytorch_memory.py                  writes the goldens of the tests
    python3 tests/oracle/pytorch_memory.py --float8         adds those in float8 to the file
    python3 tests/oracle/pytorch_memory.py --check 10       measures ten of them again
    python3 tests/oracle/pytorch_memory.py --published      totals of whole models, known before
    python3 tests/oracle/pytorch_memory.py --peak WORDS     what is alive at one peak, by operation

PyTorch's FSDPMemTracker runs a Llama in fake mode (pytorch_tracker.py): nothing is allocated, and
no GPU is needed. WORDS are a golden's name, as in

    "grouped W=8 B=1 T=256 later default bfloat16 fused full"

The grid holds every pair of values of its factors, and most triples. A golden has the run, the peak
by the tracker's categories, where it stood, and a table of units: the total at each moment that the
tracker knows. Needs torch, and torchao for the runs in float8; the goldens were made with the version of
torch that is written into them.
"""

import argparse
import dataclasses
import gc
import itertools
import json
import pathlib
import random

import torch

from pytorch_llama import Shape
from pytorch_tracker import Run, measure, parse, spell

GOLDENS = pathlib.Path("tests/estimate/data/pytorch_memory.json")

SHAPES = {
    "grouped": Shape(32000, 1024, 6, 16, 4, 2816),
    "vocabulary": Shape(128256, 512, 4, 8, 2, 1536),
    "whole": Shape(32000, 768, 5, 12, 12, 2048),
    "tied": Shape(50257, 768, 4, 12, 4, 2048, tied=True),  # no world divides 50257 rows
    "narrow": Shape(2000, 1024, 6, 16, 4, 2816),  # peaks inside of a block's backward
    "llama3_1b": Shape(128256, 2048, 16, 32, 8, 8192),
    "llama2_7b": Shape(32000, 4096, 32, 32, 32, 11008),
    "llama3_8b": Shape(128256, 4096, 32, 32, 8, 14336),
}

FACTORS = {
    "shape": ("grouped", "vocabulary", "whole", "tied"),
    "world": (2, 8, 64),
    "batch": (1, 4),
    "tokens": (32, 256, 1024),
    "units": ("later", "2024", "2025"),
    "reshard": ("default", "never", "always"),
    "precision": ("bfloat16", "float32"),
    "norm": ("fused", "float32"),
    "checkpoint": ("none", "full", "op", "2"),
    "lora": (False, True),
}

NARROW = {"shape": ("narrow",), "tokens": (64, 512, 2048)}
CHOSEN, CHOSEN_NARROW = 72, 26

FLOAT8 = [f"{words} float8 {way}" for way in ("rounded", "gathered") for words in (
    "grouped W=8 B=1 T=1024 later default bfloat16 fused none",
    "grouped W=2 B=4 T=256 2024 default bfloat16 float32 op",
    "narrow W=8 B=4 T=2048 later default bfloat16 fused none",
    "narrow W=8 B=1 T=64 later default bfloat16 fused none",
    "narrow W=8 B=1 T=512 later always bfloat16 fused full",
    "narrow W=2 B=1 T=512 later always bfloat16 fused op",
    "narrow W=64 B=1 T=2048 2025 default bfloat16 fused 2",
    "narrow W=2 B=4 T=64 2024 never bfloat16 float32 full")]

PUBLISHED = {  # totals that were measured before this script was written, of whole models
    "llama3_1b W=8 B=2 T=2048 2024 default bfloat16 fused none": 16209608660,
    "llama3_1b W=8 B=2 T=2048 2024 default bfloat16 fused full": 10026679892,
    "llama3_1b W=8 B=2 T=2048 2024 default bfloat16 fused op": 11981225940,
    "llama3_1b W=8 B=2 T=2048 2024 default bfloat16 float32 none": 17316904916,
    "llama3_1b W=8 B=2 T=2048 later default bfloat16 fused none": 15684272084,
    "llama2_7b W=8 B=1 T=512 2024 default bfloat16 fused full": 15983281300,
    "llama3_8b W=8 B=1 T=256 2024 default bfloat16 fused none": 21839383700,
}


def allowed(run):
    """2025 differs from later by default only."""
    return run.units != "2025" or run.reshard == "default"


def everything(factors):
    runs = (Run(**dict(zip(factors, values))) for values in itertools.product(*factors.values()))
    return [run for run in runs if allowed(run)]


def triples(run):
    """Three values at a time, of every three factors."""
    values = sorted((name, getattr(run, name)) for name in FACTORS)
    return set(itertools.combinations(values, 3))


def choose(factors, count):
    """Runs that together hold as many triples of values as so many can, and so every pair."""
    dice, candidates = random.Random(39), everything(factors)
    chosen, seen = [], set()
    while len(chosen) < count:
        best = max(dice.sample(candidates, 400), key=lambda run: len(triples(run) - seen))
        seen |= triples(best)
        chosen.append(best)
    if missing := pairs(candidates) - pairs(chosen):
        raise SystemExit(f"The grid lacks pairs of values: {sorted(map(str, missing))}")
    return chosen


def grid():
    return [*choose(FACTORS, CHOSEN), *choose({**FACTORS, **NARROW}, CHOSEN_NARROW),
            *map(parse, PUBLISHED), *map(parse, FLOAT8)]


def pairs(runs):
    return {pair for run in runs
            for pair in itertools.combinations(sorted((name, getattr(run, name))
                                                      for name in FACTORS), 2)}


def golden(run):
    result, _ = measure(run, SHAPES[run.shape])
    factors = dataclasses.asdict(run)
    if run.float8 == "none":
        del factors["float8"]
    return {"name": spell(run), **factors, **result}


def write(rows):
    shapes = {name: dataclasses.asdict(SHAPES[name]) for name in {row["shape"] for row in rows}}
    head = {"by": "tests/oracle/pytorch_memory.py", "torch": torch.__version__.split("+")[0],
            "unit": "bytes", "shapes": dict(sorted(shapes.items()))}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    GOLDENS.parent.mkdir(parents=True, exist_ok=True)
    GOLDENS.write_text(json.dumps(head)[:-1] + ',\n"runs": [\n' + lines + "\n]}\n")


def make(runs, rows):
    """Adds the runs to rows that are there."""
    for run in runs:
        rows.append(golden(run))
        print(rows[-1]["peak"]["Total"], spell(run), json.dumps(rows[-1]["at"]), flush=True)
    write(rows)


def check(count):
    """Measures so many of the goldens again, spread over the file."""
    rows = json.loads(GOLDENS.read_text())["runs"]
    wrong = 0
    for row in rows[::-(-len(rows) // count)]:
        now = golden(parse(row["name"]))
        same = now == row
        wrong += not same
        print("same  " if same else "DIFFERS", row["name"], row["peak"]["Total"],
              now["peak"]["Total"], flush=True)
    if wrong:
        raise SystemExit(f"{wrong} goldens differ from torch {torch.__version__}")


def compare_published():
    for words, total in PUBLISHED.items():
        result, _ = show(parse(words))
        print("   difference", result["peak"]["Total"] - total, flush=True)


def print_peak(run):
    result, alive = show(run)
    for category, made_by, count, size in alive:
        print(f"{size:>14,} {count:>4}  {category:<16} {made_by}")
    print(json.dumps(result["modules"], indent=1))


def show(run):
    result, alive = measure(run, SHAPES[run.shape])
    print(spell(run), json.dumps(result["peak"]), json.dumps(result["at"]), flush=True)
    return result, alive


if __name__ == "__main__":
    gc.disable()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--published", action="store_true")
    mode.add_argument("--peak", metavar="WORDS")
    mode.add_argument("--float8", action="store_true")
    mode.add_argument("--check", type=int, metavar="RUNS")
    options = parser.parse_args()
    if options.published:
        compare_published()
    elif options.peak:
        print_peak(parse(options.peak))
    elif options.check:
        check(options.check)
    elif options.float8:
        rows = json.loads(GOLDENS.read_text())["runs"]
        make(map(parse, FLOAT8), [row for row in rows if "float8" not in row])
    else:
        make(grid(), [])
