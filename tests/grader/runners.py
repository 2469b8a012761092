"""Grades the reference through every runner, and compares the points: minutes, so by hand, as root.

    runners.py [--built]

make grade, and Gradescope and Autolab in the folders that their documentation describes. Their
images, in which setup.sh builds a tree, have this tree instead.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autolab_stand_in
import course_path  # noqa: F401  must come first
import autolab
import autograder
import gradescope
import grade
import manifest
import reference_submission
import submission

Points = dict[str, float]  # by task


def points(results: dict[str, Any], course: manifest.Manifest) -> Points:
    return autolab.scores(results, [task.number for task in course.tasks])


def by_make_grade(archive: Path, folder: Path, course: manifest.Manifest) -> Points:
    with contextlib.redirect_stdout(io.StringIO()):
        grade.main([str(archive), "--output", str(folder), "--built", "--submitter",
                    reference_submission.STUDENT])
    return points(json.loads((folder / "results.json").read_text(encoding="utf-8")), course)


def by_gradescope(archive: Path, folder: Path, course: manifest.Manifest) -> Points:
    for name in ("source", "submission"):
        (folder / name).mkdir(parents=True)
    (folder / "source" / "unshard").symlink_to(manifest.ROOT)
    (folder / "submission" / archive.name).write_bytes(archive.read_bytes())
    (folder / "submission_metadata.json").write_text(
        json.dumps({"users": [{"email": reference_submission.STUDENT}]}), encoding="utf-8")
    subprocess.run(["bash", gradescope.HERE / "gradescope_image" / "run_autograder"], check=True,
                   env={**os.environ, "AUTOGRADER_ROOT": str(folder)}, stdout=subprocess.DEVNULL)
    return points(json.loads((folder / "results" / "results.json").read_text(encoding="utf-8")),
                  course)


def by_autolab(archive: Path, folder: Path, _: manifest.Manifest) -> Points:
    folder.mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        autolab.pack(autolab.parse(["pack", "--output", str(folder / "lab")]))
    scores, feedback = autolab_stand_in.grade(folder / "lab", archive, folder / "instance",
                                              f"COURSE={manifest.ROOT}")
    if scores is None:
        raise RuntimeError(f"Autolab would show no score, but:\n{feedback}")
    return scores


RUNNERS: dict[str, Callable[[Path, Path, manifest.Manifest], Points]] = {
    "make grade": by_make_grade, "Gradescope": by_gradescope, "Autolab": by_autolab}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    options = parser.parse_args()
    course = manifest.load()
    if not options.built:
        grade.prepare(manifest.ROOT / "build" / "grade", list(course.tasks))
    full = {f"task{task.number}": float(task.points) for task in course.tasks}
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / "submission.tar.gz"
        archive.write_bytes(submission.pack(reference_submission.files(course)))
        for runner, call in RUNNERS.items():
            began, used = time.monotonic(), autograder.processor_seconds()
            found = call(archive, Path(name) / runner.replace(" ", "_"), course)
            wrong += found != full
            print(f"{runner:<12} {sum(found.values()):g} of {sum(full.values()):g} points in "
                  f"{autograder.processor_seconds() - used:.1f} s of processor time, "
                  f"{time.monotonic() - began:.0f} s by the clock"
                  f"{'' if found == full else f': {found}'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
