#!/usr/bin/env python3
"""Compares the page to play with (docs/playground/) with unshard-estimate, in headless Chromium.

Checked: on a grid of settings, the page's module of WebAssembly finds the bytes of every category at
the peak, and the picoseconds of every part of a step, that unshard-estimate prints. Each control of
the page changes the command shown, and that command prints the numbers shown. (What it draws is
page_test.cpp's matter.) Exit code 77 (skipped) when no Chromium, or no clang 19 with its libraries
for WebAssembly, is installed.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "report"))

from chromium import SKIPPED, Browser, Failure, expect, run  # noqa: E402

PRECISIONS = {"float32": "", "mixed": "--training.mixed_precision_param bfloat16",
              "bfloat16": "--training.mixed_precision_param bfloat16 "
                          "--training.mixed_precision_reduce bfloat16"}
# Traffic decides the time of most kernels on the first one, and arithmetic on the second.
MACHINES = ({"link": 50, "latency": 5, "flops": 400, "hbm": 2, "bus": 25},
            {"link": 3, "latency": 20, "flops": 1, "hbm": 8, "bus": 60})

# Each script acts on the page, and returns what it saw.
EVALUATE = """
return SETTINGS.map((setting) => {
  const { peak, step, spent, channels } = estimate(setting);
  return { step, bytes: peak.total, kinds: peak, spent, channels };
});"""
MOVE = """
const text = (id) => document.getElementById(id).textContent;
const see = (control) => ({ control, address: location.hash, command: text('command'),
  peak: text('peak-exact'), step: text('step-exact'),
  rows: Object.fromEntries([...document.querySelectorAll('td[data-name]')].map((cell) =>
    [`${cell.closest('table').id} ${cell.dataset.name}`, Number(cell.dataset.exact)])) });
const seen = [see('')];
for (const input of document.querySelectorAll('#controls input, #controls select')) {
  const isMenu = input.tagName === 'SELECT';
  const values = isMenu ? [...input.options].map((option) => option.value)
    : Array.from({ length: Number(input.max) + 1 }, (_, i) => String(i));
  const back = input.id === 'strategy' ? [input.value] : [];  // to FSDP, which has all controls
  for (const value of [...[...values].reverse().slice(0, 3), ...back]) {
    if (value === input.value || input.disabled) continue;
    input.value = value;
    input.dispatchEvent(new Event(isMenu ? 'change' : 'input'));
    seen.push(see(input.id));
  }
}
document.querySelector('button[type=reset]').click();
seen.push(see('reset'));
return seen;"""

# Words that every object of JavaScript has, and no control offers.
ADDRESS = """
const seen = [];
const keys = [...document.querySelectorAll('#controls select')].map((each) => each.id);
for (const word of ['', '__proto__', 'constructor', 'toString', 'null']) {
  for (const key of keys) {
    history.replaceState(null, '', `#${key}=${word}`);
    readAddress();
    seen.push({ address: location.hash, step: document.getElementById('step-exact').textContent });
  }
}
return seen;"""


def numbers_of(point: dict) -> dict:
    """The numbers of a point of unshard-estimate's JSON, by name."""
    times = {name: n for name, n in point["time_ps"].items() if n != 0}
    found = {"step": point["step_ps"], "bytes": point["device_bytes"],
             "latency": point["latency_ps"], "transfer": point["transfer_ps"]}
    return found | {f"bytes of {name}": n for name, n in point["device_kinds"].items()} \
        | {f"time of {name}": n for name, n in times.items()}


def numbers_found(found: dict) -> dict:
    """The same numbers, as the page's script found them."""
    kinds = {name: n for name, n in found["kinds"].items() if name not in ("total", "moment")}
    return {"step": found["step"], "bytes": found["bytes"], **found["channels"]} \
        | {f"bytes of {name}": n for name, n in kinds.items()} \
        | {f"time of {name}": n for name, n in found["spent"].items() if n != 0}


