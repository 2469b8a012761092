#!/usr/bin/env python3
"""Gives every option of every program hostile values: each run must end well, in a sentence.

    python3 tests/faults/flags.py [COUNT] [--seed N]

The options are those of --help, so a new one is tried as soon as it exists. Each is given every
value below, or, with COUNT, as many pairs as that are drawn. A program may accept a value (exit code
0), or refuse it with one sentence: it must not crash, run for long, or print what it was given raw
or at length. At the end: "tried N, as promised N, otherwise N".
"""

import argparse
import itertools
import os
import pathlib
import random
import re
import socket
import subprocess
import tempfile

import trials

BIN = trials.PROGRAM.parent.resolve()
VALUES = ["", " ", "-", "--", "-1", "0", "1", "3", "1e9", "1e308", "-1e308", "1e999", "nan", "inf",
          "-inf", str(2**31), str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 400, "0x10", "1..9",
          "9..1", "1..1000000000", "batch=1..1000000000", "world=0", "1GB", "-1GB", "1e30GB", "true",
          "null", "[]", "{}", "\x1b[2J\x1b]0;x\x07", "a\nb", "\u202egnp.exe", "%s%n", "$(id)",
          "x" * 100_000, "\udcff\udcfe", "../../x", "__proto__"]
# What is written under a hostile name must be written here, and nowhere else.
PATHS = ["/dev/zero", "/dev/full", "/proc/self/mem", "/proc/self/fd/0", "/", "fifo", "socket", "loop",
         "nowhere/x", "folder", "x" * 5000]
QUICK = {"unshard-train": ["--model.preset=nano", "--model.vocab_size=128", "--data.path=text",
                           "--training.steps=1"],
         "unshard-estimate": ["--model.preset=nano"],
         "unshard-report": ["--fake", "--model=nano", "--out=picture"],
         "unshard-demo": ["--brief"]}
# They train, or draw, as long as they are asked to.
LONG = re.compile(r"--(training\.steps|sample\.max_new_tokens|training\.global_batch_size|"
                  r"training\.seq_len|training\.local_batch_size|steps|batch|micro-steps)$")


def options_of(program: str) -> list[str]:
    text = subprocess.run([BIN / program, "--help"], capture_output=True, text=True,
                          check=True).stdout
    return sorted(set(re.findall(r"^\s+(--[\w.-]+)", text, re.MULTILINE)) - {"--help", "--brief"})


def prepare(folder: pathlib.Path) -> None:
    (folder / "text").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))


def main() -> None:
    parser = argparse.ArgumentParser(description="gives every option hostile values")
    parser.add_argument("count", nargs="?", type=int)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    trial = [(program, option, value) for program in QUICK
             for option in options_of(program) for value in VALUES + PATHS
             if not (LONG.search(option) and value in ("1e9", str(2**31), str(2**63 - 1)))]
    if given.count:
        trial = random.Random(given.seed).choices(trial, k=given.count)
    tally = trials.Tally()
    with tempfile.TemporaryDirectory() as home:
        for number, (program, option, value) in zip(itertools.count(), trial):
            folder = pathlib.Path(home) / str(number % 50)
            if not folder.exists():
                folder.mkdir()
                prepare(folder)
            quick = [word for word in QUICK[program] if not word.startswith(option + "=")]
            _, fault = trials.ending([BIN / program, *quick, f"{option}={value}"], cwd=folder)
            tally.add(f"{program} {option}={value[:40]!r}", fault)
    tally.finish()


if __name__ == "__main__":
    main()
