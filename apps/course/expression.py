"""A small calculator for the `work` field of answers.toml: the text is a stranger's, so nothing is
ever handed to eval, and length, depth and size of numbers are bounded.

    numbers    12   1_000   0.5   4e9        functions  min(a, …)  max(a, …)  ceil(x)  floor(x)
    operators  + - * / // ** ( )             names      the drawn numbers of the question

Precedence is Python's. Everything is exact (fractions) but a power with a broken exponent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

MAX_LENGTH = 500
MAX_DEPTH = 40
MAX_DIGITS = 60
_MAX_BITS = 400  # of a numerator or a denominator: about 120 decimal digits
_MAX_EXPONENT = 64
_MAX_ARGUMENTS = 32

_TOKEN = re.compile(r"[ \t\n]*(?:(?P<number>(?:[0-9][0-9_]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
                    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>\*\*|//|[-+*/(),]))")


class ExpressionError(Exception):
    """What is wrong with an expression, in words for the one who wrote it."""


def number(text: str) -> Fraction:
    """`text` as an exact number: 12, 1_000, -0.5, 4e9."""
    plain = text.strip().replace("_", "")
    if len(plain) > MAX_DIGITS:
        raise ExpressionError(f"a number of more than {MAX_DIGITS} characters")
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,2})?", plain):
        raise ExpressionError(f"{shown(text)} is not a number; write it like 4096, 0.75 or 4e9")
    return _bounded(Fraction(plain))


def shown(text: str, limit: int = 40) -> str:
    """A stranger's text in quotes, on one line and not too long."""
    short = text if len(text) <= limit else text[:limit] + "…"
    return repr(short)


def evaluate(text: str, names: Mapping[str, int | Fraction]) -> Fraction:
    """The value of `text`. Raises ExpressionError for anything but a bounded calculation."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters; write a shorter one")
    return _Parser(_tokens(text), names).whole()


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place = 0
    end = len(text.rstrip(" \t\n"))
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise ExpressionError(f"cannot read {shown(text[place:].strip())}; use numbers, names,"
                                  " + - * / // ** ( ), min max ceil floor")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return tokens


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > _MAX_BITS or value.denominator.bit_length() > _MAX_BITS:
        raise ExpressionError("a number on the way is too large (or too finely divided)")
    return value


class _Parser:
    """Recursive descent: sum > product > sign > power > atom."""

    def __init__(self, tokens: list[tuple[str, str]], names: Mapping[str, int | Fraction]) -> None:
        self._tokens = tokens
        self._names = names
        self._next = 0
        self._depth = 0

    def whole(self) -> Fraction:
        value = self._sum()
        if self._next < len(self._tokens):
            raise ExpressionError(f"did not expect {self._tokens[self._next][1]!r} there")
        return value

    def _takes(self, *signs: str) -> str | None:
        if self._next == len(self._tokens):
            return None
        kind, text = self._tokens[self._next]
        if kind != "sign" or text not in signs:
            return None
        self._next += 1
        return text

    def _needs(self, sign: str) -> None:
        if self._takes(sign) is None:
            raise ExpressionError(f"a {sign!r} is missing")

    def _nested(self, rule: Callable[[], Fraction]) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        value = rule()
        self._depth -= 1
        return value

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._takes("+", "-"):
            other = self._product()
            value = _bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while sign := self._takes("*", "//", "/"):
            other = self._signed()
            if sign == "*":
                value = _bounded(value * other)
                continue
            if other == 0:
                raise ExpressionError("a division by zero")
            value = _bounded(value / other if sign == "/" else Fraction(value // other))
        return value

    def _signed(self) -> Fraction:
        if sign := self._takes("+", "-"):
            value = self._nested(self._signed)
            return value if sign == "+" else -value
        return self._power()

    def _power(self) -> Fraction:
        base = self._atom()
        if self._takes("**") is None:
            return base
        return _raised(base, self._nested(self._signed))

    def _atom(self) -> Fraction:
        if self._takes("("):
            value = self._nested(self._sum)
            self._needs(")")
            return value
        if self._next >= len(self._tokens):
            raise ExpressionError("it ends where a number was expected")
        kind, text = self._tokens[self._next]
        self._next += 1
        if kind == "number":
            return number(text)
        if kind == "sign":
            raise ExpressionError(f"did not expect {text!r} there")
        if text in _FUNCTIONS:
            return self._nested(lambda: self._call(text))
        if text not in self._names:
            known = ", ".join(self._names) or "none"
            raise ExpressionError(f"{shown(text)} is no number of the question; there are: {known}")
        return _bounded(Fraction(self._names[text]))

    def _call(self, name: str) -> Fraction:
        self._needs("(")
        arguments = [self._sum()]
        while self._takes(","):
            arguments.append(self._sum())
            if len(arguments) > _MAX_ARGUMENTS:
                raise ExpressionError(f"{name} with more than {_MAX_ARGUMENTS} arguments")
        self._needs(")")
        if name in ("ceil", "floor") and len(arguments) != 1:
            raise ExpressionError(f"{name} takes one number, not {len(arguments)}")
        return _FUNCTIONS[name](arguments)


def _raised(base: Fraction, exponent: Fraction) -> Fraction:
    if abs(exponent) > _MAX_EXPONENT:
        raise ExpressionError(f"an exponent beyond ±{_MAX_EXPONENT}")
    if base == 0 and exponent < 0:
        raise ExpressionError("a division by zero")
    if exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent.numerator) > 2 * _MAX_BITS:
            raise ExpressionError("a number on the way is too large")
        return _bounded(base**exponent.numerator)
    if base < 0:
        raise ExpressionError("a root of a negative number")
    try:
        root = float(base)**float(exponent)
    except OverflowError as error:
        raise ExpressionError("a number on the way is too large") from error
    if not math.isfinite(root):
        raise ExpressionError("a number on the way is too large")
    return _bounded(Fraction(root).limit_denominator(10**15))


_FUNCTIONS: dict[str, Callable[[list[Fraction]], Fraction]] = {
    "min": min,
    "max": max,
    "ceil": lambda arguments: Fraction(math.ceil(arguments[0])),
    "floor": lambda arguments: Fraction(math.floor(arguments[0])),
}
