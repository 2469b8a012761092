"""Runs programs side by side, so many at a time, and tells of each when it has ended."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO


@dataclass
class Ended:
    """How one ended; `said` is the end of its standard error."""

    name: str
    code: int
    said: str
    seconds: float  # by the clock


@dataclass
class _Running:
    name: str
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    handle: int
    began: float

    def ended(self) -> Ended:
        code = self.process.wait()
        seconds = time.monotonic() - self.began
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        return Ended(self.name, code, self.errors.read().decode(errors="replace").strip(), seconds)

    def close(self) -> None:
        self.errors.close()
        os.close(self.handle)


def run(commands: Iterable[tuple[str, list[str]]], jobs: int,
        on_end: Callable[[Ended], None], held: Sequence[int] = ()) -> None:
    """Runs (name, command) in this order, each with the open files `held`. If on_end raises, or this
    process is told to end, those that run are told to end, once, and are waited for."""
    waiting = list(reversed(list(commands)))
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(*waiting.pop(), held))
            ready = select.select([each.handle for each in running], [], [])[0]
            for each in [each for each in running if each.handle in ready]:
                running.remove(each)
                ended = each.ended()
                each.close()
                on_end(ended)
    finally:
        for each in running:
            each.process.terminate()
        for each in running:
            each.process.wait()
            each.close()


def _start(name: str, command: list[str], held: Sequence[int]) -> _Running:
    errors = tempfile.TemporaryFile()
    # A session of its own: Ctrl-C reaches this process alone, which passes it on in order.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=errors, start_new_session=True, pass_fds=held)
    return _Running(name, process, errors, os.pidfd_open(process.pid), time.monotonic())


def time_left(seconds: list[float], left: int, jobs: int) -> float | None:
    """How long `left` more take if they are like those that took `seconds`; None if none has."""
    return sum(seconds) / len(seconds) * left / jobs if seconds else None


def told(seconds: float) -> str:
    """A time that is only estimated, for a progress line."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes} min" if minutes < 90 else f"about {minutes // 60} h {minutes % 60} min"