def arguments_of(setting: dict) -> str:
    """The keys of unshard-estimate for a setting, without what is swept."""
    strategy, offloaded = setting["strategy"], setting.get("offload", False)
    words = [f"--model.preset {setting['model']} --training.seq_len {setting['length']}",
             f"--parallel.strategy {strategy} {PRECISIONS[setting['precision']]}"]
    if strategy == "fsdp":
        words += [f"--parallel.reshard_after_forward {str(setting['reshard']).lower()}",
                  f"--parallel.prefetch_depth {setting['prefetch']}"]
    if offloaded:
        words.append(f"--parallel.offload_{'params' if strategy == 'fsdp' else 'optimizer'} true")
    if "checkpoint" in setting:
        mode = {"inside": "block"}.get(setting["checkpoint"], setting["checkpoint"])
        words.append(f"--training.activation_checkpoint {mode}")
    if "replicas" in setting:
        words.append(f"--parallel.data_parallel_replicate_degree {setting['replicas']} "
                     f"--parallel.ranks {setting['replicas']}")
    return " ".join(words)


def grid() -> Iterator[tuple[dict, dict, list[str]]]:
    """Settings, each with a machine and the ranges of W and B that are swept."""
    worlds = ["world=1..8,batch=1..2", "world=64,batch=1..2", "world=3,batch=1..2"]
    for model, length in (("tiny", 128), ("llama_124m", 256)):  # the second one has a tied head
        for precision, machine in product(PRECISIONS, MACHINES):
            common = {"model": model, "length": length, "precision": precision}
            sharded = {**common, "strategy": "fsdp", "reshard": True, "prefetch": 1}
            for reshard, prefetch in product((True, False), (0, 1, 2)):
                yield {**sharded, "reshard": reshard, "prefetch": prefetch}, machine, worlds
            yield {**sharded, "offload": True, "checkpoint": "operations"}, machine, worlds
            yield {**sharded, "replicas": 2}, machine, ["world=4..8,batch=1..2"]
            yield {**common, "strategy": "single"}, machine, ["batch=1..2"]
            for strategy in ("ddp", "zero1", "zero2"):
                yield {**common, "strategy": strategy}, machine, worlds
            yield {**common, "strategy": "zero1", "offload": True}, machine, worlds
            yield {**common, "strategy": "ddp", "checkpoint": "inside"}, machine, worlds
    # Every model of the page; of the smallest one, some ranks of 64 hold padding alone.
    for model, length in (("nano", 8), ("small", 64), ("llama_2b", 1024), ("llama2_7b", 4096),
                          ("llama3_8b", 512), ("llama2_13b", 1024), ("llama2_70b", 2048),
                          ("llama3_405b", 4096)):
        yield {"model": model, "length": length, "precision": "mixed", "strategy": "fsdp",
               "reshard": True, "prefetch": 1}, MACHINES[0], ["world=8..64"]
        yield {"model": model, "length": length, "precision": "mixed", "strategy": "zero2"}, \
            MACHINES[0], ["world=8"]


def machine_arguments(machine: dict) -> str:
    """The options of unshard-estimate for a machine."""
    return (f"--link {machine['link']}GB/s --latency {machine['latency']}us "
            f"--flops {machine['flops']}T --hbm {machine['hbm']}TB/s --bus {machine['bus']}GB/s")


def asked(setting: dict, machine: dict, point: dict) -> dict:
    """What the page's estimate() takes for a point of a sweep."""
    param, reduce = {"float32": ("none", "none"), "mixed": ("bfloat16", "float32"),
                     "bfloat16": ("bfloat16", "bfloat16")}[setting["precision"]]
    rates = {name: machine[name] * 1e9 for name in ("link", "bus")} \
        | {name: machine[name] * 1e12 for name in ("flops", "hbm")}
    return {name: value for name, value in setting.items() if name != "precision"} \
        | {name: round(rate) for name, rate in rates.items()} \
        | {"param": param, "reduce": reduce, "latency": machine["latency"] * 10**6,
           "world": point["world"], "batch": point.get("batch", 1)}


