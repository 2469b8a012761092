"""Grades every submission in a folder into one table: make grade-all DIR=folder.

    grade_all.py FOLDER [--output build/grade/all] [--task 3] [--submitters names.csv] [--jobs 2]
                 [--again]

Each file or folder in FOLDER is a submission. Writes grades.csv (one row per student and one column
per step, plus the first failure message) and for each submission what make grade writes, in a folder
of its name. The column "extra" says how much of the score is extra credit, which "of" does not
count.

Several are graded side by side. The table is written after each. What this tree has graded before
is not graded again: stopped, even killed, this goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import build_submission
import builder
import ending
import grade
import gradescope_results
import jail
import kept
import machine
import manifest
import side_by_side
import unpack
import verdicts
from hiding import alone_in
from trusted import TrustedError

_NEEDS_BYTES = 4 << 30  # a run may hold 2 GiB, and a compiler beside it as much


class GraderError(Exception):
    """A grading failed for which the submission is not to blame."""


def submissions(folder: Path) -> list[tuple[str, Path]]:
    """(name, path) of everything that can be a submission, by name."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        ending_of = next((each for each in unpack.ARCHIVES if path.name.endswith(each)), None)
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir() or ending_of:
            name = unpack.name_of(path).removesuffix(ending_of or "")
            while name in found:
                name += "+"
            found[name] = path
    return list(found.items())


def columns(tasks: list[manifest.Task]) -> list[str]:
    """One a step (its hidden points included), one a question."""
    return [number for task in tasks for number in
            (*(step.id for step in task.steps),
             *(f"{task.number}.q{k}" for k in range(1, 3 if task.questions else 1)))]


def row_of(name: str, results: dict[str, Any], numbers: list[str]) -> dict[str, str]:
    """The row of a results.json."""
    tests = results["tests"]
    extra = [test for test in tests if "extra" in test["tags"]]
    row = {"submission": name, "score": f"{results['score']:g}",
           "of": f"{sum(test['max_score'] for test in tests if test not in extra):g}",
           "extra": f"{sum(test['score'] for test in extra):g}"}
    for number in numbers:
        row[number] = f"{sum(test['score'] for test in tests if test['number'] == number):g}"
    first = next((test for test in tests if test["status"] != "passed" and test not in extra
                  and "question" not in test["tags"]), None)
    message = "" if first is None else f"{first['number']}: {first['output']}"
    row["complete"] = "yes" if results["extra_data"]["complete"] else "no"
    row["first message"] = " ".join(message.split())[:300]
    return row


def safe(text: str) -> str:
    """No spreadsheet shall take a stranger's text for a formula."""
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t") else text


def write_csv(path: Path, rows: Iterable[dict[str, str]], fields: list[str]) -> None:
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


