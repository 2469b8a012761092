"""The manifest of points, apps/course/points.toml: read once, checked, and handed out as data."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT / "apps" / "course" / "points.toml"
TOTAL = 100

_STEP_ID = re.compile(r"[1-9]\.[1-9][0-9]?")
_TASK_FIELDS = {"number", "folder", "title", "files", "questions", "steps", "extra"}
_STEP_FIELDS = {"id", "title", "public", "hidden", "requires"}


class ManifestError(Exception):
    """The manifest says something that cannot be: file, field, and what to write instead."""


@dataclass(frozen=True)
class Step:
    """One exercise: `3.2`, its points, and the steps of its task that its cases need."""

    id: str
    title: str
    public: int
    hidden: int
    requires: tuple[str, ...]

    @property
    def points(self) -> int:
        return self.public + self.hidden


@dataclass(frozen=True)
class Task:
    """One task: its folder under tasks/ and solutions/, the student's files, its steps."""

    number: int
    folder: str
    title: str
    files: tuple[str, ...]
    questions: int
    steps: tuple[Step, ...]
    extra: bool = False  # optional: its points come on top of the course's

    @property
    def public(self) -> int:
        return sum(step.public for step in self.steps)

    @property
    def hidden(self) -> int:
        return sum(step.hidden for step in self.steps)

    @property
    def points(self) -> int:
        return self.public + self.hidden + self.questions

    def step(self, step_id: str) -> Step:
        for step in self.steps:
            if step.id == step_id:
                return step
        known = ", ".join(step.id for step in self.steps)
        raise ManifestError(f"task {self.number} has no step {step_id}; its steps are {known}")

    def closure(self, step_id: str) -> tuple[str, ...]:
        """All steps that `step_id` requires, directly or not, in the order of the task."""
        found: set[str] = set()
        waiting = list(self.step(step_id).requires)
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting.extend(self.step(each).requires)
        return tuple(step.id for step in self.steps if step.id in found)

    def dependants(self, roots: set[str]) -> set[str]:
        """`roots` and every step that requires one of them, directly or not."""
        return {s.id for s in self.steps if s.id in roots or roots & set(self.closure(s.id))}


@dataclass(frozen=True)
class Manifest:
    """All tasks, in order: the course's, then those for extra credit."""

    tasks: tuple[Task, ...]

    @property
    def required(self) -> tuple[Task, ...]:
        """The tasks of the course: those that programs, kits and the points cannot do without."""
        return tuple(task for task in self.tasks if not task.extra)

    @property
    def optional(self) -> tuple[Task, ...]:
        """The tasks for extra credit."""
        return tuple(task for task in self.tasks if task.extra)

    def task(self, number: int) -> Task:
        for task in self.tasks:
            if task.number == number:
                return task
        raise ManifestError(f"there is no task {number}: tasks are numbered 1 to {len(self.tasks)}")

    def task_of_step(self, step_id: str) -> Task:
        if not _STEP_ID.fullmatch(step_id):
            raise ManifestError(f"'{step_id}' is not a step: write it like 3.2")
        task = self.task(int(step_id.split(".")[0]))
        task.step(step_id)
        return task


def load(path: Path = POINTS, total: int = TOTAL) -> Manifest:
    """The manifest in `path`. Raises ManifestError if it does not hold together."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ManifestError(f"{path}: {error}") from error
    tables = document.get("task")
    if not isinstance(tables, list) or not tables or set(document) != {"task"}:
        raise ManifestError(f"{path}: must hold [[task]] tables, and nothing else")
    tasks = tuple(_read_task(path, i, table) for i, table in enumerate(tables, 1))
    course = Manifest(tasks)
    if tasks != course.required + course.optional:
        raise ManifestError(f"{path}: a task with extra = true stands before one without; put the "
                            "optional ones last")
    points = sum(task.points for task in course.required)
    if points != total:
        each = ", ".join(f"task {task.number}: {task.points}" for task in course.required)
        raise ManifestError(f"{path}: the points add up to {points}, not {total} ({each})")
    return course


def _read_task(path: Path, number: int, table: dict) -> Task:
    where = f"{path}: task {number}"
    _check_fields(where, table, _TASK_FIELDS - {"extra"}, _TASK_FIELDS)
    if table["number"] != number:
        raise ManifestError(f"{where}: number = {table['number']}; tasks are numbered in order")
    folder = _text(where, table, "folder")
    if not re.fullmatch(rf"task{number}_[a-z0-9_]+", folder):
        raise ManifestError(f"{where}: folder = '{folder}'; write task{number}_name")
    files = table["files"]
    if not isinstance(files, list) or not files or len(set(map(str, files))) != len(files):
        raise ManifestError(f"{where}: files must list the student's files, each once")
    for name in files:
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+\.cpp", name):
            raise ManifestError(f"{where}: files holds '{name}'; write a plain name like x.cpp")
    if not isinstance(table["steps"], list) or not table["steps"]:
        raise ManifestError(f"{where}: steps must list the task's steps")
    if not isinstance(table.get("extra", False), bool):
        raise ManifestError(f"{where}: extra = {table['extra']!r}; write true, or leave it out")
    steps: list[Step] = []
    for k, entry in enumerate(table["steps"], 1):
        steps.append(_read_step(f"{where}, step {k}", f"{number}.{k}", entry, steps))
    return Task(number, folder, _text(where, table, "title"), tuple(files),
                _count(where, table, "questions"), tuple(steps), table.get("extra", False))


def _read_step(where: str, step_id: str, table: dict, before: list[Step]) -> Step:
    _check_fields(where, table, _STEP_FIELDS - {"hidden"}, _STEP_FIELDS)
    if table["id"] != step_id:
        raise ManifestError(f"{where}: id = '{table['id']}'; steps are numbered in order: "
                            f"{step_id}")
    known = [step.id for step in before]
    requires = table["requires"]
    if not isinstance(requires, list):
        raise ManifestError(f"{where}: requires must be a list of steps, [] for none")
    for each in requires:
        if each not in known:
            raise ManifestError(f"{where}: requires '{each}', which is no earlier step of this task"
                                f" (all steps of the tasks before are assumed anyway)")
    public = _count(where, table, "public")
    hidden = _count(where, table, "hidden") if "hidden" in table else 0
    if public < 1:
        raise ManifestError(f"{where}: public = 0; every step has at least one public point")
    return Step(step_id, _text(where, table, "title"), public, hidden, tuple(requires))


def _check_fields(where: str, table: dict, needed: set[str], known: set[str]) -> None:
    if not isinstance(table, dict):
        raise ManifestError(f"{where}: must be a table with {', '.join(sorted(needed))}")
    for name in sorted(needed - set(table)):
        raise ManifestError(f"{where}: the field '{name}' is missing")
    for name in sorted(set(table) - known):
        raise ManifestError(f"{where}: unknown field '{name}'; known are "
                            f"{', '.join(sorted(known))}")


def _text(where: str, table: dict, name: str) -> str:
    value = table[name]
    if not isinstance(value, str) or not value.strip():
        raise ManifestError(f"{where}: {name} must be a text")
    return value


def _count(where: str, table: dict, name: str) -> int:
    value = table[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError(f"{where}: {name} = {value!r}; write a whole number, 0 or more")
    return value
