"""What the autograders for Gradescope and Autolab have in common: the course as a package, its
settings, and setting it up where submissions are graded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grade
import gradescope_results
import kit
import manifest
import race
import reference_submission

SETTINGS = manifest.ROOT / "autograder.json"  # only in a package
FOLDER = "unshard"  # of the package
_LEFT_OUT = ("writeup/", "docs/", ".ci/", ".git", "tests/mutants/", "tests/golden/",
             "tests/solutions/", "build/")


def numbers(task: str, course: manifest.Manifest) -> list[int]:
    """"3", or "all", as task numbers."""
    return ([each.number for each in course.tasks] if task in ("", "all")
            else [course.task(int(task)).number])


def package(settings: dict[str, Any]) -> dict[str, tuple[bytes, bool]]:
    """The files of the package by path: their bytes, and whether they can be run."""
    files = {f"{FOLDER}/{SETTINGS.name}": ((json.dumps(settings) + "\n").encode(), False)}
    for name in kit.files_of_tree(manifest.ROOT):
        if not name.startswith(_LEFT_OUT):
            path = manifest.ROOT / name
            files[f"{FOLDER}/{name}"] = (path.read_bytes(), os.access(path, os.X_OK))
    return files


def settings_here() -> dict[str, Any]:
    try:
        return json.loads(SETTINGS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return settings_for([task.number for task in manifest.load().tasks])


def settings_for(tasks: list[int], hidden: str = "after_published",
                 deadline: float = grade.DEADLINE, with_race: bool = False) -> dict[str, Any]:
    return {"tasks": tasks, "hidden": hidden, "deadline": deadline, "race": with_race,
            "grader": gradescope_results.versions()[1]}


def points_of(course: manifest.Manifest, tasks: list[int]) -> str:
    """"10 points, and 15 extra" """
    packed = [course.task(number) for number in tasks]
    points = sum(task.points for task in packed if not task.extra or len(packed) == 1)
    extra = sum(task.points for task in packed) - points
    return f"{points} points{f', and {extra} extra' if extra else ''}"


def setup(options: argparse.Namespace) -> int:
    """Compiles all that is trusted, then grades the reference: all points, or the image fails."""
    settings = settings_here()
    course = manifest.load()
    tasks = [course.task(number) for number in settings["tasks"]]
    build = manifest.ROOT / "build" / "grade"
    done = subprocess.run(["cmake", "--build", str(build), "-j", str(options.jobs), "--target",
                           *grade.targets_of(tasks)], cwd=manifest.ROOT, check=False)
    if done.returncode != 0:
        return done.returncode
    grade.prepare(build, tasks)  # what a grading makes first, and keeps
    if settings["race"]:
        release = manifest.ROOT / "build" / "release"
        for command in (["cmake", "--preset", "release", "-DFSDP_NATIVE=OFF", "--log-level=NOTICE"],
                        ["cmake", "--build", str(release), "-j", str(options.jobs), "--target",
                         race.JUDGE, race.POLICY]):
            done = subprocess.run(command, cwd=manifest.ROOT, check=False)
            if done.returncode != 0:
                return done.returncode
    with tempfile.TemporaryDirectory() as folder:
        reference_submission.write(Path(folder) / "s", reference_submission.files(course))
        started, used = time.monotonic(), processor_seconds()
        code = grade.main([str(Path(folder) / "s"), "--output", str(Path(folder) / "out"),
                           "--built", "--full", "--submitter", reference_submission.STUDENT,
                           *(word for task in tasks for word in ("--task", str(task.number)))])
    print(f"The reference took {processor_seconds() - used:.0f} s of CPU time, "
          f"{time.monotonic() - started:.0f} s by the clock.")
    if code != 0:
        print("The reference has not all points here: the image is not usable.", file=sys.stderr)
    return code


def processor_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system + times.user + times.system
