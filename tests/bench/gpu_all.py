"""Runs what a CUDA card must show, and prints it as one table: tests/bench/gpu_all.sh.

    gpu_all.py BIN_FOLDER OUTPUT_FOLDER [--parts NAME,…] [--limit SECONDS]

BIN_FOLDER has unshard-train and bench_cuda_rates. Without --parts all of these run:

    rates                   products in each format, and copies
    kernels                 each kernel of a training beside those rates
    steps                   speed and memory of trainings
    test_cuda, test_cuda_fsdp, test_cuda_train
                            the library's tests
    bits                    DDP, ZeRO-2 and FSDP, also over NCCL, beside a single process
    CPU                     initial values and losses beside the CPU's
    memcheck, racecheck, synccheck, initcheck
                            these tools of compute-sanitizer
    PyTorch                 the trainings of steps there

A part that takes longer than the limit, 300 seconds, is ended and has failed, and the others go on.
If the folder is that of the preset cuda-host, this is a dry run on the stand-in: the same checks at
sizes that it can compute, whose speeds say nothing. The exit status is 1 if a check fails. What
cannot be done here is a row that says "skipped", and why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

from gpu_model import MODELS

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "tests" / "oracle" / "gpu_peer.py"
SUITES = ("test_cuda", "test_cuda_fsdp", "test_cuda_train")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
PARTS = ("rates", "kernels", "steps", *SUITES, "bits", "CPU", *TOOLS, "PyTorch")
_LIMIT = 300.0  # seconds of a part, also if a program hangs: the other rows must not be lost
_NEAR = 1e-5  # between losses of the CPU and of a device: tests/cuda_train/training_test.cpp


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
_CARD = Sizes(8192, 1 << 30, {name: list(MODELS[name].words) for name in ("124M", "1B")},
              ["--model.preset=small", "--training.local_batch_size=4",
               "--training.global_batch_size=16"], 20)


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
        except (RuntimeError, ValueError, LookupError, OSError,
                subprocess.SubprocessError) as error:
            self.add(what, " ".join(str(error).split()), False)

    def markdown(self) -> str:
        lines = ["| what | result | as it must be |", "|---|---|---|"]
        return "\n".join(lines + [f"| {' | '.join(row)} |" for row in self.rows]) + "\n"


@dataclass
class Programs:
    """What runs in a part, until its time is over."""
    folder: Path
    out: Path
    limit: float  # seconds of a part
    end: float = 0  # of this part, on the clock of monotonic()
    running: set[int] = field(default_factory=set)  # groups of processes
    starting: threading.Lock = field(default_factory=threading.Lock)  # one thread at a time
    is_starting: bool = False  # a program that is not in `running` yet
    asked_to_end: int = 0  # the signal's number; 0: none

    def begin_part(self) -> None:
        self.end = monotonic() + self.limit

    def started(self, command: list[str]) -> subprocess.Popen[str]:
        """In a session of its own, because compute-sanitizer starts a program too. A signal that
        comes meanwhile waits until it is known what to end."""
        with self.starting:
            self.is_starting = True  # from here on, end_all() leaves the end to this thread
            try:
                if self.asked_to_end == 0:
                    process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                               stderr=subprocess.PIPE, text=True,
                                               start_new_session=True)
                    self.running.add(process.pid)
            finally:
                self.is_starting = False
                if self.asked_to_end != 0:
                    self.end_all(self.asked_to_end, None)
            return process

    def finished(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        process = self.started(command)
        try:
            output, errors = process.communicate(timeout=self.end - monotonic())
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            kept = self.out / f"{Path(command[0]).name}, ended.txt"
            try:
                output, errors = process.communicate(timeout=10)
                kept.write_text(output + errors, encoding="utf-8")
                left = f"what it printed is in {kept.name}"
            except subprocess.TimeoutExpired:
                left = f"process {process.pid} does not end even so"
            raise RuntimeError(f"ended after the {self.limit:.0f} s that a part has, in "
                               f"{' '.join(command)}; {left}") from error
        finally:
            self.running.discard(process.pid)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def end_all(self, number: int, _: object) -> None:
        """The end of this script by a signal: nothing stays on the card."""
        self.asked_to_end = number
        if self.is_starting:
            return
        for group in tuple(self.running):
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(group, signal.SIGKILL)
        os._exit(128 + number)

    def output_of(self, name: str, *words: str) -> str:
        """What the program prints; an error of ours if it fails."""
        command = [str(self.folder / name), *words]
        done = self.finished(command)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    def train(self, *words: str, device: str = "cuda") -> tuple[dict, list[float]]:
        """The summary of a training, and the tokens per second of each step."""
        summary = self.out / "summary.json"
        text = self.output_of("unshard-train", f"--data.path={ROOT / 'README.md'}",
                              f"--device={device}", f"--summary={summary}", *words)
        speeds = [float(value) for value in re.findall(r"(\d+) tokens/s", text)]
        return json.loads(summary.read_text(encoding="utf-8"))["runs"][0], speeds


def way_to_run(architectures: str, capability: str) -> str:
    """How what CMake has compiled for these runs on a card of 9.0, say; "" if it cannot."""
    major, minor = (int(part) for part in capability.split("."))
    known = re.findall(r"(?<![^;])(\d+)(\d)(-real|-virtual)?(?![^;])", architectures)
    code = [(int(of), int(level)) for of, level, kind in known if kind != "-virtual"]
    ptx = [(int(of), int(level)) for of, level, kind in known if kind != "-real"]
    if any(of == major and level <= minor for of, level in code):
        return "machine code"
    return "PTX" if any(each <= (major, minor) for each in ptx) else ""


def machine(table: Table, programs: Programs, is_dry: bool) -> int:
    """What computes, its driver, and whether the programs are compiled for it; how many cards."""
    if is_dry:
        table.add("card", "none: this is a dry run on the stand-in, whose speeds say nothing")
        return 0
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap",
             "--format=csv,noheader"]
    answer = programs.finished(query)
    answer.check_returncode()
    cards = answer.stdout.strip().splitlines()
    for card in cards:
        table.add("card", card)

    def judge(capability: str) -> None:
        cache = (programs.folder.parent / "CMakeCache.txt").read_text(encoding="utf-8")
        compiled = re.findall(r"(?m)^CMAKE_CUDA_ARCHITECTURES:\w+=(.*)$", cache)[0]
        way = way_to_run(compiled, capability)
        table.add(f"compiled for compute capability {capability}",
                  f"{way or 'nothing that it runs'}, of {compiled.replace(';', ', ')}", way != "")

    for capability in sorted({card.split(", ")[-1] for card in cards}):
        table.attempt("compiled for the card", partial(judge, capability))
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
        for kernel in json.loads(programs.output_of("bench_cuda_rates", "kernels", *words)):
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
        for strategy, ranks, by in (("ddp", 2, "canonical"), ("zero2", 2, "canonical"),
                                    ("fsdp", 2, "canonical"), ("fsdp", 4, "canonical"),
                                    ("fsdp", 1, "nccl")):
            run, _ = programs.train(*words, f"--parallel.strategy={strategy}",
                                    f"--parallel.ranks={ranks}",
                                    f"--parallel.device_collectives={by}")
            same = (run["param_sha256"], run["losses"]) == (alone["param_sha256"], alone["losses"])
            placed = f"{ranks} rank{'s' if ranks > 1 else ' over NCCL'}"
            table.add(f"{name}: {strategy} on {placed} has the bits of a single process",
                      f"last loss {run['losses'][-1]:.4f}", same)


def beside_cpu(table: Table, programs: Programs, sizes: Sizes) -> None:
    """Initial values have the CPU's bits. Products have not, so losses of float32 are near."""
    # At a learning rate of 0 every value stays what it was before the step.
    words = [*sizes.bits, "--training.steps=1", "--optimizer.lr=0"]
    expected = programs.train(*words, device="cpu")[0]["param_sha256"]
    for what, placed in (("a single process", []),
                         ("FSDP on 2 ranks", ["--strategy=fsdp", "--ranks=2"])):
        found = programs.train(*words, *placed)[0]["param_sha256"]
        table.add(f"initial values of {what} have the CPU's bits", found[:16], found == expected)
    words = [*_DRY.bits, f"--training.steps={_DRY.steps}"]
    losses = [programs.train(*words, device=device)[0]["losses"] for device in ("cuda", "cpu")]
    apart = max(abs(ours - cpu) for ours, cpu in zip(*losses, strict=True))
    table.add(f"losses of nano in float32 are within {_NEAR:g} of the CPU's",
              f"at most {apart:.2g} apart in {len(losses[0])} steps", apart <= _NEAR)


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


