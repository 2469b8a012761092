"""Hints (make hint-4.2 LEVEL=1): apps/course/hints/taskN.toml, three levels per step.

The same files hold, per step, the usual mistakes that make it throw: `throws`. Where the text of an
error leaves only one mistake, `thrown` names that one: [["3.1".thrown]] with `says`, a regular
expression that is found in the judge's message, and `cause`.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import manifest

FOLDER = Path("apps") / "course" / "hints"
LEVELS = ("one", "two", "three")
THROWS = "throws"
THROWN_BY = "thrown"  # optional
THROWN = "one of the usual mistakes of this step"  # as tests/graded/wording.h writes it, kThrownCause
MEANING = ("a question, and where to read", "the invariant, and how to check it",
           "the solution, in words")


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
        if set(document.get(step, {})) - {THROWN_BY} != {*LEVELS, THROWS}:
            raise HintError(f'{name}: ["{step}"] must hold {", ".join(LEVELS)}, {THROWS}')
    for step in document:
        if step not in steps:
            raise HintError(f"{name}: ['{step}'] is no step of task {task.number}")
    return {step: tuple(document[step][level].strip() for level in LEVELS) for step in steps}


def with_cause(message: str, step: str, blocked_by: str = "", root: Path = manifest.ROOT) -> str:
    """A judge's message. If an exception ended the run, no comparison could find its cause: then
    the step it relies on and that fails is named, or else what the error's text gives away, or else
    the usual mistakes of the step."""
    if THROWN not in message:
        return message
    if blocked_by:
        return message.replace(THROWN, f"{step} relies on {blocked_by}, which does not work yet")
    try:
        text = (root / FOLDER / f"task{step[0]}.toml").read_text(encoding="utf-8")
        known = tomllib.loads(text)[step]
        cause = next((each["cause"] for each in known.get(THROWN_BY, ())
                      if re.search(each["says"], message)), known[THROWS])
    except (OSError, ValueError, KeyError, TypeError, re.error):
        return message
    return message.replace(THROWN, " ".join(cause.split()))


def tell(root: Path, course: manifest.Manifest, step: str, level: int,
         width: int = 100) -> str:
    """The hint as it is printed, in lines of `width` columns."""
    if not 1 <= level <= len(LEVELS):
        raise HintError(f"LEVEL={level}: there are levels 1, 2 and 3")
    task = course.task_of_step(step)
    text = load(root, task)[step][level - 1]
    paragraphs = [textwrap.fill(" ".join(each.split()), width - 4) for each in text.split("\n\n")]
    lines = [f"{step} {task.step(step).title}: hint {level} of 3, {MEANING[level - 1]}", "",
             textwrap.indent("\n\n".join(paragraphs), "  ")]
    if level < len(LEVELS):
        lines += ["", f"More: make hint-{step} LEVEL={level + 1} ({MEANING[level]})"]
    return "\n".join(lines)
