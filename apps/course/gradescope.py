"""The autograder for Gradescope: make gradescope TASK=3, or TASK=all.

    gradescope.py pack [--task 3] [--hidden after_published] [--output build/unshard-gradescope.zip]
    gradescope.py setup         in the image: compile what is trusted, grade the reference
    gradescope.py run           in the image: grade /autograder/submission

The zip holds setup.sh and run_autograder at its root, and the course under unshard/.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import traceback
import zipfile
from pathlib import Path

import autograder
import builder
import grade
import gradescope_results
import linking
import manifest
import whole_file

HERE = Path(__file__).resolve().parent


def pack(options: argparse.Namespace) -> int:
    """Writes the zip."""
    course = manifest.load()
    tasks = autograder.numbers(options.task, course)
    output = options.output or manifest.ROOT / "build" / (
        "unshard-gradescope" + ("" if options.task in ("", "all") else f"-task{tasks[0]}") + ".zip")
    buffer = io.BytesIO()
    files = autograder.package(autograder.settings_for(tasks, options.hidden, options.deadline,
                                                       options.race))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("setup.sh", "run_autograder"):
            _add(archive, name, (HERE / "gradescope_image" / name).read_bytes(), True)
        for name, (data, runs) in files.items():
            _add(archive, name, data, runs)
    whole_file.write(output, buffer.getvalue())
    print(f"{os.path.relpath(output)}: {len(files)} files, {len(buffer.getvalue()) >> 10} KiB, "
          f"{autograder.points_of(course, tasks)}. Upload it as the autograder; "
          "base image Ubuntu 24.04.")
    return 0


def _add(archive: zipfile.ZipFile, name: str, data: bytes, runs: bool) -> None:
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    info.external_attr = (0o100755 if runs else 0o100644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def submitters(root: Path) -> list[str] | None:
    """The e-mails of those who submitted; None where nobody says."""
    try:
        document = json.loads((root / "submission_metadata.json").read_text(encoding="utf-8"))
        emails = [str(user["email"]) for user in document["users"] if user.get("email")]
        return emails or None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run(options: argparse.Namespace) -> int:
    """Grades what was submitted. Whatever happens there is a results.json in the end."""
    settings = autograder.settings_here()
    root = options.root
    output = root / "results"
    output.mkdir(parents=True, exist_ok=True)
    results = output / "results.json"
    try:
        with grade.hidden_from_jail(root / "submission", root / "submission_metadata.json", output):
            emails = submitters(root)
            return_code = grade.main([
                str(root / "submission"), "--output", str(output), "--built",
                "--hidden", settings["hidden"], "--deadline", str(settings["deadline"]),
                *(["--race"] if settings["race"] else []),
                *(word for number in settings["tasks"] for word in ("--task", str(number))),
                *(word for email in emails or () for word in ("--submitter", email))])
    except BaseException:  # a defect of ours: the student must see something
        traceback.print_exc()
        return_code = 2
    if return_code == 2:
        _tell_of_failure(results)
    (output / "summary.html").unlink(missing_ok=True)
    return 0 if results.is_file() else 1


def _tell_of_failure(path: Path) -> None:
    said = ("The autograder itself failed; the submission is not to blame. Tell your instructor. "
            "What follows is what had been graded by then.\n")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        document["output"] = said + document.get("output", "")
    except (OSError, ValueError):
        document = {"score": 0, "output": said, "tests": []}
    gradescope_results.write_json(path, document)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    each = commands.add_parser("pack")
    each.set_defaults(call=pack)
    each.add_argument("--task", default="all", help="a number, or all")
    each.add_argument("--hidden", default="after_published",
                      choices=gradescope_results.SCHEMA_VISIBILITY,
                      help="visibility of the hidden cases (a hidden one hides the total)")
    each.add_argument("--deadline", type=float, default=grade.DEADLINE)
    each.add_argument("--race", action="store_true", help="with the race's leaderboard")
    each.add_argument("--output", type=Path)
    each = commands.add_parser("setup")
    each.set_defaults(call=autograder.setup)
    each.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    each = commands.add_parser("run")
    each.set_defaults(call=run)
    each.add_argument("--root", type=Path, default=Path("/autograder"))
    options = parser.parse_args()
    try:
        return options.call(options)
    except (manifest.ManifestError, builder.BuildError, linking.BuildError, ValueError) as error:
        print(f"gradescope: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
