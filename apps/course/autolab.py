"""The autograder for Autolab: make autolab TASK=3, or TASK=all.

    autolab.py pack [--task 3] [--output build/autolab]
    autolab.py run submission.tar.gz     in the image, where Autolab's Makefile calls it

Packs a folder with autograde.tar and autograde-Makefile, which a lab is made of, and the Dockerfile
of the image. What a run prints is the student's feedback; its last line gives each task's score.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tarfile
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import autograder
import builder
import grade
import gradescope_results
import manifest
import whole_file

IMAGE = Path(__file__).resolve().parent / "autolab_image"
PACKAGE = "autograde.tar"


class StaleImage(Exception):
    """The image was made of another tree than the lab."""


def pack(options: argparse.Namespace) -> int:
    """Writes the folder."""
    course = manifest.load()
    tasks = autograder.numbers(options.task, course)
    output = options.output or manifest.ROOT / "build" / (
        "autolab" + ("" if options.task in ("", "all") else f"-task{tasks[0]}"))
    buffer = io.BytesIO()
    # Autolab shows a score with its parts at once: it knows no cases that are hidden for now.
    files = autograder.package(autograder.settings_for(tasks, "visible", options.deadline))
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, runs) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if runs else 0o644
            archive.addfile(entry, io.BytesIO(data))
    whole_file.write(output / PACKAGE, buffer.getvalue())
    for source, name in (("autograde.mk", "autograde-Makefile"), ("Dockerfile", "Dockerfile")):
        whole_file.write(output / name, (IMAGE / source).read_bytes())
    problems = [f"{problem_of(task)} ({course.task(task).points})" for task in tasks]
    print(f"{os.path.relpath(output)}: {PACKAGE} ({len(buffer.getvalue()) >> 10} KiB), "
          f"autograde-Makefile, Dockerfile; {autograder.points_of(course, tasks)}.\n"
          f"The lab's problems, and the most points of each: {', '.join(problems)}.")
    return 0


def problem_of(task: int) -> str:
    """What a task is called in the lab."""
    return f"task{task}"


def settings_of(folder: Path) -> dict[str, Any]:
    """Those of the lab whose files Autolab has put into `folder`."""
    with tarfile.open(folder / PACKAGE) as archive:
        file = archive.extractfile(f"{autograder.FOLDER}/{autograder.SETTINGS.name}")
        settings = json.loads(file.read())  # type: ignore[union-attr]
    here = gradescope_results.versions()[1]
    if settings["grader"] != here:
        raise StaleImage(f"{PACKAGE} is of grader {settings['grader']}, and the image of grader "
                         f"{here}. Build the image anew")
    return settings


def run(options: argparse.Namespace) -> int:
    """Grades what was handed in. Where the grader fails there is no score: not 0 points."""
    with tempfile.TemporaryDirectory(prefix="unshard-autolab-") as name:
        output = Path(name)
        try:
            # What grade.py prints is for those who may see what failed in a hidden case.
            with grade.hidden_from_jail(Path.cwd()), redirect_stdout(io.StringIO()):
                settings = settings_of(Path.cwd())
                code = grade.main([
                    str(options.handin.resolve()), "--output", str(output), "--built",
                    "--hidden", settings["hidden"], "--deadline", str(settings["deadline"]),
                    *(word for each in settings["tasks"] for word in ("--task", str(each)))])
            if code == 2:
                raise OSError("see above")
            results = json.loads((output / "results.json").read_text(encoding="utf-8"))
        except Exception as error:  # pylint: disable=broad-except  # a defect of ours
            print("The autograder itself failed; the submission is not to blame. Tell your "
                  f"instructor: {error}")
            return 1
    print(feedback(results))
    print(json.dumps({"scores": scores(results, settings["tasks"])}))
    return 0


def feedback(results: dict[str, Any]) -> str:
    """What the student reads: a line for each test, and why it failed."""
    lines = [results["output"], ""]
    for test in results["tests"]:
        lines.append(f"{test['name']}: {test['score']:g} / {test['max_score']:g}")
        if test["status"] != "passed":
            lines += [f"    {line}".rstrip() for line in test["output"].splitlines()]
    return "\n".join(lines)


def scores(results: dict[str, Any], tasks: list[int]) -> dict[str, float]:
    return {problem_of(task): sum(test["score"] for test in results["tests"]
                                  if f"task{task}" in test["tags"]) for task in tasks}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    each = commands.add_parser("pack")
    each.set_defaults(call=pack)
    each.add_argument("--task", default="all", help="a number, or all")
    each.add_argument("--deadline", type=float, default=grade.DEADLINE)
    each.add_argument("--output", type=Path)
    each = commands.add_parser("run")
    each.set_defaults(call=run)
    each.add_argument("handin", type=Path)
    return parser.parse_args(arguments)


def main() -> int:
    options = parse(None)
    try:
        return options.call(options)
    except (manifest.ManifestError, builder.BuildError, ValueError) as error:
        print(f"autolab: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
