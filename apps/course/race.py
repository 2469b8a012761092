"""The race (tasks/race): a policy plans each track in a process of its own, and the judge runs the plan.

make race calls course.py race. Results are kept in build/race, for the difference to the last try.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import builder
import manifest
import terminal

CPU = 20  # seconds of a policy, per track
MEMORY = 4 << 30  # bytes of its address space
WALL = 600  # seconds by the clock, for one that waits: the processors may have other work
_MOST_PRINTED = 40  # lines of a policy that are shown
# What policy_main.cpp and the jail say last, perhaps behind what the policy printed.
_REASON = re.compile(r"(?s)(.*)(race_policy: |jail: killed: )([^\n]*)\s*")
PROGRAMS = manifest.ROOT / "build" / "release" / "bin"
FOLDER = manifest.ROOT / "build" / "race"
JUDGE = "race_judge"
POLICY = "race_policy"  # of tasks/race/policy.cpp
_MIB = 1 << 20
_NAME = re.compile(r"(?m)^// Your name on the board, a pseudonym: *(.*)$")
_NO_NAME = "anonymous"


class RaceError(Exception):
    """The race cannot be run: why, and what to do."""


@dataclass(frozen=True)
class Plan:
    """What came of a policy's process on one track."""

    text: str = ""
    problem: str = ""  # why it ended without a plan
    said: str = ""  # what it printed besides


def pseudonym(policy: bytes) -> str:
    """The name that a policy gives itself; of one without, nothing that leads to its author."""
    found = _NAME.search(policy.decode("utf-8", "replace"))
    name = "".join(c for c in found[1].strip() if c.isprintable())[:24] if found else ""
    if name and name != _NO_NAME:
        return name
    return f"{_NO_NAME}-{hashlib.sha256(policy).hexdigest()[:6]}"