def jobs_here() -> int:
    """How many this machine can grade side by side, and none gets too little."""
    return max(1, min(int(machine.processors()), machine.memory() // _NEEDS_BYTES))


@dataclass
class Class:
    """The grading of a folder."""

    options: argparse.Namespace
    tasks: list[manifest.Task]
    found: list[tuple[str, Path]]
    emails: dict[str, list[str]]
    lock: int  # of the folder of results, for all who write there
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        tree = kept.sum_of_tree()
        options = self.options
        for name, path in self.found:
            self.sums[name] = kept.sum_of(
                tree, kept.sum_of_submission(path), self.emails.get(name, []), options.deadline,
                [task.number for task in self.tasks], jail.is_root())
            before = None if options.again else kept.load(options.output / name, self.sums[name])
            if before is not None:
                self.seconds.append(before[1])
                self._add(name, before[0])
        self._write()
        if self.rows:
            print(f"{len(self.rows)} of {len(self.found)} were graded before, by this tree; "
                  "AGAIN=yes grades them again.", flush=True)
        todo = [each for each in self.found if each[0] not in self.rows]
        together = min(options.jobs, len(todo))
        alone = self._grade(todo, together)
        if alone:
            print(f"Of {len(alone)} the clock ended something while others were graded beside them. "
                  "Each is graded again, alone.", flush=True)
            self._grade(alone, 1)

    def _grade(self, todo: list[tuple[str, Path]], jobs: int) -> list[tuple[str, Path]]:
        """Grades so many side by side. Returns what has to be graded alone."""
        alone: list[str] = []

        def on_end(ended: side_by_side.Ended) -> None:
            folder = self.options.output / ended.name
            if ended.code < 0 and jobs > 1:  # as when the system has no memory left
                alone.append(ended.name)
                return
            try:
                results = kept.read(folder)
                by_clock = results["extra_data"]["by_clock"]
            except FileNotFoundError:
                by_clock = False
            # With 1 it says that time was up; but Python ends so, too, after an exception.
            if ended.code not in (0, 1) or ended.code == 1 and not by_clock:
                raise GraderError(f"{ended.name}: {ended.said or f'exit code {ended.code}'}")
            if jobs > 1 and by_clock:
                alone.append(ended.name)
                return
            kept.store(folder, self.sums[ended.name], ended.seconds)
            self.seconds.append(ended.seconds)
            self._add(ended.name, results)
            self._write()
            self._tell(ended.name, jobs)

        for name, _ in todo:
            kept.forget(self.options.output / name)
        side_by_side.run([(name, self._command(name, path)) for name, path in todo], jobs, on_end,
                         [self.lock])
        return [each for each in todo if each[0] in alone]

    def _command(self, name: str, path: Path) -> list[str]:
        options = self.options
        return [sys.executable, str(Path(grade.__file__)), str(path), "--built",
                "--output", str(options.output / name), "--build", str(options.build),
                "--deadline", str(options.deadline), "--parent", str(os.getpid()),
                *(word for task in self.tasks for word in ("--task", str(task.number))),
                *(word for email in self.emails.get(name, ()) for word in ("--submitter", email))]

    def _add(self, name: str, results: dict[str, Any]) -> None:
        self.rows[name] = row_of(name, results, columns(self.tasks))

    def _write(self) -> None:
        fields = ["submission", "score", "of", "extra", *columns(self.tasks), "complete",
                  "first message"]
        write_csv(self.options.output / "grades.csv",
                  [self.rows[name] for name, _ in self.found if name in self.rows], fields)

    def _tell(self, name: str, jobs: int) -> None:
        row, left = self.rows[name], len(self.found) - len(self.rows)
        time = side_by_side.time_left(self.seconds, left, jobs)
        more = f", {side_by_side.told(time)} left" if left and time is not None else ""
        print(f"{row['score']:>5} / {row['of']}  {name:<28} "
              f"[{len(self.rows)} of {len(self.found)}{more}]", flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=manifest.ROOT / "build/grade/all")
    parser.add_argument("--task", type=int, action="append", help="grade this task only")
    parser.add_argument("--submitters", type=Path, help="a CSV of submission,e-mail lines")
    parser.add_argument("--jobs", type=int, help="how many to grade side by side; default: one per "
                        "processor and 4 GiB of free memory")
    parser.add_argument("--again", action="store_true", help="also what was graded before")
    parser.add_argument("--deadline", type=float, default=grade.DEADLINE)
    parser.add_argument("--build", type=Path, default=manifest.ROOT / "build" / "grade")
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    options = parser.parse_args(arguments)
    options.jobs = options.jobs or jobs_here()
    if options.jobs < 1:
        parser.error("--jobs: at least 1")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    ending.in_order()
    try:
        course = manifest.load()
        tasks = [course.task(number) for number in options.task or ()] or list(course.tasks)
        if not options.folder.is_dir():
            raise OSError(f"{options.folder}: no such folder")
        emails = read_submitters(options.submitters)
        if not options.built:
            grade.prepare(options.build, tasks)
        found = submissions(options.folder)
        options.output.mkdir(parents=True, exist_ok=True)
        with grade.hidden_from_jail(options.folder), alone_in(options.output) as lock:
            Class(options, tasks, found, emails, lock).run()
    except (manifest.ManifestError, builder.BuildError, verdicts.JudgeError, TrustedError,
            build_submission.BuildError, GraderError, OSError) as error:
        print(f"grade-all: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grade-all: stopped. The same command goes on from here.", file=sys.stderr)
        return 130
    print(f"{len(found)} submissions: {os.path.relpath(options.output)}/grades.csv")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
