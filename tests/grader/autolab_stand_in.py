"""What Autolab does with a lab and a submission, by its guide for lab authors, in a folder here.

It copies the submission, under the lab's base name, and the two files of the lab into an empty
folder, names autograde-Makefile Makefile, and runs make there. What make prints is the feedback.
Its last line is JSON with the score of each problem.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from outer_make import without_outer_make

LAB = ("autograde.tar", "autograde-Makefile")


def grade(lab: Path, submission: Path, folder: Path, *variables: str,
          base_name: str = "submission.tar.gz") -> tuple[dict[str, Any] | None, str]:
    """(the scores by problem, or None where there are none; the feedback). `variables` are given to
    make: where the image has its things."""
    folder.mkdir()
    shutil.copyfile(submission, folder / base_name)
    for name in LAB:
        shutil.copyfile(lab / name, folder / ("Makefile" if name == LAB[1] else name))
    done = subprocess.run(["make", *variables], cwd=folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env=without_outer_make())
    lines = done.stdout.splitlines()
    try:
        return json.loads(lines[-1])["scores"], "\n".join(lines[:-1])
    except (IndexError, ValueError, KeyError, TypeError):
        return None, done.stdout
