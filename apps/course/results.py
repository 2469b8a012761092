"""The last verdict on each task (build/grade/results/taskN.json), and how verdicts are told."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import manifest
import skeletons
import verdicts

FOLDER = Path("build") / "grade" / "results"
_BAR = 20
_WIDTH = 120
_FIELD = re.compile(r"(observed|expected|broken|likely|run|read): ")  # of a judge's message


@dataclass
class Stored:
    """What is known of a task: the cases last run, and whether the files are still those."""

    cases: list[verdicts.Case]
    is_current: bool


def digest_of(root: Path, task: manifest.Task) -> str:
    """One sum over the student's files of a task."""
    total = hashlib.sha256()
    for name in task.files:
        path = root / "tasks" / task.folder / name
        total.update(path.read_bytes() if path.is_file() else b"missing")
        total.update(b"\0")
    return total.hexdigest()


def store(root: Path, task: manifest.Task, digest: str, cases: list[verdicts.Case]) -> None:
    text = json.dumps({"task": task.number, "files": digest, "cases": verdicts.to_json(cases)},
                      indent=1, ensure_ascii=False)
    skeletons.write_by_rename(root / FOLDER / f"task{task.number}.json", text + "\n")


def load(root: Path, task: manifest.Task) -> Stored | None:
    """None if the task was never tested, or its results cannot be read."""
    try:
        entry = json.loads((root / FOLDER / f"task{task.number}.json").read_text(encoding="utf-8"))
        return Stored(verdicts.from_json(entry["cases"]), entry["files"] == digest_of(root, task))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def digest_of_all(root: Path, course: manifest.Manifest) -> str:
    return "-".join(digest_of(root, task)[:16] for task in course.tasks)


def store_integrated(root: Path, digest: str, passed: bool, verdict: str) -> None:
    """What make test-integrated found; `verdict` in a few words."""
    text = json.dumps({"files": digest, "passed": passed, "verdict": verdict}, indent=1,
                      ensure_ascii=False)
    skeletons.write_by_rename(root / FOLDER / "integrated.json", text + "\n")


def integrated(root: Path, course: manifest.Manifest) -> tuple[bool, str]:
    """Whether all tasks are known to pass together as they are now, and what to say of it."""
    try:
        entry = json.loads((root / FOLDER / "integrated.json").read_text(encoding="utf-8"))
        if entry["files"] == digest_of_all(root, course):
            return bool(entry["passed"]), str(entry["verdict"])
        return False, "changed since it was tested: make test-integrated"
    except (OSError, ValueError, KeyError, TypeError):
        return False, "not tested yet: make test-integrated"


def own_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> list[manifest.Task]:
    """The earlier tasks that run with the student's own code: in a kit, those that were not given.
    In the full tree references stand there."""
    return [earlier for earlier in course.tasks[:task.number - 1]
            if not (root / "solutions" / earlier.folder / earlier.files[0]).is_file()]


def untested_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> str:
    """A sentence on the student's own earlier tasks of which no verdict holds, or ""."""
    stored = {earlier.number: load(root, earlier) for earlier in own_before(root, course, task)}
    numbers = [number for number, each in stored.items() if each is None or not each.is_current]
    if not numbers:
        return ""
    which = ", ".join(str(number) for number in numbers)
    return (f"Task {task.number} runs on your own code of task {which}, which has not been tested "
            f"since it was last changed: make test-task{numbers[0]}")


def unmet_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> str:
    """The first step of an earlier task that is known to fail, if that task's code is the student's
    own; "" if there is none."""
    for earlier in own_before(root, course, task):
        stored = load(root, earlier)
        if stored is None or not stored.is_current:
            continue
        for verdict in verdicts.judge_steps(earlier, stored.cases):
            if verdict.state != "passed":
                return verdict.step.id
    return ""


def state_of(verdict: verdicts.Verdict) -> str:
    return {"passed": "passed", "failed": "FAILED", "todo": "not done (TODO)",
            "blocked": f"BLOCKED by {verdict.blocked_by}",
            "not run": "NOT RUN: the judge has no case of this step"}[verdict.state]


