"""Which steps are not written yet: those whose code still calls todo("n.k", …).

A student kit's Makefile asks before it builds a program that needs every task (course.py written).
Where a task's reference is at hand, in the full tree or given with a kit, programs run on that, and
nothing is missing. A task for extra credit is never missing: only what uses it ends with its stub.
"""

from __future__ import annotations

import re
from pathlib import Path

import manifest

KIT = Path("apps") / "course" / "kit.json"  # only a student kit has it
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
_STUB = re.compile(r'\btodo\s*\(\s*"([1-9]\.[1-9][0-9]?)"')


def has_reference(root: Path, task: manifest.Task) -> bool:
    """Whether programs and later tasks run on the reference of this task."""
    return (root / "solutions" / task.folder / task.files[0]).is_file()


def given_and_untouched(root: Path, task: manifest.Task) -> bool:
    """Whether a kit brings the reference of this task, and the student has not begun to write it."""
    return ((root / KIT).is_file() and has_reference(root, task)
            and len(steps(root, task)) == len(task.steps))


def steps(root: Path, task: manifest.Task) -> list[manifest.Step]:
    """The unwritten steps of a task, in order. A file that is missing is an unwritten one."""
    found: set[str] = set()
    for name in task.files:
        path = root / "tasks" / task.folder / name
        if not path.is_file():
            return list(task.steps)
        text = path.read_text(encoding="utf-8", errors="replace")
        code = _TEXT_OR_COMMENT.sub(lambda each: each[0] if each[0][0] == '"' else " ", text)
        found.update(_STUB.findall(code))
    return [step for step in task.steps if step.id in found]


def before_building(root: Path, course: manifest.Manifest, target: str) -> list[str]:
    """What to say, instead of building, to a student who calls `make target`; [] if all is there."""
    missing = {task: found for task in course.required
               if not has_reference(root, task) and (found := steps(root, task))}
    if not missing:
        return []
    width = max(len(task.title) for task in missing)
    lines = [f"make {target} needs every task, and these steps are not written yet:", ""]
    for task, found in missing.items():
        which = (f"all {len(found)} steps" if len(found) == len(task.steps) else
                 ", ".join(step.id for step in found))
        lines.append(f"  task {task.number}  {task.title:<{width}}  {which}")
    first = next(iter(missing.values()))[0]
    lines += ["", f"Write {first.id}, {first.title}, next. make test-task{first.id[0]} tests "
              f"it, and make hint-{first.id} gives a hint."]
    if target == "race":
        lines.append("Until then, make race ESTIMATE=yes shows what your plans would take.")
    return lines
