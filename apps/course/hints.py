"""Hints (make hint-4.2 LEVEL=1): apps/course/hints/taskN.toml, three levels a step."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path

import manifest

FOLDER = Path("apps") / "course" / "hints"
LEVELS = ("one", "two", "three")
MEANING = ("a question, and where to read", "the invariant, and how to check it",
           "the way, in words")


class HintError(Exception):
    """There is no such hint; the text says what to write."""


def load(root: Path, task: manifest.Task) -> dict[str, tuple[str, ...]]:
    """Step → its three texts. Raises HintError if a step or a level is missing, or unknown."""
    path = root / FOLDER / f"task{task.number}.toml"
    name = f"{FOLDER}/task{task.number}.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise HintError(f"{name}: {error}") from error
    steps = [step.id for step in task.steps]
    for step in steps:
        if set(document.get(step, {})) != set(LEVELS):
            raise HintError(f'{name}: ["{step}"] must hold {", ".join(LEVELS)}')
    for step in document:
        if step not in steps:
            raise HintError(f"{name}: ['{step}'] is no step of task {task.number}")
    return {step: tuple(document[step][level].strip() for level in LEVELS) for step in steps}


def tell(root: Path, course: manifest.Manifest, step: str, level: int) -> str:
    """The hint as it is printed."""
    if not 1 <= level <= len(LEVELS):
        raise HintError(f"LEVEL={level}: there are levels 1, 2 and 3")
    task = course.task_of_step(step)
    text = load(root, task)[step][level - 1]
    paragraphs = [textwrap.fill(" ".join(each.split()), 96) for each in text.split("\n\n")]
    lines = [f"{step} {task.step(step).title}: hint {level} of 3, {MEANING[level - 1]}", "",
             textwrap.indent("\n\n".join(paragraphs), "  ")]
    if level < len(LEVELS):
        lines += ["", f"More: make hint-{step} LEVEL={level + 1} ({MEANING[level]})"]
    return "\n".join(lines)
