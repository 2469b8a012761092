"""The units an answer may be given in, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

# quantity -> (unit as it is to be written -> factor to the first one, which is the base unit)
UNITS: dict[str, dict[str, Fraction]] = {
    "bytes": {
        "B": Fraction(1),
        "KB": Fraction(10**3), "MB": Fraction(10**6), "GB": Fraction(10**9), "TB": Fraction(10**12),
        "KiB": Fraction(2**10), "MiB": Fraction(2**20), "GiB": Fraction(2**30),
        "TiB": Fraction(2**40),
    },
    "time": {"ms": Fraction(1), "s": Fraction(1000), "us": Fraction(1, 1000)},
    "tokens": {"tokens": Fraction(1)},
    "elements": {"elements": Fraction(1)},
    "words": {"words": Fraction(1)},
    "factor": {"1": Fraction(1)},
    "name": {"unit": Fraction(1)},
}

_ALSO = {
    "byte": "B", "bytes": "B", "kb": "KB", "mb": "MB", "gb": "GB", "tb": "TB",
    "kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB",
    "millisecond": "ms", "milliseconds": "ms", "second": "s", "seconds": "s", "sec": "s",
    "µs": "us", "μs": "us", "microseconds": "us",
    "token": "tokens", "element": "elements", "word": "words",
    "": "1", "x": "1", "none": "1", "units": "unit", "name": "unit",
}


def canonical(quantity: str, text: str) -> str | None:
    """`text` as one of the quantity's units, or None. 'Mb' could mean bits: it is refused."""
    known = UNITS[quantity]
    plain = text.strip()
    if plain in known:
        return plain
    if plain in ("b", "Kb", "Mb", "Gb", "Tb"):
        return None
    other = _ALSO.get(plain.lower())
    return other if other in known else None


def base_value(quantity: str, value: Fraction, unit: str) -> Fraction:
    """The value in the quantity's base unit."""
    return value * UNITS[quantity][unit]


def alternatives(quantity: str) -> str:
    """The units, for a message: 'B, KB, …'."""
    return ", ".join(UNITS[quantity])


def right_number_wrong_unit(quantity: str, value: Fraction, unit: str,
                            is_right: Callable[[Fraction], bool]) -> str | None:
    """The one other unit with which the number would be right, if there is exactly one."""
    fitting = [each for each in UNITS[quantity]
               if each != unit and is_right(base_value(quantity, value, each))]
    return fitting[0] if len(fitting) == 1 else None
