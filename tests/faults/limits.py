"""Signals at chance moments, outputs that are full or closed, and too little memory.

    limits.py [COUNT] [--seed N] [--program build/release/bin/unshard-train]

COUNT trainings (60) are stopped by SIGINT or SIGTERM, at a chance line of their output, with W = 1,
2, 3, 4: each must end with 130 or 143 and a checkpoint from which the same command goes on, to the
same parameters as a training that nobody stopped. Then every program writes to a full device, to a
closed stream and to a reader that goes away; and the training runs under small limits of memory,
files and stacks (`ulimit -v`, `-f`, `-s`): there it must end with a sentence. At the end: "tried N, as promised N, otherwise N".
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40
SECONDS = 120
RUNS = [("single", 1), ("ddp", 2), ("ddp", 3), ("fsdp", 2), ("fsdp", 3), ("fsdp", 4)]


def command(program: Path, folder: Path, strategy: str, ranks: int, *more: str) -> list[str]:
    return [str(program), "--model.preset=nano", "--model.vocab_size=128",
            "--training.local_batch_size=1", "--training.global_batch_size=12",
            f"--training.steps={STEPS}", f"--data.path={folder / 'text'}",
            "--strategy", strategy, "--ranks", str(ranks), *more]


def fingerprint(text: str) -> str:
    found = re.search(r"sha256 (\w+)", text)
    return found.group(1) if found else ""


def run(words: list[str], **more) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output="stdout" not in more, text=True, check=False,
                          timeout=SECONDS, **more)


def stopped(program: Path, folder: Path, draw: random.Random, whole: dict) -> str:
    """What went otherwise when a training was stopped, or nothing."""
    strategy, ranks = draw.choice(RUNS)
    number = draw.choice([signal.SIGINT, signal.SIGTERM])
    every = draw.choice([0, 1, 7])
    with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
        words = command(program, folder, strategy, ranks, f"--checkpoint.folder={checkpoints}",
                        f"--checkpoint.interval={every}")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            for _ in range(draw.randrange(2, 2 + STEPS)):
                process.stdout.readline()
            process.send_signal(number)
            out, err = process.communicate(timeout=SECONDS)
        # After the last step a signal finds nothing to save: it ends the program, or is too late.
        if process.returncode not in (128 + number, -number, 0) or err:
            return f"{strategy} {ranks}: {number.name}: exit code {process.returncode}: {err}"
        if process.returncode == 128 + number and f"stopped by {number.name}" not in out:
            return f"{strategy} {ranks}: {number.name}: does not say so"
        done = run(words)
        if done.returncode != 0 or fingerprint(done.stdout) != whole[strategy, ranks]:
            return f"{strategy} {ranks}: {number.name}: goes on to something else: {done.stderr}"
    return ""


def outputs(folder: Path, programs: dict[str, list[str]]) -> list[str]:
    faults = []
    for name, words in programs.items():
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run(words, stdout=full, stderr=subprocess.PIPE)
        ok = done.returncode == 1 and "No space left" in done.stderr
        faults.append("" if ok else f"{name}: /dev/full: {done.returncode}: {done.stderr}")
        done = run(["sh", "-c", 'exec "$0" "$@" >&-', *words])
        ok = done.returncode == 1 and "cannot be written" in done.stderr
        faults.append("" if ok else f"{name}: closed: {done.returncode}: {done.stderr}")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              cwd=folder) as process:
            process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read()
            code = process.wait(timeout=SECONDS)
        # One line may be all that it had to say.
        ok = code in (0, 141) and not err
        faults.append("" if ok else f"{name}: head -1: {code}: {err}")
    return faults


# What a process may take, and the range that is tried: of its memory, of a file, of a stack.
SMALL = {"ulimit -v": (resource.RLIMIT_AS, 20 << 20, 400 << 20),
         "ulimit -f": (resource.RLIMIT_FSIZE, 1 << 9, 1 << 18),
         "ulimit -s": (resource.RLIMIT_STACK, 1 << 15, 2 << 20)}


def under_limit(program: Path, folder: Path, draw: random.Random) -> str:
    strategy, ranks = draw.choice(RUNS)
    what = draw.choice(list(SMALL))
    kind, least, most = SMALL[what]
    nbytes = draw.randrange(least, most)

    def limit() -> None:
        resource.setrlimit(kind, (nbytes, nbytes))
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))

    with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
        try:
            done = run(command(program, folder, strategy, ranks,
                               f"--checkpoint.folder={checkpoints}"), preexec_fn=limit)
        except subprocess.TimeoutExpired:
            return f"{strategy} {ranks}: {what} {nbytes >> 10}: does not end"
    said = done.stderr.startswith("unshard-train: ") or "error while loading shared" in done.stderr
    is_raw = "std::" in done.stderr
    if done.returncode == 0 or (done.returncode in (1, 2, 127) and said and not is_raw):
        return ""
    return f"{strategy} {ranks}: {what} {nbytes >> 10}: {done.returncode}: {done.stderr[-300:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/unshard-train")
    options = parser.parse_args()
    program = options.program.resolve()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
        whole = {each: fingerprint(run(command(program, folder, *each)).stdout) for each in RUNS}
        faults = [stopped(program, folder, draw, whole) for _ in range(options.count)]
        report = str(program.with_name("unshard-report"))
        faults += outputs(folder, {
            "train": command(program, folder, "fsdp", 2),
            "train --help": [str(program), "--help"],
            "demo": [str(program.with_name("unshard-demo"))],
            "report": [report, "--fake", "--model", "nano", "--out", str(folder / "picture")],
            "report --help": [report, "--help"]})
        faults += [under_limit(program, folder, draw) for _ in range(options.count // 2)]
    for fault in filter(None, faults):
        print(fault)
    otherwise = sum(map(bool, faults))
    print(f"tried {len(faults)}, as promised {len(faults) - otherwise}, otherwise {otherwise}")
    return 1 if otherwise else 0


if __name__ == "__main__":
    sys.exit(main())