def suite(table: Table, programs: Programs, cards: int, name: str) -> None:
    """The library's tests, on the card."""
    if cards == 0 or not (programs.folder / name).is_file():
        table.add(f"{name} on a card", "skipped: make test-cuda runs it on the stand-in"
                  if cards == 0 else "skipped: a student kit does not have it")
        return
    # One word: tests that have neither tag.
    left_out = "~[stand-in]" + ("~[cards]" if cards < 4 else "")
    # Each test is named when it ends, so that one that hangs can be found.
    done = programs.finished([str(programs.folder / name), left_out, "--durations", "yes"])
    (programs.out / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    last = done.stdout.strip().splitlines()[-1:]
    table.add(f"{name} on a card", "".join(last), done.returncode == 0)


def sanitized(tool: str) -> dict[str, list[str]]:
    """By name: the runs that this tool can judge."""
    training = ["unshard-train", f"--data.path={ROOT / 'README.md'}", "--device=cuda", *_NANO,
                "--training.global_batch_size=4", "--training.steps=2", "--strategy=fsdp",
                "--ranks=2"]
    runs = {"a training in float32": training}
    tests = ["test_cuda", "--warn", "NoTests", "--filenames-as-tags"]
    if tool == "initcheck":
        # In bfloat16 it does not see what cuBLASLt's products store, and reports every read of it
        # (docs/gpu.md). So it gets no such training, and only tests of kernels in which it was
        # silent on a card, because they multiply nothing.
        files = ("attention", "rms_norm", "exact_norm", "embedding", "cross_entropy")
        some = ",".join(f"[#{file}_test]~[stand-in]~[cards]" for file in files)
        return {**runs, "kernels without products": [*tests, some]}
    return {**runs,
            "a training in bfloat16": [*training, "--training.mixed_precision_param=bfloat16"],
            "kernels": [*tests, "[kernels]~[stand-in]~[cards]"]}


def sanitizer(table: Table, programs: Programs, cards: int, tool: str) -> None:
    """compute-sanitizer over short trainings of several ranks, and over the kernels' tests."""
    program = shutil.which("compute-sanitizer")
    why = ("there is no card" if cards == 0 else "" if program else "it is not installed")
    if why:
        table.add(f"compute-sanitizer, {tool}", f"skipped: {why}")
        return
    check = [str(program), "--tool", tool, "--error-exitcode", "9"]
    runs = {}
    for what, (name, *words) in sanitized(tool).items():
        if (programs.folder / name).is_file():
            runs[what] = [*check, str(programs.folder / name), *words]
        else:
            table.add(f"compute-sanitizer, {tool}, {what}", f"skipped: there is no {name}")
    with ThreadPoolExecutor(len(runs)) as pool:
        results = {what: pool.submit(programs.finished, words) for what, words in runs.items()}

    def judge(what: str) -> None:
        done = results[what].result()
        said = done.stdout + done.stderr
        (programs.out / f"{tool}, {what}.txt").write_text(said, encoding="utf-8")
        table.add(f"compute-sanitizer, {tool}, {what}",
                  "".join(re.findall(r".*(?:ERROR|RACECHECK) SUMMARY:.*", said)[-1:]),
                  done.returncode == 0)

    for what in runs:
        table.attempt(f"compute-sanitizer, {tool}, {what}", partial(judge, what))


def peer(table: Table, programs: Programs, sizes: Sizes, speeds: dict[str, float]) -> None:
    """PyTorch on the same shapes, where it is installed and has the card."""
    for model in sizes.models:
        done = programs.finished([sys.executable, str(PEER), model])
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
    words.add_argument("--limit", type=float, default=_LIMIT)
    asked = words.parse_args()
    wanted = asked.parts.split(",") if asked.parts else list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        words.error(f"there is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if {"kernels", "steps"} & set(wanted):
        wanted.append("rates")  # they are compared with them
    programs = Programs(asked.bin_folder.resolve(), asked.output_folder.resolve(), asked.limit)
    programs.out.mkdir(parents=True, exist_ok=True)
    is_dry = programs.folder.parent.name == "cuda-host"
    sizes = _DRY if is_dry else _CARD
    table = Table()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, programs.end_all)
    programs.begin_part()
    cards = machine(table, programs, is_dry)
    found: dict[str, float] = {}
    speeds: dict[str, float] = {}
    parts: dict[str, Callable[[], None]] = {
        "rates": lambda: found.update(rates(table, programs, sizes)),
        "kernels": lambda: kernels(table, programs, sizes, found),
        "steps": lambda: speeds.update(steps(table, programs, sizes, found["bfloat16"])),
        "bits": lambda: bits(table, programs, sizes),
        "CPU": lambda: beside_cpu(table, programs, sizes),
        "PyTorch": lambda: peer(table, programs, sizes, speeds),
    }
    for name in SUITES:
        parts[name] = partial(suite, table, programs, cards, name)
    for name in TOOLS:
        parts[name] = partial(sanitizer, table, programs, cards, name)
    for name in PARTS:
        if name not in wanted:
            continue
        programs.begin_part()
        table.attempt(name, parts[name])
        (programs.out / "table.md").write_text(table.markdown(), encoding="utf-8")
    print(f"Written: {programs.out / 'table.md'}")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
