"""Ranks that are processes of MPI: what differs when a runner is judged with BACKEND=mpi.

A judge starts run_case.sh where it would start a runner, and that script calls mpirun. What is
judged, and what is said of it, stays the same.
"""

from __future__ import annotations

import re
from pathlib import Path

BUILDS = {"threads": "grade", "mpi": "grade-mpi"}  # by backend: the preset, and its build folder
SCRIPTS = ("run_case.sh", "mpirun.sh")  # the first calls the second, beside it
SCRIPTS_FOLDER = Path("common") / "scripts"
# Starting processes takes processor time, and ranks that wait look for messages.
CPU_FACTOR = 3


class LauncherError(Exception):
    """The build has no launcher."""


def environment(build: Path, scripts: Path) -> dict[str, str]:
    """What tells a judge to start ranks as processes; nothing if `build` has ranks as threads.
    `scripts` holds SCRIPTS."""
    found = re.search(r"(?m)^FSDP_MPIRUN:[^=]*=(.+)$",
                      (build / "CMakeCache.txt").read_text(encoding="utf-8"))
    if found is None:
        return {}
    if found[1].endswith("NOTFOUND"):
        raise LauncherError(f"{build}: it was configured without mpirun. Delete this folder, install "
                            "openmpi-bin and try again")
    return {"FSDP_LAUNCHER": found[1], "FSDP_RUN_CASE": str(scripts / SCRIPTS[0])}