class Estimator:
    """Runs unshard-estimate."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def points(self, arguments: list[str]) -> list[dict]:
        """The points of a sweep."""
        done = subprocess.run([self.program, *arguments, "--format", "json"], check=False,
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise Failure(f"unshard-estimate {shlex.join(arguments)}\nended with "
                          f"{done.returncode}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)["points"]

    def grid(self) -> list[tuple[dict, dict]]:
        """Every setting of the grid as the page takes it, and what unshard-estimate prints."""
        found = []
        for setting, machine, sweeps in grid():
            for sweep in sweeps:
                batch = [] if "batch" in sweep else ["--training.local_batch_size", "1"]
                arguments = [*shlex.split(arguments_of(setting)),
                             *shlex.split(machine_arguments(machine)), *batch, "--sweep", sweep]
                found += [(asked(setting, machine, point), point)
                          for point in self.points(arguments)]
        return found


def open_page(browser: Browser, address: str, size: tuple[int, int] = (1400, 1150)) -> None:
    """Opens the page, and waits until it has drawn itself."""
    browser.open(address, size)
    error = browser.run("ready.then(() => document.body.dataset.error ?? '')")
    if error:
        raise Failure(f"the page ended with an error: {error}")


def seen(browser: Browser, script: str) -> list[dict]:
    """What a script returns that runs on the page."""
    return browser.run(f"(() => {{{script}}})()")


def difference(expected: dict, actual: dict) -> str:
    """The first number that differs, as a sentence; "" if none does."""
    for name in expected | actual:
        if expected.get(name, 0) != actual.get(name, 0):
            return (f"{name}: the page has {actual.get(name, 0)}, unshard-estimate "
                    f"{expected.get(name, 0)}")
    return ""


def check_grid(browser: Browser, estimator: Estimator) -> None:
    """The page's script and unshard-estimate on every setting."""
    points = estimator.grid()
    settings = json.dumps([setting for setting, _ in points])
    found = seen(browser, f"const SETTINGS = {settings};{EVALUATE}")
    wrong = []
    for (setting, point), actual in zip(points, found, strict=True):
        message = difference(numbers_of(point), numbers_found(actual))
        if message:
            wrong.append(f"{setting}\n    {message}")
    if wrong:
        raise Failure(f"{len(wrong)} of {len(points)} settings differ, the first ones:\n  "
                      + "\n  ".join(wrong[:3]))
    print(f"  {len(points)} settings agree in every byte and picosecond")


def check_controls(browser: Browser, estimator: Estimator) -> None:
    """Each control changes the command, and the numbers shown are those the command prints."""
    shown = seen(browser, MOVE)
    for each in shown:
        program, *arguments = shlex.split(each["command"])
        expect(program.endswith("/unshard-estimate") and arguments[-2:] == ["--format", "json"],
               f"{each['control'] or 'the page'}: {each['address'] or '(no address)'}")
        [point] = estimator.points(arguments[:-2])
        numbers = {f"memory {name}": n for name, n in point["device_kinds"].items() if n} \
            | {f"time {name}": n for name, n in point["time_ps"].items() if n}
        message = difference(numbers, each["rows"])
        if message:
            raise Failure(f"after {each['control']}: {each['command']}\n  {message}")
        if (each["peak"], each["step"]) != (f"{point['device_bytes']:,} B",
                                            f"{point['step_ps']:,} ps"):
            raise Failure(f"after {each['control']}: shown are {each['peak']} and {each['step']}, "
                          f"but {each['command']}\n  prints {point}")
    controls = {each["control"] for each in shown} - {"", "reset"}
    expect(len(controls) == 16, f"all 16 controls were moved: {', '.join(sorted(controls))}")
    commands = [each["command"] for each in shown]
    expect(all(before != after for before, after in pairwise(commands)),
           "each move changes the command")
    expect(commands[0] == commands[-1], "reset shows what the page began with")


def check_addresses(browser: Browser) -> None:
    """A value that no control offers is ignored."""
    shown = seen(browser, ADDRESS)
    wrong = [each["address"] for each in shown if each["step"] != shown[0]["step"]]
    expect(not wrong, f"{len(shown)} addresses with words that mean nothing: {wrong or 'ignored'}")


def check(program: Path, browser: Browser, out: Path) -> None:
    """Everything, in a folder."""
    folder = out / "playground"
    subprocess.run(["sh", "common/scripts/playground.sh", folder], cwd=ROOT, check=True)
    if not (folder / "engine.js").is_file():
        raise SystemExit(SKIPPED)
    page = (folder / "index.html").as_uri()
    estimator = Estimator(program)
    open_page(browser, page)
    print("the grid:")
    check_grid(browser, estimator)
    print("the controls:")
    check_controls(browser, estimator)
    print("the address:")
    check_addresses(browser)
    print("pictures:")
    open_page(browser, page)
    browser.shoot(folder / "wide.png")
    open_page(browser, f"{page}#model=tiny&world=4", (420, 2200))
    browser.shoot(folder / "narrow.png")
    expect(True, "wide and narrow")


if __name__ == "__main__":
    sys.exit(run(check, __doc__, "unshard-estimate"))
