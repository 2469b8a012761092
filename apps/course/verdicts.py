"""Runs a judge and turns its Catch2 XML (version 2 or 3) into cases, steps and points.

A judge is trusted, the runner it watches is not. Still nothing passes by accident: what counts as
executed is checked against the judge's own list of cases, and a step without a case earns nothing.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import manifest

PUBLIC = "~[hidden]"
HIDDEN = "[hidden]"
_TAG = re.compile(r"\[([^\]]+)\]")
_STEP = re.compile(r"[1-9]\.[1-9][0-9]?")
_TODO = re.compile(r"\bTODO ([1-9]\.[1-9][0-9]?): ")
_ANY_STEP = "make debug-n.m"  # as a judge writes it, which does not know the step of its case
_NOTHING_YET = b""
_NOT_BEGUN = re.compile(r"not run, because \d+ runs before it did not end")  # tests/graded/run.cpp
_NO_MESSAGE = "the case asserted nothing, or failed without saying why"


class JudgeError(Exception):
    """The judge itself could not be run, or said nothing that can be read."""


@dataclass
class Case:
    """One case of a judge. Not passed unless it was executed to its end and nothing failed."""

    name: str
    steps: tuple[str, ...]
    hidden: bool
    passed: bool = False
    executed: bool = False
    messages: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def message(self) -> str:
        return self.messages[0] if self.messages else ("" if self.passed else _NO_MESSAGE)

    @property
    def todos(self) -> list[str]:
        """The unsolved steps that the case ran into."""
        return list(dict.fromkeys(m for text in self.messages for m in _TODO.findall(text)))


    @property
    def is_left_out(self) -> bool:
        """Whether it was not begun, because too many runs before it did not end."""
        return bool(_NOT_BEGUN.search(self.message))


@dataclass
class Verdict:
    """A step: passed, failed, blocked (by `blocked_by`), todo (not begun), or not run. `waits`: the
    step that blocks it is not written yet."""

    step: manifest.Step
    state: str
    blocked_by: str
    cases: list[Case]
    public: int
    hidden: int
    waits: bool = False

    def first_failure(self) -> Case | None:
        """The step's first failing case, public ones first."""
        failing = [case for case in self.cases if not case.passed]
        return min(failing, key=lambda case: case.hidden, default=None)


def run_judge(judge: Path, runner: Path, spec: str = "", *, env: dict[str, str] | None = None,
              timeout: float | None = None, abort: bool = False,
              on_case: Callable[[Case], None] | None = None,
              on_wait: Callable[[str], None] | None = None, patience: float = 10.0) -> list[Case]:
    """The cases of `judge` that match `spec`, judged on `runner`; `on_case` is called with each at
    once, and `on_wait` with the name of a case that has run for `patience` seconds.

    Listed cases that were not executed (the judge ended early, `timeout` seconds were over, or
    `abort` ended it at the first failure) come last, as not passed.
    """
    listed = list_cases(judge, spec)
    if not listed:
        raise JudgeError(f"{judge}: no case matches '{spec}'")
    full_env = {**os.environ, **(env or {}), "FSDP_RUNNER": str(runner)}
    command = [str(judge), "-r", "xml", "-d", "yes", "-w", "NoAssertions",
               *(["--abort"] if abort else []), *([spec] if spec else [])]
    parser = CaseParser()
    end = None if timeout is None else time.monotonic() + timeout
    with tempfile.TemporaryFile() as errors, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            env=full_env) as process:
        in_time = True
        try:
            for piece in _pieces(process.stdout.fileno(), end, patience if on_wait else None):
                if piece == _NOTHING_YET:
                    if on_wait is not None:
                        on_wait(parser.begun)
                    continue
                for case in parser.feed(piece) if piece else []:
                    if on_case is not None:
                        on_case(case)
                in_time = piece is not None
        finally:
            if process.poll() is None and (not in_time or sys.exc_info()[0] is not None):
                process.kill()
        code = process.wait()
        errors.seek(0)
        said = errors.read(400).decode(errors="replace").strip()
    done = {case.name for case in parser.cases}
    missing = [case for case in listed if case.name not in done]
    for case in missing:
        why = (f"the judge stopped inside this case, with exit code {code}"
               if case.name == parser.begun else "the judge ended before it ran this case")
        case.messages = [f"{why}. {said}".strip() if in_time else "not run: time"]
    return [*parser.cases, *missing]


