"""Mutants: wrong solutions, and alternatives that are right, as edits of the reference.

    tests/mutants/3.5.toml            the wrong ways of step 3.5, one table each, by name

    [resharded_at_the_root]
    title = "reshards at the root too"
    message = 'observed: .*'      # a regular expression; found in the first failing public message
    [[resharded_at_the_root.edit]]
    find = "if (x) return;"       # exactly once in the step's region
    replace = ""                  # or  whole = '…'  for the whole region, instead of both

Optional: loses = ["3.5", "4.1"] (root steps, 3.5 among them; what requires one of them may be lost
besides; [the step] if left out), includes = ["<vector>"], dies = true (the loss may be a crash or a
limit), like = ["other"] (a mutant of the task that is allowed to read the same), waits = true (it
forgets to wait or frees too early, so it must be noticed on a device too), why (a note). Of an edit: region = "3.3" (that step's region instead;
"given": the code around the regions), nth = 2 (which, where a step has several), file
(where a task has two).

    tests/mutants/alternatives/NAME.toml

An alternative is a file of its own with title, task and edits ([[edit]], each with its region).
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
_FIELDS = {"title", "loses", "message", "edit", "includes", "dies", "like", "waits", "why"}
_ALTERNATIVE_FIELDS = {"title", "task", "edit", "includes", "why"}
_EDIT_FIELDS = {"region", "find", "replace", "whole", "nth", "file"}


class MutantError(Exception):
    """A file of mutants is wrong: file, field, remedy."""


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
    waits: bool = False

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
    for path in sorted((root / FOLDER).glob("*.toml")):
        found += load_step(path, course)
    for path in sorted((root / FOLDER / "alternatives").glob("*.toml")):
        found.append(load_alternative(path, course))
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


def load_step(path: Path, course: manifest.Manifest) -> list[Mutant]:
    """The file of one step. Edits are tried on the reference only when sources() is called."""
    try:
        task = course.task_of_step(path.stem)
    except manifest.ManifestError as error:
        raise MutantError(f"{path.name}: {error}; a file is named after a step") from error
    return [_mutant(f"{path.name}: {name}", name, table, task, path.stem)
            for name, table in _read(path).items()]


def load_alternative(path: Path, course: manifest.Manifest) -> Mutant:
    where, table = f"{path.parent.name}/{path.name}", _read(path)
    _check_fields(where, table, {"title", "task", "edit"}, _ALTERNATIVE_FIELDS)
    task = course.task(table["task"])
    return Mutant(path.stem, table["title"], task, "", (), "",
                  _edits(where, table["edit"], task, ""), tuple(table.get("includes", ())))


def _read(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MutantError(f"{path.name}: {error}") from error


def _mutant(where: str, name: str, table: dict, task: manifest.Task, step: str) -> Mutant:
    _check_fields(where, table, {"title", "message", "edit"}, _FIELDS)
    loses = tuple(table.get("loses", (step,)))
    steps = [each.id for each in task.steps]
    for each in loses:
        if each not in steps:
            raise MutantError(f"{where}: {each} is no step of task {task.number}")
    if step not in loses:
        raise MutantError(f"{where}: step {step} must be one of loses")
    try:
        re.compile(table["message"])
    except re.error as error:
        raise MutantError(f"{where}: message is no regular expression: {error}") from error
    return Mutant(name, table["title"], task, step, loses, table["message"],
                  _edits(where, table["edit"], task, step), tuple(table.get("includes", ())),
                  bool(table.get("dies", False)), tuple(table.get("like", ())),
                  bool(table.get("waits", False)))


def _edits(where: str, tables: list[dict], task: manifest.Task,
           step: str) -> dict[str, list[regions.Edit]]:
    edits: dict[str, list[regions.Edit]] = {}
    for table in tables:
        _known(f"{where}: an edit", table, _EDIT_FIELDS)
        region = table.get("region", step)
        if not region:
            raise MutantError(f"{where}: an edit needs region = \"n.m\"")
        name = table.get("file", task.files[0] if len(task.files) == 1 else None)
        if name not in task.files:
            raise MutantError(f"{where}: an edit needs file, one of {', '.join(task.files)}")
        has = ("find" in table and "replace" in table, "whole" in table)
        if has not in ((True, False), (False, True)) or ("find" in table) != ("replace" in table):
            raise MutantError(f"{where}: an edit has find and replace, or whole")
        edits.setdefault(name, []).append(regions.Edit(
            region, table.get("find"), table.get("replace"), table.get("whole"),
            table.get("nth")))
    if not edits:
        raise MutantError(f"{where}: no [[edit]]")
    return edits


def _check_fields(where: str, table: dict, needed: set[str], known: set[str]) -> None:
    _known(where, table, known)
    for name in sorted(needed - set(table)):
        raise MutantError(f"{where}: the field '{name}' is missing")


def _known(where: str, table: dict, known: set[str]) -> None:
    for name in sorted(set(table) - known):
        raise MutantError(f"{where}: unknown field '{name}'; known are {', '.join(sorted(known))}")
