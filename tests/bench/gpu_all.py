"""Runs what a CUDA card must show, and prints it as one table: tests/bench/gpu_all.sh.

    gpu_all.py BIN_FOLDER OUTPUT_FOLDER [--parts NAME,…]

BIN_FOLDER has unshard-train and bench_cuda_rates. Without --parts all of them run: rates, kernels,
steps, tests, bits, sanitizer, PyTorch; each takes some minutes at most. If the folder is that of the preset cuda-host, this is a
dry run on the stand-in: the same checks at sizes that it can compute, whose speeds say nothing. The
exit status is 1 if a check fails. What cannot be done here is a row that says "skipped", and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "tests" / "oracle" / "gpu_peer.py"
PARTS = ("rates", "kernels", "steps", "tests", "bits", "sanitizer", "PyTorch")
_PATIENCE = 1800  # seconds, for a program that hangs: the other rows must not be lost


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)


@dataclass(frozen=True)
class Sizes:
    """What a run computes."""
    rows: int  # of the matrices whose products are timed
    copied: int  # bytes
    models: dict[str, list[str]]  # by name: words of unshard-train
    bits: list[str]  # of the training whose bits are compared
    steps: int  # of each


_NANO = ["--model.preset=nano", "--model.vocab_size=256", "--training.local_batch_size=1"]
_DRY = Sizes(24, 1 << 16, {"nano": _NANO},
             [*_NANO, "--training.global_batch_size=4", "--optimizer.lr=1e-2"], 2)
_CARD = Sizes(8192, 1 << 30, {
    "llama_124m": ["--model.preset=llama_124m", "--training.local_batch_size=16"],
    "llama_2b": ["--model.preset=llama_2b", "--training.local_batch_size=4",
                 "--training.activation_checkpoint=block"],
}, ["--model.preset=small", "--training.local_batch_size=4", "--training.global_batch_size=16"], 20)


@dataclass
class Table:
    """The rows so far: what, its result, and whether it is as it must be (None: nothing to judge)."""
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    failed: bool = False

    def add(self, what: str, result: str, is_right: bool | None = None) -> None:
        verdict = "" if is_right is None else "yes" if is_right else "NO"
        self.failed |= is_right is False
        self.rows.append((what, result, verdict))
        print(f"{verdict:3}  {what}: {result}", flush=True)

    def attempt(self, what: str, measure: Callable[[], None]) -> None:
        """Goes on with the other rows if a program fails, or prints what nobody understands."""
        try:
            measure()
        except (RuntimeError, ValueError, KeyError, OSError,
                subprocess.SubprocessError) as error:
            self.add(what, " ".join(str(error).split()), False)

    def markdown(self) -> str:
        lines = ["| what | result | as it must be |", "|---|---|---|"]
        return "\n".join(lines + [f"| {' | '.join(row)} |" for row in self.rows]) + "\n"


@dataclass(frozen=True)
class Programs:
    folder: Path
    out: Path

    def output_of(self, name: str, *words: str) -> str:
        """What the program prints; an error of ours if it fails."""
        command = [str(self.folder / name), *words]
        done = finished(command)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def train(self, *words: str) -> tuple[dict, list[float]]:
        """The summary of a training on the device, and the tokens per second of each step."""
        summary = self.out / "summary.json"
        text = self.output_of("unshard-train", f"--data.path={ROOT / 'README.md'}",
                              "--device=cuda", f"--summary={summary}", *words)
        speeds = [float(value) for value in re.findall(r"(\d+) tokens/s", text)]
        return json.loads(summary.read_text(encoding="utf-8"))["runs"][0], speeds


def machine(table: Table, is_dry: bool) -> int:
    """What computes, and its driver; the number of cards."""
    if is_dry:
        table.add("card", "none: this is a dry run on the stand-in, whose speeds say nothing")
        return 0
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    answer = finished(query)
    answer.check_returncode()
    cards = answer.stdout.strip().splitlines()
    for card in cards:
        table.add("card", card)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(cards) if visible is None else len(visible.split(","))


def rates(table: Table, programs: Programs, sizes: Sizes) -> dict[str, float]:
    """Products and copies per second."""
    found = json.loads(programs.output_of("bench_cuda_rates", "rates", str(sizes.rows),
                                          str(sizes.copied)))
    for name in ("float32", "bfloat16", "float16"):
        table.add(f"products of {sizes.rows} x {sizes.rows} in {name}",
                  f"{found[name] / 1e12:.3g} TFLOP/s")
    table.add(f"copies of {sizes.copied} bytes", f"{found['copy'] / 1e9:.4g} GB/s")
    return found


def kernels(table: Table, programs: Programs, sizes: Sizes, found: dict[str, float]) -> None:
    """Each kernel of a training in bfloat16 alone, beside the rate of what limits it."""
    for model, words in sizes.models.items():
        shape = [word for word in words if "activation_checkpoint" not in word]
        for kernel in json.loads(programs.output_of("bench_cuda_rates", "kernels", *shape)):
            what, seconds = f"{model}: {kernel['name']}", kernel["seconds"]
            least = max(kernel["operations"] / found["bfloat16"], kernel["bytes"] / found["copy"])
            amount = (f"{kernel['operations'] / seconds / 1e12:.3g} TFLOP/s" if kernel["operations"]
                      else f"{kernel['bytes'] / seconds / 1e9:.4g} GB/s")
            table.add(what, f"{1e6 * seconds:.4g} us, {amount}, {100 * least / seconds:.0f} % of "
                      "what products and copies allow")


def bits(table: Table, programs: Programs, sizes: Sizes) -> None:
    """One process and FSDP, on one device and in one format, agree in every bit."""
    for name in ("float32", "bfloat16"):
        words = [*sizes.bits, f"--training.steps={sizes.steps}",
                 f"--training.mixed_precision_param={name}"]
        alone, _ = programs.train(*words)
        for strategy, ranks in (("ddp", 2), ("zero2", 2), ("fsdp", 2), ("fsdp", 4)):
            run, _ = programs.train(*words, f"--parallel.strategy={strategy}",
                                    f"--parallel.ranks={ranks}")
            same = (run["param_sha256"], run["losses"]) == (alone["param_sha256"], alone["losses"])
            table.add(f"{name}: {strategy} on {ranks} ranks has the bits of a single process",
                      f"last loss {run['losses'][-1]:.4f}", same)


def steps(table: Table, programs: Programs, sizes: Sizes, rate: float) -> dict[str, float]:
    """Speed and memory of each model in bfloat16, over masters in float32; tokens per second."""
    speeds: dict[str, float] = {}

    def measure(model: str, words: list[str]) -> None:
        words = [*words, f"--training.steps={sizes.steps}", "--metrics.log_freq=1",
                 "--training.mixed_precision_param=bfloat16"]
        facts = json.loads(programs.output_of("bench_cuda_rates", "training",
                                              "--training.device=cuda", *words))
        run, of_steps = programs.train(*words)
        speeds[model] = median(of_steps[len(of_steps) // 2:])
        used = speeds[model] * facts["operations_per_token"] / rate
        table.add(f"{model} in bfloat16", f"{speeds[model]:.6g} tokens/s, {100 * used:.1f} % of the "
                  "rate of products (model-flops utilization)")
        table.add(f"{model}: peak of memory is that of the formula",
                  f"{run['peak_bytes']} of {facts['bound_bytes']} bytes",
                  run["peak_bytes"] == facts["bound_bytes"])

    for model, words in sizes.models.items():
        table.attempt(model, lambda: measure(model, words))
    return speeds


def suite(table: Table, programs: Programs, cards: int) -> None:
    """The library's tests, on the card."""
    for name in ("test_cuda", "test_cuda_fsdp", "test_cuda_train"):
        if cards == 0 or not (programs.folder / name).is_file():
            table.add(f"{name} on a card", "skipped: make test-cuda runs it on the stand-in"
                      if cards == 0 else "skipped: a student kit does not have it")
            continue
        # One word: tests that have neither tag.
        left_out = "~[stand-in]" + ("~[cards]" if cards < 4 else "")
        done = finished([str(programs.folder / name), left_out])
        (programs.out / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        last = done.stdout.strip().splitlines()[-1:]
        table.add(f"{name} on a card", "".join(last), done.returncode == 0)


_TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def sanitizer(table: Table, programs: Programs, cards: int) -> None:
    """compute-sanitizer over a short training of several ranks, and over the kernels' tests."""
    program = shutil.which("compute-sanitizer")
    training = ["unshard-train", f"--data.path={ROOT / 'README.md'}", "--device=cuda", *_NANO,
                "--training.global_batch_size=4", "--training.steps=2", "--strategy=fsdp", "--ranks=2"]
    runs = {(tool, what): words for tool in _TOOLS
            for what, words in (("a training", training),
                                ("kernels", ["test_cuda", "[kernels]~[stand-in]~[cards]"]))}

    def checked(tool: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        return finished([str(program), "--tool", tool, "--error-exitcode", "9",
                         str(programs.folder / words[0]), *words[1:]])

    why = ("there is no card" if cards == 0 else "" if program else "it is not installed")
    if why:
        for tool in _TOOLS:
            table.add(f"compute-sanitizer, {tool}", f"skipped: {why}")
        return
    with ThreadPoolExecutor(len(_TOOLS)) as pool:
        results = {key: pool.submit(checked, key[0], words) for key, words in runs.items()
                   if (programs.folder / words[0]).is_file()}
    for (tool, what), result in results.items():
        done = result.result()
        (programs.out / f"{tool}, {what}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        said = re.findall(r".*(?:ERROR|RACECHECK) SUMMARY:.*", done.stdout + done.stderr)
        table.add(f"compute-sanitizer, {tool}, {what}", "".join(said[-1:]), done.returncode == 0)


def peer(table: Table, sizes: Sizes, speeds: dict[str, float]) -> None:
    """PyTorch on the same shapes, where it is installed and has the card."""
    for model in sizes.models:
        done = finished([sys.executable, str(PEER), model])
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            table.add(f"{model} in PyTorch", f"skipped: {''.join(said)}")
            continue
        for way, speed in json.loads(done.stdout).items():
            ours = f"; ours are {speeds[model] / speed:.2f} of that" if model in speeds else ""
            table.add(f"{model} in PyTorch, {way}", f"{speed:.6g} tokens/s{ours}")


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("bin_folder", type=Path)
    words.add_argument("output_folder", type=Path)
    words.add_argument("--parts", default="")
    asked = words.parse_args()
    wanted = asked.parts.split(",") if asked.parts else list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        words.error(f"there is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if {"kernels", "steps"} & set(wanted):
        wanted.append("rates")  # they are compared with them
    programs = Programs(asked.bin_folder.resolve(), asked.output_folder.resolve())
    programs.out.mkdir(parents=True, exist_ok=True)
    is_dry = programs.folder.parent.name == "cuda-host"
    sizes = _DRY if is_dry else _CARD
    table = Table()
    cards = machine(table, is_dry)
    found: dict[str, float] = {}
    speeds: dict[str, float] = {}
    parts: dict[str, Callable[[], None]] = {
        "rates": lambda: found.update(rates(table, programs, sizes)),
        "kernels": lambda: kernels(table, programs, sizes, found),
        "steps": lambda: speeds.update(steps(table, programs, sizes, found["bfloat16"])),
        "tests": lambda: suite(table, programs, cards),
        "bits": lambda: bits(table, programs, sizes),
        "sanitizer": lambda: sanitizer(table, programs, cards),
        "PyTorch": lambda: peer(table, sizes, speeds),
    }
    for name in PARTS:
        if name not in wanted:
            continue
        table.attempt(name, parts[name])
        (programs.out / "table.md").write_text(table.markdown(), encoding="utf-8")
    print(f"Written: {programs.out / 'table.md'}")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
