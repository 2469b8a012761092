"""Mutants: wrong solutions, and alternatives that are right, as edits of the reference.

    tests/mutants/taskN/NAME.toml             tests/mutants/alternatives/NAME.toml

    title = "reshards at the root too"
    task = 3
    step = "3.5"                  # where its message is read
    loses = ["3.5"]               # root steps; what requires one of them may be lost besides
    message = 'observed: .*'      # a regular expression; found in the first failing public message
    [[edit]]
    region = "3.5"                # in which region; nth = 2 says which, where a step has several
    find = "if (x) return;"       # exactly once in there
    replace = ""                  # or  whole = '…'  for the whole region, instead of both

Optional: file (where a task has two), includes = ["<vector>"], dies = true (the loss may be a crash
or a limit), like = ["other"] (a mutant that is allowed to read the same), why (a note).
An alternative has kind = "alternative" and loses = [], and neither step nor message.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import regions

FOLDER = Path("tests") / "mutants"
_FIELDS = {"title", "task", "step", "loses", "message", "edit", "kind", "includes", "dies", "like",
           "why"}
_EDIT_FIELDS = {"region", "find", "replace", "whole", "nth", "file"}


class MutantError(Exception):
    """A mutant's file is wrong: file, field, remedy."""


@dataclass(frozen=True)
class Mutant:
    """One variant of the reference. `edits` by file name."""

    name: str
    title: str
    task: manifest.Task
    step: str
    loses: tuple[str, ...]
    message: str
    edits: dict[str, list[regions.Edit]]
    includes: tuple[str, ...] = ()
    dies: bool = False
    like: tuple[str, ...] = ()

    @property
    def is_alternative(self) -> bool:
        return not self.loses

    def sources(self, root: Path) -> dict[str, str]:
        """The text of each edited file."""
        texts = {}
        for name, edits in self.edits.items():
            source = regions.read(root / "solutions" / self.task.folder / name, root)
            texts[name] = regions.apply(source, edits, self.includes)
            if texts[name] == "\n".join(source.lines):
                raise MutantError(f"{self.name}: its edits change nothing in {name}")
        return texts


def load_all(root: Path, course: manifest.Manifest, task: int | None = None) -> list[Mutant]:
    """All mutants and alternatives (of one task), sorted by task and name."""
    found: list[Mutant] = []
    for path in sorted((root / FOLDER).glob("*/*.toml")):
        if path.parent.name == "whole":
            continue  # whole_mutants.py
        mutant = load(path, course)
        expected = "alternatives" if mutant.is_alternative else f"task{mutant.task.number}"
        if path.parent.name != expected:
            raise MutantError(f"{path}: belongs into {FOLDER}/{expected}/")
        found.append(mutant)
    keys = [(each.task.number, each.name) for each in found]
    for key in keys:
        if keys.count(key) > 1:
            raise MutantError(f"{FOLDER}: two mutants of task {key[0]} are called {key[1]}")
    for mutant in found:
        for other in mutant.like:
            if (mutant.task.number, other) not in keys:
                raise MutantError(f"{mutant.name}: like names '{other}', which does not exist")
    return sorted((each for each in found if task in (None, each.task.number)),
                  key=lambda each: (each.task.number, each.is_alternative, each.name))


def load(path: Path, course: manifest.Manifest) -> Mutant:
    """One file. Edits are tried on the reference only when sources() is called."""
    where = f"{path.parent.name}/{path.name}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MutantError(f"{where}: {error}") from error
    _known(where, table, _FIELDS)
    is_alternative = table.get("kind", "mutant") == "alternative"
    needed = {"title", "task", "loses", "edit"} | (set() if is_alternative else {"step", "message"})
    for name in sorted(needed - set(table)):
        raise MutantError(f"{where}: the field '{name}' is missing")
    task = course.task(table["task"])
    steps = [step.id for step in task.steps]
    loses = tuple(table["loses"])
    for step in (*loses, *([] if is_alternative else [table["step"]])):
        if step not in steps:
            raise MutantError(f"{where}: {step} is no step of task {task.number}")
    if is_alternative != (not loses):
        raise MutantError(f"{where}: loses is [] for kind = \"alternative\", and for nothing else")
    if not is_alternative and table["step"] not in loses:
        raise MutantError(f"{where}: step = \"{table['step']}\" must be one of loses")
    try:
        re.compile(table.get("message", ""))
    except re.error as error:
        raise MutantError(f"{where}: message is no regular expression: {error}") from error
    return Mutant(path.stem, table["title"], task, table.get("step", ""), loses,
                  table.get("message", ""), _edits(where, table["edit"], task),
                  tuple(table.get("includes", ())), bool(table.get("dies", False)),
                  tuple(table.get("like", ())))


def _edits(where: str, tables: list[dict], task: manifest.Task) -> dict[str, list[regions.Edit]]:
    edits: dict[str, list[regions.Edit]] = {}
    for table in tables:
        _known(f"{where}: an edit", table, _EDIT_FIELDS)
        if "region" not in table:
            raise MutantError(f"{where}: an edit needs region = \"n.m\"")
        name = table.get("file", task.files[0] if len(task.files) == 1 else None)
        if name not in task.files:
            raise MutantError(f"{where}: an edit needs file, one of {', '.join(task.files)}")
        has = ("find" in table and "replace" in table, "whole" in table)
        if has not in ((True, False), (False, True)) or ("find" in table) != ("replace" in table):
            raise MutantError(f"{where}: an edit has find and replace, or whole")
        edits.setdefault(name, []).append(regions.Edit(
            table["region"], table.get("find"), table.get("replace"), table.get("whole"),
            table.get("nth")))
    if not edits:
        raise MutantError(f"{where}: no [[edit]]")
    return edits


def _known(where: str, table: dict, known: set[str]) -> None:
    for name in sorted(set(table) - known):
        raise MutantError(f"{where}: unknown field '{name}'; known are {', '.join(sorted(known))}")
