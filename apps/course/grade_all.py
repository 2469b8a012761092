"""Grades every submission in a folder into one table: make grade-all DIR=folder.

    grade_all.py FOLDER [--output build/grade/all] [--task 3] [--submitters names.csv]

Each file or folder in FOLDER is a submission. Writes grades.csv (one row per student and one column
per step, plus the first failure message) and for each submission what make grade writes, in a folder
of its name. The column "extra" says how much of the score is extra credit, which "of" does not
count.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path

import build_submission
import builder
import grade
import gradescope_results
import manifest
import unpack
import verdicts
from gradescope_results import Results
from trusted import TrustedError


def submissions(folder: Path) -> list[tuple[str, Path]]:
    """(name, path) of everything that can be a submission, by name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        ending = next((each for each in unpack.ARCHIVES if path.name.endswith(each)), None)
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir() or ending:
            name = unpack.name_of(path).removesuffix(ending or "")
            while name in found:
                name += "+"
            found[name] = path
    return list(found.items())


def columns(tasks: list[manifest.Task]) -> list[str]:
    """One a step (its hidden points included), one a question."""
    return [number for task in tasks for number in
            (*(step.id for step in task.steps),
             *(f"{task.number}.q{k}" for k in range(1, 3 if task.questions else 1)))]


def row_of(name: str, results: Results, numbers: list[str]) -> dict[str, str]:
    row = {"submission": name, "score": f"{results.score:g}", "of": f"{results.most:g}",
           "extra": f"{results.extra[0]:g}"}
    for number in numbers:
        row[number] = f"{sum(e.score for e in results.entries if e.number == number):g}"
    extra = {task.number for task in results.tasks if results.is_extra(task)}
    first = next((e for e in results.entries if not e.passed and e.kind != "question"
                  and e.task not in extra), None)
    message = "" if first is None else f"{first.number}: {first.output}"
    row["complete"] = "yes" if results.complete else "no"
    row["first message"] = gradescope_results.clean(" ".join(message.split()))[:300]
    return row


def safe(text: str) -> str:
    """No spreadsheet shall take a stranger's text for a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text


def write_csv(path: Path, rows: list[dict[str, str]], fields: list[str]) -> None:
    temporary = path.with_name("." + path.name)
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows({key: safe(value) for key, value in row.items()} for row in rows)
    os.replace(temporary, path)


def read_submitters(path: Path | None) -> dict[str, list[str]]:
    """A CSV of submission,e-mail lines → the e-mails by submission."""
    found: dict[str, list[str]] = {}
    if path is not None:
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.reader(file):
                if len(line) >= 2:
                    found.setdefault(line[0].strip(), []).append(line[1].strip())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=manifest.ROOT / "build/grade/all")
    parser.add_argument("--task", type=int, action="append", help="grade this task only")
    parser.add_argument("--submitters", type=Path, help="a CSV of submission,e-mail lines")
    parser.add_argument("--deadline", type=float, default=grade.DEADLINE)
    parser.add_argument("--build", type=Path, default=manifest.ROOT / "build" / "grade")
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    options = parser.parse_args()
    grade.end_in_order()
    try:
        course = manifest.load()
        tasks = [course.task(number) for number in options.task or ()] or list(course.tasks)
        if not options.folder.is_dir():
            raise OSError(f"{options.folder}: no such folder")
        emails = read_submitters(options.submitters)
        if not options.built:
            grade.prepare(options.build, tasks)
        found = submissions(options.folder)
        numbers = columns(tasks)
        fields = ["submission", "score", "of", "extra", *numbers, "complete", "first message"]
        options.output.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, str]] = []
        with grade.hidden_from_jail(options.folder):
            for name, path in found:
                request = grade.Request(path, options.output / name, tasks, options.build,
                                        emails.get(name), options.deadline)
                results = grade.Grading(request, course).run()
                rows.append(row_of(name, results, numbers))
                write_csv(options.output / "grades.csv", rows, fields)
                print(f"{rows[-1]['score']:>5} / {rows[-1]['of']}  {name}")
    except (manifest.ManifestError, builder.BuildError, verdicts.JudgeError, TrustedError,
            build_submission.BuildError, OSError) as error:
        print(f"grade-all: {error}", file=sys.stderr)
        return 2
    print(f"{len(found)} submissions: {os.path.relpath(options.output)}/grades.csv")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
