"""make show-task3: a small program that shows what a task does now, with the student's own code.

The programs are apps/show. They print what they see and check it; a step that is not written yet
is one sentence.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import manifest

SECONDS = 60  # any of them takes less than one; this ends an endless loop


def show(root: Path, task: manifest.Task, whose: str, tools) -> int:
    """Builds the program of a task and runs it. 0: all that it checked holds."""
    if whose == "solution" and not (root / "solutions" / task.folder).is_dir():
        raise manifest.ManifestError(f"IMPL={whose}: this kit has no reference of task "
                                     f"{task.number}")
    name = f"show_task{task.number}" + ("_solution" if whose == "solution" else "")
    tools.make(name)
    try:
        code = subprocess.run([str(tools.program(name))], cwd=root, check=False,
                              timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"Task {task.number} did not end within {SECONDS} seconds; next: make "
              f"test-task{task.number}")
        return 1
    if code < 0:
        print(f"Task {task.number} crashed ({signal.Signals(-code).name}); next: make "
              f"test-task{task.number}")
        return 1
    return code
