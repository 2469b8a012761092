"""Which accounting questions a student has not answered yet, and what to say of it."""

from __future__ import annotations

from pathlib import Path

import manifest
import questions  # noqa: F401  must come before the next two: it knows where they are
import question_form
import question_set


def unanswered(root: Path, task: manifest.Task) -> int:
    """How many of a task's questions have no value in answers.toml; all, if it cannot be read."""
    return questions.unanswered(_path(root, task), task.number)


def reminder(root: Path, task: manifest.Task) -> str:
    """A sentence on the open questions of a task, or "" if there are none."""
    count = unanswered(root, task)
    if not count:
        return ""
    of = f"{count} of {task.questions}" if count < task.questions else f"all {count}"
    return (f"Accounting questions of task {task.number}: {of} not answered "
            f"({count} point{'s' * (count > 1)}). {how_to_see(root, task)}")


def overview(root: Path, course: manifest.Manifest) -> str:
    """The same for the whole course, without what is extra credit."""
    missing = [(task, count) for task in course.required if (count := unanswered(root, task))]
    if not missing:
        return ""
    count = sum(each for _, each in missing)
    most = sum(task.questions for task in course.required)
    tasks = ", ".join(str(task.number) for task, _ in missing)
    return (f"accounting questions: {count} of {most} not answered (task{'s' * (len(missing) > 1)} "
            f"{tasks}). {how_to_see(root, missing[0][0])}")


def how_to_see(root: Path, task: manifest.Task) -> str:
    path = _path(root, task)
    form = question_form.read(path, question_set.load(task.number))
    show = f"python3 apps/course/questions.py show --task {task.number}"
    name = path.relative_to(root)
    if not form.id:
        return f"Write your course e-mail after id in {name}; then {show} prints them"
    return f"{show} prints them; answer them in {name}"


def _path(root: Path, task: manifest.Task) -> Path:
    return root / "tasks" / task.folder / "answers.toml"
