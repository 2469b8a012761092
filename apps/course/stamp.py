"""Notes how files are, to tell later whether what was made of them is still up to date.

A container's image keeps whole seconds of their times, so these count as the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_SECOND = 10**9  # nanoseconds


def of(files: Iterable[str | os.PathLike[str]]) -> str:
    """A line for each file: its time, its size, its name. A file that is not there has neither."""
    return "".join(f"{time} {size} {name}\n" for name, time, size in map(_look, files))


def holds(noted: str, files: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether of(files) would be `noted`, but for fractions of seconds that were lost."""
    lines, now = noted.splitlines(), of(files).splitlines()
    return len(lines) == len(now) and all(map(_is_same, lines, now))


def names(noted: str) -> list[str]:
    """The files of `noted`. (Of a text in another form: something of which holds() is false.)"""
    return [line.split(" ", 2)[-1] for line in noted.splitlines()]


def _look(name: str | os.PathLike[str]) -> tuple[str, int, int]:
    try:
        info = os.stat(name)
    except OSError:
        return os.fspath(name), 0, -1
    return os.fspath(name), info.st_mtime_ns, info.st_size


def _is_same(before: str, now: str) -> bool:
    (time_before, _, rest_before), (time, _, rest) = before.partition(" "), now.partition(" ")
    if before == now:
        return True
    return (rest_before == rest and time_before.isdigit()
            and int(time) == int(time_before) // _SECOND * _SECOND)
