"""Takes others' right to enter what a jailed program must not read, for as long as grading lasts.

    with hiding.hidden([root / "solutions", …], root / "build"):
        …                                # root only: a jailed program is neither owner nor group

The earlier modes stand in modes-before-grading.json in the second folder, so that several graders
can share a tree (the last one that ends gives the rights back), and so that what a killed grader
left closed is opened when the next one ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jail
import whole_file

RECORD = "modes-before-grading.json"
_LOCK = ".grading"  # held, shared, by every grader at work
_OTHERS = 0o007
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def close(path: Path) -> int | None:
    """Nobody but owner and group enters. Returns the earlier mode, None if nothing changed."""
    mode = path.stat().st_mode & 0o7777
    if not jail.is_root() or not mode & _OTHERS:
        return None
    path.chmod(mode & ~_OTHERS)
    return mode


@contextmanager
def hidden(paths: list[Path], notes: Path) -> Iterator[None]:
    """Closes `paths` that exist, and at the end, however it comes, gives them their modes back."""
    if not jail.is_root():
        yield
        return
    notes.mkdir(parents=True, exist_ok=True)
    holder = os.open(notes / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with alone_in(notes):
            fcntl.flock(holder, fcntl.LOCK_SH)
            _close_all([path.resolve() for path in paths if path.exists()], notes / RECORD)
        yield
    finally:
        # A second signal must not come between: what is closed here would stay closed.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            with alone_in(notes):
                _open_all(holder, notes / RECORD)
        finally:
            os.close(holder)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def alone_in(folder: Path) -> Iterator[int]:
    """Waits until nobody else is in `folder`, then keeps others out. So one grader at a time
    changes modes and the record, or writes results. Gives the handle that holds the lock."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _close_all(paths: list[Path], record: Path) -> None:
    modes = _read(record)
    for path in paths:
        mode = path.stat().st_mode & 0o7777
        if mode & _OTHERS:
            modes[str(path)] = mode
    _write(record, modes)  # before the first chmod: whoever is killed here leaves it complete
    for path in paths:
        close(path)


def _open_all(holder: int, record: Path) -> None:
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # somebody else is still grading, and will do it
    for name, mode in _read(record).items():
        path = Path(name)
        # Not what was changed by hand meanwhile: only what others cannot enter.
        if path.exists() and not path.stat().st_mode & _OTHERS:
            path.chmod(mode)
    record.unlink(missing_ok=True)


def _read(record: Path) -> dict[str, int]:
    try:
        return {str(name): int(mode, 8)
                for name, mode in json.loads(record.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(record: Path, modes: dict[str, int]) -> None:
    whole_file.write(
        record, json.dumps({name: f"{mode:o}" for name, mode in modes.items()}, indent=1) + "\n")
