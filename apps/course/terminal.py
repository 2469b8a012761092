"""How the student's tools print: in color on a terminal, in lines that fit it; plain lines elsewhere.

NO_COLOR (https://no-color.org) turns the colors off.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass

COLUMNS = 100  # where no terminal says otherwise
_CODES = {"good": "32", "bad": "31", "waiting": "33", "dim": "2"}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_FIELD = re.compile(r" *(observed|expected|broken|likely|run|read|find it): *")


@dataclass(frozen=True)
class Paper:
    """What lines are written on."""

    columns: int = COLUMNS
    is_colored: bool = False

    def paint(self, text: str, kind: str) -> str:
        """`text` in the color of "good", "bad", "waiting" or "dim"."""
        if not (self.is_colored and text) or kind not in _CODES:
            return text
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m"

    def wrapped(self, lines: Iterable[str]) -> list[str]:
        """Lines that fit. What does not goes on below its beginning, indented."""
        return [part for line in lines for part in self._wrap(line)]

    def _wrap(self, line: str) -> list[str]:
        if _width(line) <= self.columns:
            return [line]
        field = _FIELD.match(line)
        start = len(line) - len(line.lstrip(" "))
        indent = " " * (len(field[0]) if field else start + 2 if start else 0)
        parts, now = [], line[:start]
        for word in re.findall(r" *[^ ]+", line[start:]):
            if now.strip() and _width(now) + _width(word) > self.columns:
                parts.append(now)
                now, word = indent, word.lstrip(" ")
            now += word
        return [*parts, now]


def _width(text: str) -> int:
    return len(_ESCAPE.sub("", text))


PLAIN = Paper()


def of_stdout() -> Paper:
    """The paper of this process."""
    if not sys.stdout.isatty():
        return PLAIN
    is_colored = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Paper(max(40, shutil.get_terminal_size((COLUMNS, 24)).columns), is_colored)


def say(*lines: str) -> None:
    """Prints lines so that they fit; a text of several lines counts as those."""
    paper = of_stdout()
    print("\n".join(paper.wrapped(part for line in lines for part in line.split("\n"))), flush=True)
