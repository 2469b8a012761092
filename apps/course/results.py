"""How verdicts are told: one line per step, the first failure in full, seven bars."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import answers
import hints
import history
import manifest
import terminal
import verdicts

_BAR = 20
_MOST_AFTER = 3  # failing cases after the first that are told: more would bury it
_WIDTH = 120
_COLORS = {"passed": "good", "failed": "bad", "todo": "dim", "blocked": "waiting",
           "not run": "bad"}
_FIELD = re.compile(r"(observed|expected|broken|likely|run|read|find it): ")  # of a judge's message


def state_of(verdict: verdicts.Verdict) -> str:
    blocked = (f"waits for {verdict.blocked_by} (not written yet)" if verdict.waits else
               f"BLOCKED by {verdict.blocked_by}")
    return {"passed": "passed", "failed": "FAILED", "todo": "not written yet", "blocked": blocked,
            "not run": "NOT RUN: earlier runs did not end" if verdict.cases else
                       "NOT RUN: the judge has no case of this step"}[verdict.state]


def table(found: list[verdicts.Verdict], paper: terminal.Paper = terminal.PLAIN) -> list[str]:
    """One line per step."""
    width = max(len(verdict.step.title) for verdict in found)
    return [f"  {verdict.step.id}  {verdict.step.title:<{width}}  "
            f"{verdict.public}/{verdict.step.public}  "
            f"{paper.paint(state_of(verdict), _COLORS[verdict.state])}" for verdict in found]


def failures(found: list[verdicts.Verdict]) -> list[str]:
    """The first failing step's message in full, then a line for each of the next failing cases (one
    for all cases of a step that is not written or cannot work yet), and how many more there are."""
    # What is blocked comes last: its message is not where to begin.
    order = [verdict for state in ("failed", "todo", "blocked") for verdict in found
             if verdict.state == state]
    order.sort(key=lambda verdict: (verdict.state == "blocked", verdict.step.id))
    lines: list[str] = []
    after: list[str] = []
    told: set[str] = set()
    for verdict in order:
        failing = [case for case in verdict.cases if not case.passed and case.name not in told]
        for case in failing:
            if case.name in told:
                continue
            told.add(case.name)
            if len(told) == 1:
                lines += [f'{verdict.step.id} "{case.name}"', ""]
                lines += [f"    {line}".rstrip() for line in _told(case, verdict)]
                if len(case.messages) > 1:
                    lines += ["", f"    ({len(case.messages) - 1} more in this case)"]
                continue
            which = f'"{case.name}"'
            rest = [each.name for each in failing if each.name not in told]
            if verdict.state != "failed" and rest:
                told.update(rest)
                which = f"{which} and {len(rest)} more"
            after.append(f"  {verdict.step.id} {which}: {_one_line(case, verdict)}")
    if after:
        more = len(after) - _MOST_AFTER
        lines += ["", "After that:", *after[:_MOST_AFTER]]
        lines += [f"  and {more} more"] if more > 0 else []
    return lines


def _told(case: verdicts.Case, verdict: verdicts.Verdict) -> list[str]:
    """A message, with cause and place to read even if the run threw before anything was compared."""
    step = verdict.step.id
    lines = hints.with_cause(case.message, step, verdict.blocked_by).splitlines()
    if not case.todos and not any("read:" in line for line in lines):
        chapter = next(iter(sorted((manifest.ROOT / "writeup").glob(f"{step[0]}_*.md"))), None)
        where = f"writeup/{chapter.name} §{step}, " if chapter else ""
        lines.append(f"  read:     {where}make hint-{step}")
    return lines


def _one_line(case: verdicts.Case, verdict: verdicts.Verdict) -> str:
    own = verdict.step.id
    if verdict.state == "blocked":
        return (f"waits for {verdict.blocked_by}, which is not written yet" if verdict.waits else
                f"needs {verdict.blocked_by} first")
    if case.todos and own not in case.todos:
        return f"needs {case.todos[0]} first"
    if own in case.todos:
        place = re.search(rf"TODO {own}: .*?\((.*?),", case.message)
        return f"not written yet{': ' + place[1] if place else ''}"
    line = _said(case.message, "observed:")
    expected = _said(case.message, "expected:") if line.startswith("observed:") else ""
    if not expected.startswith("expected:"):
        return _clipped(line, _WIDTH)
    # Neither side may push the other out of the line.
    room = _WIDTH - len("; ")
    return (_clipped(line, max(room // 2, room - len(expected))) + "; " +
            _clipped(expected, max(room - room // 2, room - len(line))))


def _clipped(line: str, width: int) -> str:
    return line if len(line) <= width else line[:width - 1] + "…"


def _said(message: str, word: str) -> str:
    """The line of a message that begins with a word, else its first line. If lists were compared,
    the line that is marked as the first that differs goes with it; if the line says nothing but
    what follows, the next line does."""
    text = [line.strip() for line in message.strip().splitlines()] or [""]
    at = next((i for i, line in enumerate(text) if line.startswith(word)), 0)
    if not text[at].endswith(":"):
        return text[at]
    told = list(itertools.takewhile(lambda line: not _FIELD.match(line), text[at + 1:]))
    marked = [line.removeprefix("> ") for line in told if line.startswith("> ")]
    return " ".join([text[at], *(marked or told)[:1]])


def summary(task: manifest.Task, found: list[verdicts.Verdict]) -> str:
    """"public 8/11; …": for a whole task, or the steps that were asked for."""
    public = sum(verdict.public for verdict in found)
    if len(found) < len(task.steps):
        most = sum(verdict.step.public for verdict in found)
        return f"public {public}/{most} in {', '.join(v.step.id for v in found)}"
    also = []
    if task.hidden:
        also.append(f"{task.hidden} hidden point{'s' * (task.hidden > 1)}")
    if task.questions:
        also.append(f"{task.questions} for the accounting questions")
    end = f"; {' and '.join(also)} are graded on submission" if also else ""
    return f"public {public}/{task.public}{end}"


def _unfinished(task: manifest.Task, stored: history.Stored) -> str:
    """What there is to test of a task that has verdicts, but not on all of it as it is now."""
    if len(stored.never_run) < len(task.steps) and stored.never_run:
        return f"{', '.join(stored.never_run)} not tested yet: make test-task{task.number}"
    return f"changed since: make test-task{task.number}"


def progress(root: Path, course: manifest.Manifest,
             paper: terminal.Paper = terminal.PLAIN) -> list[str]:
    """Seven bars, the points, the next step; and a bar for extra credit."""
    width = max(len(task.title) for task in course.tasks)
    last = course.required[-1]
    lines: list[str] = []
    total, next_step = 0, None
    own = history.own_before(root, course, last)

    def bar(task: manifest.Task, points: int, note: str) -> str:
        filled = _BAR * points // task.public
        return (f"  task {task.number}  {task.title:<{width}}  "
                f"[{paper.paint('#' * filled, 'good')}{'.' * (_BAR - filled)}] "
                f"{points:>2}/{task.public:<2}  {note}").rstrip()

    for task in course.required:
        stored = history.load(root, task)
        found = stored.found if stored else verdicts.judge_steps(task, [])
        points = sum(verdict.public for verdict in found)
        total += points
        is_given = bool(own) and task not in own and task is not last
        lines.append(bar(task, points, "given: the later tasks run on the reference"
                         if stored is None and is_given else _note(task, stored, points)))
        if next_step is None and not (stored is None and is_given):
            # What blocked a step when it was tested may pass by now.
            open_ = [v for v in found if v.state != "passed"]
            next_step = next((v.step for v in open_ if v.state != "blocked"),
                             open_[0].step if open_ else None)
    public = sum(task.public for task in course.required)
    hidden = sum(task.hidden for task in course.required)
    questions = sum(task.questions for task in course.required)
    lines += ["", f"  public {total}/{public}; {hidden} hidden points and {questions} for the "
              "accounting questions are graded on submission"]
    if missing := answers.overview(root, course):
        lines.append(f"  {missing}")
    together, verdict = history.integrated(root, course)
    if next_step is None and not together:
        lines.append(f"  every public case passes, task by task. All together: {verdict}")
    elif next_step is None:
        lines.append("  every public case passes, also all together. make submit packs your work")
    else:
        number = next_step.id.split(".")[0]
        lines.append(f"  next: {next_step.id}, {next_step.title}. "
                     f"make test-task{number} ONLY={next_step.id}, make hint-{next_step.id}")
    if course.optional:
        lines += ["", f"  extra credit, on top of the {manifest.TOTAL} points:"]
    for task in course.optional:
        stored = history.load(root, task)
        points = sum(verdict.public for verdict in stored.found) if stored else 0
        lines.append(bar(task, points, _note(task, stored, points)))
    return lines


def _note(task: manifest.Task, stored: history.Stored | None, points: int) -> str:
    if stored is None:
        return "not tested yet"
    if not stored.is_current:
        return _unfinished(task, stored)
    return "done" if points == task.public else ""
