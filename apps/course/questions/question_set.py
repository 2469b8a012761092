"""The questions as a student sees them: read from task1.toml … task8.toml, numbers drawn by id.

Nothing in this file, nor in the .toml files, knows an answer.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

import question_units

FOLDER = Path(__file__).resolve().parent
KINDS = ("integer", "decimal", "name")
_FIELDS = {"id", "title", "read", "kind", "quantity", "unit", "text", "draw"}


class QuestionError(Exception):
    """A question file says something that cannot be."""


@dataclass(frozen=True)
class Question:
    """One question, for all students."""

    task: int
    id: str  # "q1"
    title: str
    read: str  # where the student finds what is needed
    kind: str  # "integer": exact; "decimal": to one part in a thousand; "name": a unit of the model
    quantity: str  # of question_units
    unit: str  # in which the text asks
    text: str  # with {name} for what is drawn
    choices: dict[str, tuple[int, ...]]
    names: tuple[str, ...] = ()  # kind "name": what can be answered

    @property
    def key(self) -> str:
        return f"{self.task}.{self.id}"

    def draw(self, student: str, course: str) -> dict[str, int]:
        """The numbers of this student: the same on every machine and in every version."""
        return {name: values[_hash(course, self.key, student, name) % len(values)]
                for name, values in self.choices.items()}

    def text_for(self, numbers: dict[str, int]) -> str:
        return self.text.format_map(numbers).strip()


def normal_id(text: str) -> str:
    """An id, without what does not tell two students apart."""
    return text.strip().lower()


def course() -> str:
    """The name of the course: a part of what the numbers are drawn from (course.toml)."""
    return str(tomllib.loads((FOLDER / "course.toml").read_text(encoding="utf-8"))["course"])


def load(task: int) -> tuple[Question, ...]:
    """The questions of a task, in order."""
    path = FOLDER / f"task{task}.toml"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise QuestionError(f"{path}: {error}") from error
    return tuple(_read(path, task, i, table) for i, table in enumerate(document["question"], 1))


def _hash(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:8], "big")


def _read(path: Path, task: int, number: int, table: dict) -> Question:
    where = f"{path}: question {number}"
    if table.get("id") != f"q{number}":
        raise QuestionError(f"{where}: id = {table.get('id')!r}; questions are numbered q1, q2, …")
    if missing := _FIELDS - set(table):
        raise QuestionError(f"{where}: the field '{sorted(missing)[0]}' is missing")
    if unknown := set(table) - _FIELDS - {"names"}:
        raise QuestionError(f"{where}: unknown field '{sorted(unknown)[0]}'")
    if table["kind"] not in KINDS:
        raise QuestionError(f"{where}: kind = {table['kind']!r}; one of {', '.join(KINDS)}")
    if table["unit"] not in question_units.UNITS.get(table["quantity"], {}):
        raise QuestionError(f"{where}: {table['unit']!r} is no unit of {table['quantity']!r}")
    fields = {name: table[name] for name in _FIELDS - {"draw"}}
    choices = {name: _choices(f"{where}, draw.{name}", values)
               for name, values in table["draw"].items()}
    return Question(task=task, choices=choices, names=tuple(table.get("names", ())), **fields)


def _choices(where: str, values: object) -> tuple[int, ...]:
    """`[4, 8]` as it is; `{ from = 1001, to = 2001, step = 10 }` as the numbers it means."""
    if isinstance(values, dict):
        values = list(range(values["from"], values["to"] + 1, values.get("step", 1)))
    if not isinstance(values, list) or not values or not all(type(v) is int for v in values):
        raise QuestionError(f"{where}: write a list of whole numbers, or from, to and step")
    return tuple(values)
