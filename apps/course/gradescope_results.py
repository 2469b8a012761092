"""results.json as Gradescope reads it: a test for each step, its hidden cases, and each question.

The file is complete from the first moment on: everything stands at 0, "not run", until it has been
graded, and after every case the file is replaced by rename.

Extra credit stands on top: its tests have points like all others and the tag "extra", and the score
is the sum of all tests. So it may exceed the points of the assignment, which do not count them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import hints
import manifest
import results
import verdicts
import whole_file

MOST_OUTPUT = 6000  # characters of one test
SCHEMA_VISIBILITY = ("visible", "hidden", "after_due_date", "after_published")
_NOT_RUN = "not run"


@dataclass
class Entry:
    """One test of results.json."""

    number: str
    name: str
    most: float
    kind: str  # "public", "hidden", "question"
    task: int
    score: float = 0
    passed: bool = False
    output: str = _NOT_RUN
    private: str = ""  # what failed of hidden cases: for the terminal, never for results.json


@dataclass
class Results:
    """Everything that is known so far of one submission."""

    path: Path
    tasks: list[manifest.Task]
    hidden_visibility: str = "after_published"
    notes: list[str] = field(default_factory=list)  # for the student
    private: list[str] = field(default_factory=list)  # for the instructor
    isolated: bool = True
    complete: bool = False
    leaderboard: list[dict] = field(default_factory=list)  # of the race
    by_clock: bool = False  # with less to do the machine might have come to another verdict
    entries: list[Entry] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        for task in self.tasks:
            for step in task.steps:
                self.entries.append(Entry(step.id, step.title, step.public, "public", task.number))
                if step.hidden:
                    self.entries.append(Entry(step.id, f"{step.title} (hidden cases)", step.hidden,
                                              "hidden", task.number))
            worth = task.questions / 2
            for k in range(1, 3 if task.questions else 1):
                self.entries.append(Entry(f"{task.number}.q{k}", f"accounting question {k}", worth,
                                          "question", task.number))
        self.write()

    @property
    def score(self) -> float:
        return sum(entry.score for entry in self.entries)

    @property
    def most(self) -> float:
        """Without extra credit."""
        return sum(entry.most for task in self.tasks if not self.is_extra(task)
                   for entry in self.of_task(task))

    @property
    def extra(self) -> tuple[float, float]:
        """Of the score what is extra credit, and how much that can be."""
        entries = [entry for task in self.tasks if self.is_extra(task)
                   for entry in self.of_task(task)]
        return sum(entry.score for entry in entries), sum(entry.most for entry in entries)

    def is_extra(self, task: manifest.Task) -> bool:
        """Whether its points come on top. If no other task is graded, they are the points."""
        return task.extra and not all(each.extra for each in self.tasks)

    def is_full(self) -> bool:
        """All points, and all that are extra credit."""
        return all(entry.score >= entry.most for entry in self.entries)

    def of_task(self, task: manifest.Task) -> list[Entry]:
        return [entry for entry in self.entries if entry.task == task.number]

    def set_cases(self, task: manifest.Task, cases: list[verdicts.Case]) -> None:
        """The verdicts on a task, so far: cases that were not executed count as not passed."""
        for verdict in verdicts.judge_steps(task, cases):
            for entry in self.of_task(task):
                if entry.number == verdict.step.id and entry.kind != "question":
                    hidden = entry.kind == "hidden"
                    mine = [case for case in verdict.cases if case.hidden == hidden]
                    entry.score = verdict.hidden if hidden else verdict.public
                    entry.passed = bool(mine) and all(case.passed for case in mine)
                    entry.output = _hidden(mine) if hidden else _public(verdict, mine)
                    entry.private = "" if not hidden else next(
                        (f'"{case.name}" {case.message}' for case in mine
                         if case.executed and not case.passed), "")
        self.write()

    def refuse_task(self, task: manifest.Task, why: str) -> None:
        """Nothing of the task could be run: the first step says why in full."""
        first = True
        for entry in self.of_task(task):
            if entry.kind == "question":
                continue
            entry.score, entry.passed = 0, False
            short = why.splitlines()[0].rstrip(":")
            entry.output = why if first else f"see {task.number}.1: {short}"
            first = False
        self.write()

    def set_questions(self, graded: list[tuple[str, float, float, str]]) -> None:
        for number, score, most, sentence in graded:
            for entry in self.entries:
                if entry.number == number:
                    entry.score, entry.most = score, most
                    entry.passed, entry.output = score >= most, sentence
        self.write()

    def stop(self, why: str) -> None:
        """What has not been run says why."""
        for entry in self.entries:
            if entry.output == _NOT_RUN:
                entry.output = f"{_NOT_RUN}: {why}"
        self.write()

    def head(self) -> str:
        extra, most_extra = self.extra
        on_top = f", and {extra:g} of {most_extra:g} for extra credit" if most_extra else ""
        lines = [f"{self.score - extra:g} of {self.most:g} points{on_top}"
                 + ("" if self.complete else " so far (this grading has not ended)")]
        if not self.isolated:
            lines.append("not isolated: advisory score")
        kit, grader = versions()
        return "\n".join([*lines, *self.notes, f"kit {kit}, grader {grader}"])

    def to_json(self) -> dict:
        kit, grader = versions()
        extra = {task.number for task in self.tasks if self.is_extra(task)}
        return {
            "score": self.score,
            "execution_time": round(time.monotonic() - self.started, 2),
            "output": clean(self.head()),
            "visibility": "visible",
            "stdout_visibility": "hidden",
            "tests": [self._test(entry, entry.task in extra) for entry in self.entries],
            "extra_data": {"kit": kit, "grader": grader, "isolated": self.isolated,
                           "complete": self.complete, "by_clock": self.by_clock,
                           "for_instructor": self.private},
            **({"leaderboard": self.leaderboard} if self.leaderboard else {}),
        }

    def _test(self, entry: Entry, is_extra: bool) -> dict:
        return {
            "score": entry.score,
            "max_score": entry.most,
            "status": "passed" if entry.passed else "failed",
            "name": f"{entry.number} {entry.name}" + (" (extra credit)" if is_extra else ""),
            "number": entry.number,
            "output": clean(entry.output),
            "tags": [f"task{entry.task}", entry.kind, *(["extra"] if is_extra else [])],
            "visibility": self.hidden_visibility if entry.kind == "hidden" else "visible",
        }

    def write(self) -> None:
        write_json(self.path, self.to_json())


def _public(verdict: verdicts.Verdict, cases: list[verdicts.Case]) -> str:
    if not cases:
        return "the judge has no public case of this step"
    failing = [case for case in cases if not case.passed]
    if not failing:
        return f"passed: {len(cases)} case{'s' * (len(cases) > 1)}"
    if all(not case.executed and not case.messages for case in failing):
        return _NOT_RUN
    head = f"{results.state_of(verdict)}\n" if verdict.state == "blocked" else ""
    executed = [case for case in failing if case.executed] or failing
    told = executed[0]
    message = hints.with_cause(told.message, verdict.step.id, verdict.blocked_by)
    lines = [f'{head}"{told.name}"', message]
    lines += [f'also failed: "{case.name}"' for case in executed[1:]]
    return "\n".join(lines)


def _hidden(cases: list[verdicts.Case]) -> str:
    """Fixed sentences only: what a run printed or threw could carry a hidden case's numbers out."""
    failing = [case for case in cases if not case.passed]
    if not cases:
        return "the judge has no hidden case of this step"
    if not failing:
        return f"passed: {len(cases)} case{'s' * (len(cases) > 1)}"
    if all(case.messages == ["not run: time"] for case in failing):
        return "not run: time"
    if all(not case.executed and not case.messages for case in failing):
        return _NOT_RUN
    return (f"{len(failing)} of {len(cases)} hidden cases failed. They are the public cases with "
            "other numbers: sizes, worlds, seeds. Try SEED= and W= with make test-task.")


def clean(text: str) -> str:
    """Fit for a page: no control characters, not endless."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    plain = "".join(c if c in "\n\t" or c.isprintable() else "?" for c in plain)
    if len(plain) > MOST_OUTPUT:
        plain = plain[:MOST_OUTPUT] + f"\n… {len(plain) - MOST_OUTPUT} more characters"
    return plain


def write_json(path: Path, document: dict) -> None:
    whole_file.write(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


_known_versions: tuple[str, str] | None = None


def versions() -> tuple[str, str]:
    """(kit, grader): sums over what a student gets, and over what decides points."""
    global _known_versions  # pylint: disable=global-statement
    if _known_versions is None:
        root = manifest.ROOT
        kit = [*root.glob("common/**/*.h"), *root.glob("tasks/*/*.h")]
        grader = [path for pattern in ("apps/course/**/*.py", "apps/course/**/*.toml",
                                       "tests/graded/*.cpp", "tests/graded/*.h",
                                       "tests/task*/*.cpp", "tests/task*/*.h")
                  for path in root.glob(pattern) if not path.name.startswith("test_")]
        _known_versions = (_sum(kit), _sum(grader))
    return _known_versions


def _sum(paths: list[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(str(path.relative_to(manifest.ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:10]
