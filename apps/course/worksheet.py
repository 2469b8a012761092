"""Checks the worksheet of the writeup: writeup/worksheet.toml against writeup/worksheet.md.

Every expression is evaluated exactly (+ - * / // ** ( ) min max ceil over named values) and must
give the answer; the chapter must ask the question in the same words and print the same number.

    python3 apps/course/worksheet.py            prints what is wrong, one a line; 1 if anything is
"""

from __future__ import annotations

import argparse
import ast
import math
import operator
import sys
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("id", "question", "expression", "unit", "answer", "line")
_OPERATORS: Mapping[type, Callable] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow}
_FUNCTIONS: Mapping[str, Callable] = {"min": min, "max": max, "ceil": math.ceil}


class WorksheetError(Exception):
    """What is wrong, with the place and the remedy."""


def evaluate(expression: str, values: Mapping[str, int]) -> Fraction:
    """The exact value of plain arithmetic over `values`."""
    try:
        return _value(ast.parse(expression, mode="eval").body, values)
    except (SyntaxError, ZeroDivisionError) as error:
        raise WorksheetError(f"expression {expression!r}: {error}") from error


def _value(node: ast.expr, values: Mapping[str, int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.Name):
        if node.id not in values:
            raise WorksheetError(f"unknown value {node.id}; add it to [values]")
        return Fraction(values[node.id])
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return Fraction(_OPERATORS[type(node.op)](_value(node.left, values),
                                                  _value(node.right, values)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            and node.func.id in _FUNCTIONS and not node.keywords):
        return Fraction(_FUNCTIONS[node.func.id](*[_value(each, values) for each in node.args]))
    raise WorksheetError(f"{ast.unparse(node)!r} is not plain arithmetic over whole numbers: use "
                         "+ - * / // ** ( ) min max ceil")


def printed(answer: int | float | Fraction, decimals: int) -> str:
    """How the chapter writes a number: 1,234,567 or 100.41."""
    return f"{float(answer):,.{decimals}f}" if decimals else f"{round(answer):,}"


def _asked(text: list[str], number: str) -> str:
    """The question the chapter asks under `number`, its lines joined."""
    begins = [i for i, line in enumerate(text) if line.startswith(f"**{number}** ")]
    if len(begins) != 1:
        raise WorksheetError(f"the chapter asks it {len(begins)} times; write one paragraph that "
                             f"begins with **{number}**")
    end = begins[0]
    while end < len(text) and text[end].strip():
        end += 1
    return " ".join(text[begins[0]:end]).removeprefix(f"**{number}** ")


def check_question(question: Mapping, values: Mapping[str, int], text: list[str]) -> None:
    """Raises WorksheetError at the first thing that is wrong with one question."""
    missing = [field for field in FIELDS if field not in question]
    if missing:
        raise WorksheetError(f"lacks {', '.join(missing)}")
    decimals = question.get("decimals", 0)
    value = evaluate(question["expression"], values)
    if decimals == 0 and value.denominator != 1:
        raise WorksheetError(f"the expression gives {float(value)}, not a whole number; set "
                             "decimals or use ceil")
    if round(value, decimals) != Fraction(str(question["answer"])):
        raise WorksheetError(f"the expression gives {printed(round(value, decimals), decimals)}, "
                             f"the answer says {question['answer']}")
    asked = _asked(text, question["id"])
    if asked != question["question"]:
        raise WorksheetError(f"the chapter asks {asked!r}, the sheet {question['question']!r}")
    lines = [line for line in text if line.startswith(question["line"])]
    wanted = f" {printed(question['answer'], decimals)} {question['unit']} "
    if len(lines) != 1 or wanted not in lines[0]:
        raise WorksheetError(f"no single line of the chapter begins with {question['line']!r} and "
                             f"contains {wanted.strip()!r}; it has {lines}")


def check(sheet: Path, chapter: Path) -> tuple[int, list[str]]:
    """The number of questions, and what is wrong with them."""
    data = tomllib.loads(sheet.read_text(encoding="utf-8"))
    text = chapter.read_text(encoding="utf-8").splitlines()
    questions = data.get("question", [])
    wrong = [] if questions else [f"{sheet.name}: no [[question]] in it"]
    ids = [question.get("id", "?") for question in questions]
    wrong += [f"{sheet.name}: {number} is there twice" for number in sorted(set(ids))
              if ids.count(number) > 1]
    asked = [line.split("**")[1] for line in text if line.startswith("**W") and "** " in line]
    wrong += [f"{chapter.name}: {number} is asked but not in {sheet.name}" for number in asked
              if number not in ids]
    for number, question in zip(ids, questions):
        try:
            check_question(question, data.get("values", {}), text)
        except WorksheetError as error:
            wrong.append(f"{sheet.name}, {number}: {error}")
    return len(questions), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sheet", type=Path, default=ROOT / "writeup" / "worksheet.toml")
    parser.add_argument("--chapter", type=Path, default=ROOT / "writeup" / "worksheet.md")
    arguments = parser.parse_args()
    count, wrong = check(arguments.sheet, arguments.chapter)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{count} questions, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