def run_side_by_side(judge: Path, runner: Path, spec: str, jobs: int, **options: Any
                     ) -> list[Case]:
    """run_judge() with the cases dealt out to `jobs` judges, which halves a student's wait on two
    cores. A judge mostly waits for its runner. The cases come back in the judge's own order."""
    names = [case.name for case in list_cases(judge, spec)] if jobs > 1 else []
    hands = [names[first::jobs] for first in range(min(jobs, len(names)))]
    if len(hands) < 2:
        return run_judge(judge, runner, spec, **options)
    with ThreadPoolExecutor(len(hands)) as pool:
        parts = pool.map(lambda hand: run_judge(judge, runner, exactly(hand), **options), hands)
        judged = {case.name: case for part in parts for case in part}
    if forgotten := [name for name in names if name not in judged]:
        raise JudgeError(f"{judge}: asked by name, it does not know its own cases {forgotten}")
    return [judged[name] for name in names]


def exactly(names: Iterable[str]) -> str:
    """A filter of Catch2 that means these cases. Quotation marks would not do: a comma ends a name
    between them too."""
    return ",".join(re.sub(r'([\\,\[\]*"])', r"\\\1", name) for name in names)


def _pieces(pipe: int, end: float | None, patience: float | None) -> Iterator[bytes | None]:
    """What comes through a pipe, as it comes; _NOTHING_YET whenever nothing comes for `patience`
    seconds; a last None if `end` is reached first."""
    while True:
        left = None if end is None else end - time.monotonic()
        waited = min((each for each in (left, patience) if each is not None), default=None)
        if waited is not None and (waited <= 0 or not select.select([pipe], [], [], waited)[0]):
            if end is None or time.monotonic() < end:
                yield _NOTHING_YET
                continue
            yield None
            return
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return
        yield piece


class CaseParser:
    """Reads a Catch2 XML report as it grows; a report that is cut off is no error."""

    def __init__(self) -> None:
        self._parser = xml.XMLPullParser(("start", "end"))
        self.cases: list[Case] = []
        self.begun = ""  # the case the report is in the middle of

    def feed(self, data: bytes) -> list[Case]:
        """Adds a piece of the report; returns the cases that it completes."""
        new: list[Case] = []
        try:
            self._parser.feed(data)
            for event, element in self._parser.read_events():
                if element.tag != "TestCase":
                    continue
                self.begun = element.get("name", "").strip() if event == "start" else ""
                if event == "end":
                    new.append(_case_of(element))
                    element.clear()
        except xml.ParseError as error:
            raise JudgeError(f"the judge's report is not XML: {error}") from error
        self.cases.extend(new)
        return new


def parse_report(data: bytes) -> list[Case]:
    """All complete cases of a report."""
    parser = CaseParser()
    parser.feed(data)
    return parser.cases


def _case_of(element: xml.Element) -> Case:
    result = element.find("OverallResult")
    steps, hidden = _read_tags(element.get("tags", ""))
    messages = [text.replace(_ANY_STEP, f"make debug-{steps[0]}") if steps else text
                for text in _messages(element)]
    passed = (result is not None and result.get("success") == "true"
              and result.get("skips", "0") == "0" and not messages)
    seconds = float(result.get("durationInSeconds", "0")) if result is not None else 0.0
    return Case(element.get("name", "").strip(), steps, hidden, passed, True, messages, seconds)


def _read_tags(tags: str) -> tuple[tuple[str, ...], bool]:
    names = _TAG.findall(tags)
    return tuple(name for name in names if _STEP.fullmatch(name)), "hidden" in names


def _messages(element: xml.Element) -> list[str]:
    """What failed in a case, in order; the infos that preceded a failure go with it."""
    found: list[str] = []
    infos: list[str] = []
    for child in element:
        text = (child.text or "").strip()
        if child.tag in ("Info", "Warning"):
            infos.append(text)
        elif child.tag in ("Failure", "Exception", "FatalErrorCondition", "Skip"):
            name = {"FatalErrorCondition": "the judge crashed: ", "Skip": "skipped: "}
            found.append("\n".join([*infos, name.get(child.tag, "") + text]))
            infos = []
        elif child.tag == "Expression":
            # Catch2 invents one around an exception that no assertion was waiting for.
            if (child.findtext("Original") or "").strip().startswith("{Unknown expression"):
                found.extend(_messages(child))
            elif child.get("success") != "true":
                found.append("\n".join([*infos, _expression(child)]))
            infos = []
        elif child.tag == "Section":
            found.extend(_messages(child))
    return found