def table(found: list[verdicts.Verdict]) -> list[str]:
    """A line a step."""
    width = max(len(verdict.step.title) for verdict in found)
    return [f"  {verdict.step.id}  {verdict.step.title:<{width}}  "
            f"{verdict.public}/{verdict.step.public}  {state_of(verdict)}" for verdict in found]


def failures(found: list[verdicts.Verdict]) -> list[str]:
    """The first failing step's message in full, then a line for each other failing case."""
    # What is blocked comes last: its message is not where to begin.
    order = [verdict for state in ("failed", "todo", "blocked") for verdict in found
             if verdict.state == state]
    order.sort(key=lambda verdict: (verdict.state == "blocked", verdict.step.id))
    lines: list[str] = []
    told: set[str] = set()
    for verdict in order:
        for case in verdict.cases:
            if case.passed or case.name in told:
                continue
            told.add(case.name)
            if len(told) == 1:
                lines += [f'{verdict.step.id} "{case.name}"', ""]
                lines += [f"    {line}".rstrip() for line in _told(case, verdict.step.id)]
                if len(case.messages) > 1:
                    lines += ["", f"    ({len(case.messages) - 1} more in this case)"]
                continue
            if len(told) == 2:
                lines += ["", "After that:"]
            lines.append(f'  {verdict.step.id} "{case.name}": {_one_line(case, verdict)}')
    return lines


def _told(case: verdicts.Case, step: str) -> list[str]:
    """A message, with where to read even if the run threw before anything could be compared."""
    lines = case.message.splitlines()
    if not case.todos and not any("read:" in line for line in lines):
        chapter = next(iter(sorted((manifest.ROOT / "writeup").glob(f"{step[0]}_*.md"))), None)
        where = f"writeup/{chapter.name} §{step}, " if chapter else ""
        lines.append(f"  read:     {where}make hint-{step}")
    return lines


def _one_line(case: verdicts.Case, verdict: verdicts.Verdict) -> str:
    own = verdict.step.id
    if verdict.state == "blocked":
        return f"needs {verdict.blocked_by} first"
    if case.todos and own not in case.todos:
        return f"needs {case.todos[0]} first"
    if own in case.todos:
        place = re.search(rf"TODO {own}: .*?\((.*?),", case.message)
        return f"not done{': ' + place[1] if place else ''}"
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


def progress(root: Path, course: manifest.Manifest) -> list[str]:
    """Seven bars, the points, the next step."""
    width = max(len(task.title) for task in course.tasks)
    lines: list[str] = []
    total, next_step = 0, None
    own = own_before(root, course, course.tasks[-1])
    for task in course.tasks:
        stored = load(root, task)
        found = verdicts.judge_steps(task, stored.cases if stored else [])
        points = sum(verdict.public for verdict in found)
        total += points
        filled = _BAR * points // task.public
        is_given = bool(own) and task not in own and task is not course.tasks[-1]
        note = ("given: the later tasks run on the reference" if stored is None and is_given else
                "not tested yet" if stored is None else
                "changed since: make test-task%d" % task.number if not stored.is_current else
                "done" if points == task.public else "")
        lines.append(f"  task {task.number}  {task.title:<{width}}  "
                     f"[{'#' * filled}{'.' * (_BAR - filled)}] {points:>2}/{task.public:<2}  {note}"
                     .rstrip())
        if next_step is None and not (stored is None and is_given):
            next_step = next((v.step for v in found if v.state not in ("passed", "blocked")), None)
    public = sum(task.public for task in course.tasks)
    hidden = sum(task.hidden for task in course.tasks)
    questions = sum(task.questions for task in course.tasks)
    lines += ["", f"  public {total}/{public}; {hidden} hidden points and {questions} for the "
              "accounting questions are graded on submission"]
    together, verdict = integrated(root, course)
    if next_step is None and not together:
        lines.append(f"  every public case passes, task by task. All together: {verdict}")
    elif next_step is None:
        lines.append("  every public case passes, also all together. make submit packs your work")
    else:
        number = next_step.id.split(".")[0]
        lines.append(f"  next: {next_step.id}, {next_step.title}. "
                     f"make test-task{number} ONLY={next_step.id}, make hint-{next_step.id}")
    return lines
