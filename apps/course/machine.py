"""What this machine has for graders: processors and memory, a container's limits included."""

from __future__ import annotations

import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")  # in a container its own; version 2, or else 1


def processors(group: Path = _GROUP) -> float:
    """How many this process may use: half a one is possible."""
    most = float(len(os.sched_getaffinity(0)))
    words = _read(group / "cpu.max").split() or [
        *_read(group / "cpu/cpu.cfs_quota_us").split(),
        *_read(group / "cpu/cpu.cfs_period_us").split()]
    if len(words) == 2 and words[0].isdigit():
        most = min(most, int(words[0]) / int(words[1]))
    return most


def memory(group: Path = _GROUP, known: Path = Path("/proc/meminfo")) -> int:
    """The bytes that are free, or would be at once."""
    free = next((int(line.split()[1]) << 10 for line in _read(known).splitlines()
                 if line.startswith("MemAvailable:")), 0)
    for most, used in (("memory.max", "memory.current"),
                       ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        limit, taken = _read(group / most).strip(), _read(group / used).strip()
        if limit.isdigit() and taken.isdigit():
            free = min(free, int(limit) - int(taken))
    return free


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