def _expression(element: xml.Element) -> str:
    original = (element.findtext("Original") or "").strip()
    expanded = (element.findtext("Expanded") or "").strip()
    lines = [f"{element.get('type', 'CHECK')}( {original} )"]
    if expanded and expanded != original:
        lines.append(f"with {expanded}")
    for child in element:
        if child.tag in ("Exception", "FatalErrorCondition"):
            lines.append((child.text or "").strip())
    return "\n".join(lines)


def list_cases(judge: Path, spec: str = "") -> list[Case]:
    """The cases `spec` selects, as the judge itself lists them, none of them executed."""
    output = _list(judge, "--list-tests", "-r", "xml", spec)
    if output.lstrip().startswith("<?xml"):
        found = []
        for element in xml.fromstring(output).iter("TestCase"):
            steps, hidden = _read_tags(element.findtext("Tags") or "")
            found.append(Case((element.findtext("Name") or "").strip(), steps, hidden))
        return found
    # Catch2 2 lists names without tags (or both, but broken into lines): ask for each tag.
    names = _names(judge, spec)
    hidden_names = set(_names(judge, HIDDEN))
    tags = _TAG.findall(_list(judge, "--list-tags"))
    steps_of: dict[str, list[str]] = {name: [] for name in names}
    for step in sorted({tag for tag in tags if _STEP.fullmatch(tag)}):
        for name in _names(judge, f"[{step}]"):
            if name in steps_of:
                steps_of[name].append(step)
    return [Case(name, tuple(steps_of[name]), name in hidden_names) for name in names]


def _names(judge: Path, spec: str) -> list[str]:
    lines = _list(judge, "--list-test-names-only", spec).splitlines()
    return [line.strip().removeprefix('"').removesuffix('"') for line in lines if line.strip()]


def _list(judge: Path, *options: str) -> str:
    command = [str(judge), *(option for option in options if option)]
    try:  # Catch2 2 returns the number of cases: the exit code says nothing
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JudgeError(f"{judge}: cannot list its cases: {error}") from error
    return done.stdout.decode(errors="replace")


def judge_steps(task: manifest.Task, cases: Iterable[Case],
                only: Iterable[str] = (), unmet: str = "",
                unsolved: Iterable[str] = ()) -> list[Verdict]:
    """A verdict for each step of the task (or of `only`), with the points it earns. `unmet` is a
    step of an earlier task that does not work yet and is relied on (in a student kit). `unsolved`
    are steps that are known not to be written, whether or not a case got that far."""
    cases = list(cases)
    wanted = list(only) or [step.id for step in task.steps]
    of_step = {step.id: [c for c in cases if step.id in c.steps] for step in task.steps}
    failing = {step for step, each in of_step.items() if any(not case.passed for case in each)}
    unsolved = set(unsolved)
    unwritten = unsolved | {todo for case in cases if not case.passed for todo in case.todos}
    verdicts = []
    for step in task.steps:
        mine = of_step[step.id]
        if step.id not in wanted:
            continue
        state, blocker = "passed", ""
        if not mine:
            state = "not run"
        elif step.id in failing:
            state, blocker = (("todo", "") if step.id in unsolved else
                              _why(task, step, mine, failing, unmet))
        public, hidden = ([case for case in mine if case.hidden == flag] for flag in (False, True))
        verdicts.append(Verdict(step, state, blocker, mine, _earned(step.public, public),
                                _earned(step.hidden, hidden), blocker in unwritten))
    return verdicts


def _earned(points: int, cases: list[Case]) -> int:
    return points if cases and all(case.passed for case in cases) else 0


def _why(task: manifest.Task, step: manifest.Step, cases: list[Case],
         failing: set[str], unmet: str) -> tuple[str, str]:
    """How a failing step is called: by the unsolved step it ran into, else by what it requires."""
    todos = {todo for case in cases if not case.passed for todo in case.todos}
    if step.id in todos:
        return "todo", ""
    earlier = {todo for todo in todos if todo[0] < step.id[0]}
    if earlier:  # in a student kit: what this task requires cannot work either
        return "blocked", min(earlier)
    for required in task.closure(step.id):
        if required in failing:
            return "blocked", required
    if todos:  # one that points.toml does not name
        return "blocked", min(todos)
    if all(case.is_left_out for case in cases if not case.passed):
        return "not run", ""
    return ("blocked", unmet) if unmet else ("failed", "")


def to_json(cases: Iterable[Case]) -> list[dict]:
    return [asdict(case) for case in cases]


def from_json(entries: Iterable[dict]) -> list[Case]:
    return [Case(**{**entry, "steps": tuple(entry["steps"])}) for entry in entries]
