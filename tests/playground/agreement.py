#!/usr/bin/env python3
"""Compares the page to play with (docs/playground/) with unshard-estimate, in headless Chromium.

Checked: on a grid of settings, the page's module of WebAssembly finds the bytes of every category at
the peak, and the picoseconds of every part of a step, that unshard-estimate prints. Each control of
the page changes the command shown, and that command prints the numbers shown. (What it draws is
page_test.cpp's matter.) Exit code 77 (skipped) when no Chromium, or no clang 19 with its libraries
for WebAssembly, is installed.
"""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "report"))

from browser import SKIPPED, Browser, Failure, expect, run  # noqa: E402

PRECISIONS = {"float32": "", "mixed": "--training.mixed_precision_param bfloat16",
              "bfloat16": "--training.mixed_precision_param bfloat16 "
                          "--training.mixed_precision_reduce bfloat16"}
# Traffic decides the time of most kernels on the first one, and arithmetic on the second.
MACHINES = ({"link": 50, "latency": 5, "flops": 400, "hbm": 2, "bus": 25},
            {"link": 3, "latency": 20, "flops": 1, "hbm": 8, "bus": 60})

# Each script acts on a copy of the page, and leaves what it saw in an element of its own.
REPORT = """
const report = (seen) => {
  const element = document.createElement('pre');
  element.id = 'seen';
  element.textContent = JSON.stringify(seen);
  document.body.append(element);
};"""
EVALUATE = """
report(SETTINGS.map((setting) => {
  const { peak, step, spent, channels } = estimate(setting);
  return { step, bytes: peak.total, kinds: peak, spent, channels };
}));"""
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
report(seen);"""

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
report(seen);"""


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


def seen(browser: Browser, folder: Path, script: str) -> list[dict]:
    """What a script leaves when it runs at the end of a copy of the page."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    copy = folder / "acted.html"
    act = f"<script>ready.then(() => {{{REPORT}{script}}});</script></body>"
    copy.write_text(page.replace("</body>", act), encoding="utf-8")
    dump = browser.run("--dump-dom", copy.as_uri())
    found = re.search(r'<pre id="seen">(.*?)</pre>', dump, re.S)
    if "data-error" in dump or found is None:
        raise Failure(f"the page ended with an error: {re.findall('data-error=[^>]*', dump)}")
    return json.loads(html.unescape(found[1]))


def difference(expected: dict, actual: dict) -> str:
    """The first number that differs, as a sentence; "" if none does."""
    for name in expected | actual:
        if expected.get(name, 0) != actual.get(name, 0):
            return (f"{name}: the page has {actual.get(name, 0)}, unshard-estimate "
                    f"{expected.get(name, 0)}")
    return ""


def check_grid(browser: Browser, folder: Path, estimator: Estimator) -> None:
    """The page's script and unshard-estimate on every setting."""
    points = estimator.grid()
    settings = json.dumps([setting for setting, _ in points])
    found = seen(browser, folder, f"const SETTINGS = {settings};{EVALUATE}")
    wrong = []
    for (setting, point), actual in zip(points, found, strict=True):
        message = difference(numbers_of(point), numbers_found(actual))
        if message:
            wrong.append(f"{setting}\n    {message}")
    if wrong:
        raise Failure(f"{len(wrong)} of {len(points)} settings differ, the first ones:\n  "
                      + "\n  ".join(wrong[:3]))
    print(f"  {len(points)} settings agree in every byte and picosecond")


def check_controls(browser: Browser, folder: Path, estimator: Estimator) -> None:
    """Each control changes the command, and the numbers shown are those the command prints."""
    shown = seen(browser, folder, MOVE)
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


def check_addresses(browser: Browser, folder: Path) -> None:
    """A value that no control offers is ignored."""
    shown = seen(browser, folder, ADDRESS)
    wrong = [each["address"] for each in shown if each["step"] != shown[0]["step"]]
    expect(not wrong, f"{len(shown)} addresses with words that mean nothing: {wrong or 'ignored'}")


def check_pictures(browser: Browser, folder: Path) -> None:
    """The page draws itself, wide and narrow."""
    address = (folder / "index.html").as_uri()
    browser.shoot(address, folder / "wide.png")
    browser.shoot(f"{address}#model=tiny&world=4", folder / "narrow.png", "420,2200")
    expect(True, "pictures, wide and narrow")


def check(program: Path, browser_program: str, out: Path) -> None:
    """Everything, in a folder."""
    folder = out / "playground"
    subprocess.run(["sh", "common/scripts/playground.sh", folder], cwd=ROOT, check=True)
    if not (folder / "engine.js").is_file():
        raise SystemExit(SKIPPED)
    browser = Browser(browser_program, out / "profile")
    estimator = Estimator(program)
    print("the grid:")
    check_grid(browser, folder, estimator)
    print("the controls:")
    check_controls(browser, folder, estimator)
    print("the address:")
    check_addresses(browser, folder)
    check_pictures(browser, folder)


if __name__ == "__main__":
    sys.exit(run(check, __doc__, "unshard-estimate"))