def plan_here(program: Path, track: int, *options: str) -> Plan:
    """Runs a policy of one's own, with limits."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    try:
        done = subprocess.run([str(program), "--track", str(track), *options], capture_output=True,
                              text=True, errors="replace", check=False, timeout=WALL,
                              stdin=subprocess.DEVNULL, preexec_fn=limit)
    except subprocess.TimeoutExpired as error:
        said = error.stderr or b""  # bytes, whatever `text` says
        return Plan("", f"the policy was not done after {WALL} s by the clock: does it wait for "
                    "something?", said if isinstance(said, str) else said.decode("utf-8", "replace"))
    made = plan_of(done.returncode, done.stdout, done.stderr)
    if made.problem.startswith("the policy crashed"):
        shown = program.relative_to(manifest.ROOT) if program.is_relative_to(manifest.ROOT) else program
        return Plan("", f"{made.problem}; gdb --args {shown} --track {track} shows where", made.said)
    return made


def plan_of(code: int, printed: str, said: str) -> Plan:
    """What a policy handed over that ended with this exit code."""
    if code == 0:
        return Plan(printed, "", said)
    reason = f"the policy ended with exit code {code}"
    if code == -signal.SIGXCPU:
        reason = f"the policy used up its {CPU} s of processor time"
    elif code == -signal.SIGKILL:
        reason = (f"the policy was killed: its {CPU} s of processor time are over, or the machine has "
                  "no memory left")
    elif code < 0:
        reason = f"the policy crashed ({signal.Signals(-code).name})"
    elif (found := _REASON.fullmatch(said)) is not None:
        said, speaker, reason = found.groups()
        if speaker.startswith("jail"):
            reason = f"the policy {reason}"
    return Plan(printed, reason[:300], said)


def judge(program: Path, track: int, plan: Plan, pictures: Path | None = None) -> dict:
    """The verdict on a plan: what race_judge prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write("" if plan.problem else plan.text)
        file.flush()
        words = [str(program), "--track", str(track), "--plan", file.name]
        if pictures is not None:
            words += ["--pictures", str(pictures)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RaceError(f"the judge failed on track {track}: {done.stderr.strip()}")
    verdict = json.loads(done.stdout)
    verdict["refused"] = plan.problem or verdict["refused"]
    return verdict


def tracks(program: Path) -> list[dict]:
    done = subprocess.run([str(program), "--list"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run(judging: Path, numbers: list[int], plan: Callable[[int], Plan], jobs: int,
        pictures: Path | None = None) -> Iterator[tuple[int, Plan, dict]]:
    """Plans and judges tracks side by side. @returns each with its plan and its verdict, in order"""
    def one(track: int) -> tuple[int, Plan, dict]:
        made = plan(track)
        return track, made, judge(judging, track, made, pictures)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(one, numbers)


def score(verdicts: dict[int, dict], count: int) -> float | None:
    """The geometric mean of bound / step; none unless all tracks have a time."""
    shares = [each["bound_ps"] / each["step_ps"] for each in verdicts.values() if "step_ps" in each]
    if len(shares) < count:
        return None
    return math.exp(sum(map(math.log, shares)) / count)


def _ms(ps: int) -> str:
    return f"{ps / 1e9:.3f} ms"


def change(now: int, before: int | None, best: int | None = None) -> str:
    """A step beside those of the last try and of the best one."""
    if before is None:
        return "the first time"
    if now == before:
        words = "as the last time"
    else:
        share = abs(before - now) / before
        percent = "less than 0.01 %" if share < 0.0001 else f"{100 * share:.2f} %"
        words = f"{percent} {'shorter' if now < before else 'longer'} than the last time"
    return words if best is None or now <= best else f"{words}; your best was {_ms(best)}"


def table(track: dict, verdict: dict, whose: str, before: int | None = None,
          best: int | None = None, is_tried: bool = True) -> list[str]:
    """One track, one line per time. A plan that is not `is_tried` has no last time."""
    bound = verdict["bound_ps"]

    def line(name: str, step: int | None, nbytes: int | None, note: str) -> str:
        time = "no time" if step is None else _ms(step)
        share = "" if step is None else f"{bound / step:.3f}"
        memory = "" if nbytes is None else f"{nbytes / _MIB:.1f} MiB"
        return f"  {name:<14} {time:>12} {share:>11} {memory:>13}  {note}".rstrip()

    computes = verdict["bound_computation_ps"] >= verdict["bound_channel_ps"]
    rows = [f"Track {track['track']}, {track['name']}. {track['about']}",
            f"  {'':<14} {'step':>12} {'bound/step':>11} {'peak':>13}"]
    step = verdict.get("step_ps")
    rows.append(line(whose, step, verdict.get("peak_bytes"),
                     "" if step is None or not is_tried else change(step, before, best)))
    rows.append(line("plain FSDP", verdict["fsdp_ps"], verdict["fsdp_bytes"], ""))
    if "planner_ps" in verdict:
        rows.append(line("unshard-plan", verdict["planner_ps"], None, verdict["planner"]))
    rows.append(line("the bound", bound, None, "the kernels" if computes else "the channel"))
    rows.append(f"  {'the memory':<14} {'':>12} {'':>11} {verdict['memory_bytes'] / _MIB:>9.1f} MiB")
    if verdict["refused"]:
        rows.append(f"  No time: {verdict['refused']}")
    return rows


def page(title: str, blocks: list[tuple[list[str], list[Path]]], last: str) -> str:
    """Tables and pictures, as one file that needs no other."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8>",
             f"<title>{html.escape(title)}</title>",
             "<style>body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; padding: 0 1em; "
             "max-width: 75em; } svg { max-width: 100%; height: auto; }</style>",
             f"<h1>{html.escape(title)}</h1>"]
    for lines, pictures in blocks:
        parts.append(f"<pre>{html.escape(chr(10).join(lines))}</pre>")
        parts += [path.read_text(encoding="utf-8") for path in pictures if path.is_file()]
    return "\n".join([*parts, f"<p>{html.escape(last)}</p></html>\n"])


def _earlier(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The steps of the last try and of the best one, by track."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return ({str(key): int(step) for key, step in kept["last"].items()},
                {str(key): int(step) for key, step in kept["best"].items()})
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return {}, {}


def printed(said: str) -> list[str]:
    """What a policy printed, as a table shows it."""
    lines = said.rstrip().splitlines()
    more = len(lines) - _MOST_PRINTED
    return [*(["  It printed:"] if lines else []),
            *("    " + line for line in lines[:_MOST_PRINTED]),
            *([f"    … and {more} lines more"] if more > 0 else [])]


def _policies(impl: str) -> list[str]:
    """The programs that plan."""
    if impl != "solution":
        return [POLICY]
    names = [f"race_{path.stem}" for path in
             sorted((manifest.ROOT / "solutions" / "race").glob("*.cpp"))]
    if not names:
        raise RaceError("IMPL=solution: this kit has no policies but yours")
    return names


def race(track: int | None, impl: str, jobs: int) -> int:
    """make race. 0: each plan that was asked for has a time."""
    names = _policies(impl)
    tools = builder.Builder(build=PROGRAMS.parent, jobs=jobs)
    tools.make(JUDGE, *names, what="the engine and the judge, optimized, once: up to a quarter of an "
               f"hour of processor time{tools.shared}")
    course, asked = _asked(PROGRAMS / JUDGE, track)
    return max(_race(name, asked, len(course), jobs) for name in names)


def estimate(track: int | None, impl: str, jobs: int) -> int:
    """make race ESTIMATE=yes: on paper, which needs no task. 0: each plan that was asked for would
    have a time."""
    names = _policies(impl)
    builder.Builder(build=PROGRAMS.parent, jobs=jobs).make(
        *names, what="the race on paper, optimized, once: some minutes of processor time")
    course, asked = _asked(PROGRAMS / names[0], track)
    return max(_estimate(name, asked, len(course), jobs) for name in names)


def _estimate(name: str, asked: list[dict], count: int, jobs: int) -> int:
    whose = "your estimate" if name == POLICY else name.removeprefix("race_")
    verdicts: dict[int, dict] = {}
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        plans = pool.map(lambda each: plan_here(PROGRAMS / name, each["track"], "--estimate"), asked)
        for each, plan in zip(asked, plans):
            lines = [f"Track {each['track']}, {each['name']}. {each['about']}",
                     f"  No time: {plan.problem}"]
            if not plan.problem:
                verdict = json.loads(plan.text)
                verdicts[each["track"]] = verdict
                lines = table(each, verdict, whose, is_tried=False)
            terminal.say(*lines, *printed(plan.said), "")
    reached = score(verdicts, count)
    said = (f"Score by these estimates: {reached:.4f}" if reached is not None else
            "The score is that of all tracks" if len(asked) < count else
            "No score: a track has no time")
    terminal.say(f"{said}. What counts is make race, which runs the plans with tasks 1 to 7.")
    return 0 if sum("step_ps" in each for each in verdicts.values()) == len(asked) else 1


def _asked(program: Path, track: int | None) -> tuple[list[dict], list[dict]]:
    """All tracks, as `program` lists them, and those that are asked for."""
    course = tracks(program)
    if track is not None and track not in [each["track"] for each in course]:
        raise RaceError(f"TRACK={track}: the tracks are 1 to {len(course)}")
    return course, [each for each in course if track in (None, each["track"])]


def _race(name: str, asked: list[dict], count: int, jobs: int) -> int:
    short = name.removeprefix("race_")
    whose = "your policy" if name == POLICY else short
    pictures = FOLDER / short
    pictures.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / f"{short}.json"
    last, best = _earlier(kept)
    verdicts, blocks = {}, []
    by_number = {each["track"]: each for each in asked}
    for number, plan, verdict in run(PROGRAMS / JUDGE, list(by_number),
                                     lambda track: plan_here(PROGRAMS / name, track), jobs, pictures):
        verdicts[number] = verdict
        key = str(number)
        lines = table(by_number[number], verdict, whose, last.get(key), best.get(key))
        lines += printed(plan.said)
        terminal.say(*lines, "")
        drawn = [pictures / f"track{number}_{what}.svg" for what in ("plan", "fsdp")]
        blocks.append((lines, drawn if "step_ps" in verdict else []))
        if "step_ps" in verdict:
            last[key] = verdict["step_ps"]
            best[key] = min(best.get(key, last[key]), last[key])
            kept.write_text(json.dumps({"last": last, "best": best}) + "\n", encoding="utf-8")
    reached = score(verdicts, count)
    said = (f"Score of {whose}: {reached:.4f}" if reached is not None else
            "The score is that of all tracks: make race" if len(asked) < count else
            "No score: a track has no time")
    shown = FOLDER / f"{short}.html"
    shown.write_text(page(f"The race: {whose}", blocks, said), encoding="utf-8")
    terminal.say(f"{said}. Pictures of the steps: {shown.relative_to(manifest.ROOT)}")
    return 0 if all("step_ps" in each for each in verdicts.values()) else 1
