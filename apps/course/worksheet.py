"""Checks the worksheet of the writeup: writeup/worksheet.toml against writeup/worksheet.md.

Every expression (expression.py, over named values) must give the answer; the chapter must ask the
question in the same words and print the same number.

    python3 apps/course/worksheet.py            prints what is wrong, one a line; 1 if anything is
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import expression

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("id", "question", "expression", "unit", "answer", "line")


class WorksheetError(Exception):
    """What is wrong, with the place and the remedy."""


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
    try:
        value = expression.evaluate(question["expression"], values)
    except expression.ExpressionError as error:
        raise WorksheetError(f"expression {question['expression']!r}: {error}") from error
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
