"""Reads answers.toml, a stranger's file: what was answered, in base units, or what is wrong."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import expression
import question_units
from question_set import Question

MAX_BYTES = 32 * 1024
MAX_LINE = 1000  # tomllib takes quadratic time for a key of many parts
_MAX_TEXT = 200
_KEYS = ("value", "unit", "work")


@dataclass
class Answer:
    """One answer. `value` is None if the question was left open or the form is wrong."""

    value: Fraction | str | None = None
    number: Fraction = Fraction(0)  # as written, before the unit
    unit: str = ""
    work: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.value is None and not self.problems


@dataclass
class Form:
    """The whole file. `problems` are those that belong to no question."""

    id: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def all_problems(self) -> list[str]:
        return self.problems + [p for answer in self.answers.values() for p in answer.problems]


def read(path: Path, questions: tuple[Question, ...]) -> Form:
    """The form in `path`; never raises for what the file holds."""
    form = Form(answers={question.id: Answer() for question in questions})
    try:
        document = tomllib.loads(_text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else _plain(str(error))
        form.problems.append(f"{path.name}: cannot be read: {reason}. Compare it with the file as "
                             f"it was handed out")
        return form

    student = document.pop("id", "")
    if not isinstance(student, str) or len(student) > _MAX_TEXT or not student.isprintable():
        form.problems.append(f'{path.name}, id: write your course e-mail in quotes: '
                             f'id = "me@school.edu"')
    else:
        form.id = student.strip()
    for question in questions:
        table = document.pop(question.id, {})
        where = f"{path.name}, [{question.id}]"
        if isinstance(table, dict):
            form.answers[question.id] = _read_answer(where, question, table)
        else:
            form.answers[question.id].problems.append(
                f"{where}: must be a section, [{question.id}], with value, unit and work below it")
    for name in list(document)[:4]:
        form.problems.append(f"{path.name}: {expression.shown(name)} is neither id nor a question; "
                             f"there are {', '.join(q.id for q in questions)}")
    return form


def _text_of(path: Path) -> str:
    """The text of a regular file of bounded size; a link or a pipe is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES // 1024} KiB")
    text = data.decode("utf-8").replace("\r\n", "\n")
    if any(len(line) > MAX_LINE for line in text.split("\n")):
        raise ValueError(f"a line is longer than {MAX_LINE} characters")
    return text


def _read_answer(where: str, question: Question, table: dict) -> Answer:
    answer = Answer()
    for name in list(table):
        if name not in _KEYS:
            answer.problems.append(f"{where}: {expression.shown(name)} is not a field; write "
                                   f"value, unit and work")
    raw, unit, work = (table.get(name, "") for name in _KEYS)
    if not isinstance(work, str):
        answer.problems.append(f'{where}, work: write it in quotes, or leave it empty: work = ""')
    else:
        answer.work = work.strip()
    if raw == "":
        return answer
    if question.kind == "name":
        _read_name(where, question, raw, answer)
    else:
        _read_number(where, question, raw, answer)
    _read_unit(where, question, unit, answer)
    if answer.problems:
        answer.value = None
    elif question.kind != "name":
        answer.value = question_units.base_value(question.quantity, answer.number, answer.unit)
    return answer


def _read_name(where: str, question: Question, raw: object, answer: Answer) -> None:
    plain = str(raw).strip().lower().replace(" ", "").replace("_", "")[:_MAX_TEXT]
    if isinstance(raw, str) and plain in question.names:
        answer.value = plain
        return
    answer.problems.append(f"{where}, value: {expression.shown(str(raw)[:_MAX_TEXT])} is no unit "
                           f"of the model; write one of {', '.join(question.names)}, in quotes")


def _read_number(where: str, question: Question, raw: object, answer: Answer) -> None:
    if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        answer.problems.append(f"{where}, value: write a number, like 4096 or 0.75")
        return
    if isinstance(raw, int) and raw.bit_length() > 200:
        answer.problems.append(f"{where}, value: that number is too large")
        return
    try:
        answer.number = expression.number(str(raw))
    except expression.ExpressionError as error:
        answer.problems.append(f"{where}, value: {error}")


def _read_unit(where: str, question: Question, raw: object, answer: Answer) -> None:
    unit = question_units.canonical(question.quantity, raw) if isinstance(raw, str) else None
    if unit is None and question.kind == "name" and raw == "":
        unit = question.unit
    if unit is not None:
        answer.unit = unit
        return
    said = expression.shown(str(raw)[:_MAX_TEXT]) if raw != "" else "empty"
    answer.problems.append(f"{where}, unit: is {said}; write one of "
                           f"{question_units.alternatives(question.quantity)}, in quotes")


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:_MAX_TEXT]
