"""Grades one submission: make grade SUBMISSION=path.

    grade.py SUBMISSION [--output build/grade/grading] [--task 3] [--submitter me@school.edu] …
             [--backend mpi]

Writes results.json (Gradescope's schema; after every case) and summary.html. Exit code: 0, the
submission was graded to the end, whatever its points; 1, it was not (time), or points are missing
and --full was given; 2, the grader itself does not work.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ahead
import build_submission
import builder
import diagnosis
import ending
import gradescope_results
import hiding
import html_summary
import jail
import linking
import manifest
import precompiled
import processes
import questions
import unpack
import verdicts
from build_submission import Staging, SubmissionBuilder
from gradescope_results import Results
from trusted import TrustedError

DEADLINE = 480.0  # seconds; Gradescope's own is 600, and shows nothing when it strikes
SECRET = ("solutions", "tests", "build", ".git")  # not for the eyes of a jailed program


@dataclass
class Request:
    """What is to be graded, and how."""

    submission: Path
    output: Path  # a folder
    tasks: list[manifest.Task]
    build: Path
    submitters: list[str] | None = None
    deadline: float = DEADLINE
    cpu: float = 10.0
    memory: str = "4G"
    hidden_visibility: str = "after_published"
    cases: str = ""  # a filter for the judge, "" for all cases
    race: bool = False  # judge the policy of the race too, for Gradescope's leaderboard
    overlap: bool = field(default_factory=ahead.pays)  # compile the next task meanwhile


@contextmanager
def hidden_from_jail(*others: Path) -> Iterator[list[str]]:
    """While it lasts the jail enters neither the secret folders nor `others`; afterwards they have
    their modes back. Gives what a jailed program can read nevertheless."""
    if not jail.is_root():
        yield list(SECRET)
        return
    secret = [manifest.ROOT / name for name in SECRET if (manifest.ROOT / name).is_dir()]
    with hiding.hidden([*secret, *others], manifest.ROOT / "build"):
        probe = " ".join(f"{shlex.quote(str(folder))}/*" for folder in secret)
        ended = jail.run(["/bin/sh", "-c", f'for f in {probe}; do [ -r "$f" ] && echo "$f"; done'],
                         jail.Limits(cpu=5))
        yield ended.out.decode("utf-8", "replace").split()


class Grading:
    """One run of the grader."""

    def __init__(self, request: Request, course: manifest.Manifest) -> None:
        self.request, self.course = request, course
        self.ends = time.monotonic() + request.deadline
        self.judged: list[tuple[manifest.Task, Path, list[verdicts.Case]]] = []
        self.results = Results(request.output / "results.json", request.tasks,
                               request.hidden_visibility)

    def left(self) -> float:
        return self.ends - time.monotonic()

    def run(self) -> Results:
        with hidden_from_jail() as readable:
            return self._run(readable)

    def _run(self, readable: list[str]) -> Results:
        self.results.isolated = jail.is_root() and not readable
        if readable and jail.is_root():
            self.results.private.append("readable in the jail: " + ", ".join(readable[:5]))
        staging = Staging.make(self.course)
        try:
            self._grade(staging)
        finally:
            self.results.by_clock |= staging.is_by_clock()
            staging.remove()
            self.results.write()
            html_summary.write(self.results.to_json(), self.request.output / "summary.html",
                               unpack.name_of(self.request.submission))
        return self.results

    def _grade(self, staging: Staging) -> None:
        results = self.results
        try:
            found = unpack.unpack(self.request.submission, unpack.wanted_paths(self.course),
                                  staging.unpack_in_jail)
        except unpack.UnpackError as error:
            results.notes.append(f"The submission cannot be read: {error}")
            results.stop("the submission cannot be read")
            results.complete = True
            return
        results.notes += found.notes
        for task in self.request.tasks:
            self._grade_questions(task, found, staging)
        tools = SubmissionBuilder(self.request.build, staging, seconds_left=self.left)
        with self._ahead(tools, found) as builder_now:
            for task in self.request.tasks:
                if self.left() <= 0:
                    break
                self._grade_task(task, found, staging, builder_now)
        results.complete = self.left() > 0
        if not results.complete:
            results.notes.append(f"Time was up after {self.request.deadline:g} s; what had not run "
                                 "by then counts 0")
            results.stop("time")
        results.by_clock = not results.complete or any(
            not case.executed for _, _, cases in self.judged for case in cases)
        results.write()
        self._diagnose(staging, tools)
        if self.request.race and unpack.POLICY in found.files and self.left() > 0:
            self._race(found.files[unpack.POLICY], staging)

    def _race(self, policy: bytes, staging: Staging) -> None:
        """No points depend on it, so it comes last."""
        import race_board  # it knows this file

        entry = race_board.enter(policy, staging, os.cpu_count() or 1, self.left)
        self.results.leaderboard = race_board.leaderboard(entry)
        if entry.problem:
            self.results.notes.append(f"The race: {unpack.POLICY} {entry.problem}")
        for number, verdict in sorted(entry.verdicts.items()):
            if verdict["refused"]:
                self.results.notes.append(f"The race, track {number}: {verdict['refused']}")

    @contextmanager
    def _ahead(self, tools: SubmissionBuilder, found: unpack.Submission
               ) -> Iterator[SubmissionBuilder | ahead.Ahead]:
        """What builds the tasks: where it pays, the next one while one is judged."""
        wanted = [(task, files) for task in self.request.tasks
                  if (files := _files_of(task, found)) is not None]
        if not self.request.overlap or len(wanted) < 2:
            yield tools
            return
        begun = ahead.Ahead(tools, wanted)
        try:
            yield begun
        finally:
            begun.end()

    def _grade_questions(self, task: manifest.Task, found: unpack.Submission,
                         staging: Staging) -> None:
        if not task.questions:
            return
        name = f"tasks/{task.folder}/answers.toml"
        folder = staging.root / "objects" / f"answers{task.number}"
        folder.mkdir()
        if name in found.files:
            (folder / "answers.toml").write_bytes(found.files[name])
        graded = questions.grade(folder / "answers.toml", task.number, self.request.submitters)
        if name in found.refused:
            graded = [(key, 0, worth, f"answers.toml: {found.refused[name]}")
                      for key, _, worth, _ in graded]
        self.results.set_questions(graded)

    def _grade_task(self, task: manifest.Task, found: unpack.Submission, staging: Staging,
                    tools: SubmissionBuilder | ahead.Ahead) -> None:
        files = _files_of(task, found)
        if files is None:
            absent = found.missing(_paths_of(task))
            why = [f"{path}: {found.refused.get(path, 'not in the submission')}" for path in absent]
            self.results.refuse_task(task, "\n".join(why))
            return
        built = tools.build_task(task, files)
        self.results.private += [f"task {task.number}: {note}" for note in built.noted]
        if built.runner is None:
            out_of_time = self.left() <= 0
            self.results.refuse_task(task, "not run: time" if out_of_time else built.problem)
            return
        self._judge(task, built.runner, staging)

    def _judge(self, task: manifest.Task, runner: Path, staging: Staging) -> None:
        request = self.request
        judge = request.build / "bin" / f"judge_task{task.number}"
        listed = {case.name: case for case in verdicts.list_cases(judge, request.cases)}

        def on_case(case: verdicts.Case) -> None:
            listed[case.name] = case
            self.results.set_cases(task, list(listed.values()))

        cases = verdicts.run_judge(
            judge, runner, request.cases, timeout=max(0.1, self.left()), on_case=on_case,
            env=staging.judge_environment(request.build, request.cpu, request.memory, task.number))
        jail.sweep(str(staging.root / "state" / f"task{task.number}"))
        self.results.set_cases(task, cases)
        self.judged.append((task, judge, cases))

    def _diagnose(self, staging: Staging, tools: SubmissionBuilder) -> None:
        """Says more of what crashed. After everything else: no points depend on it, so it must not
        take anybody's time."""
        again = diagnosis.Diagnosis(tools, staging, self.left, self.request.cpu)
        for task, judge, cases in self.judged:
            again.tell(task, judge, cases)
            self.results.set_cases(task, cases)


def _paths_of(task: manifest.Task) -> list[str]:
    return [f"tasks/{task.folder}/{name}" for name in task.files]


def _files_of(task: manifest.Task, found: unpack.Submission) -> dict[str, bytes] | None:
    """A task's sources by name; None if one is missing."""
    paths = _paths_of(task)
    return None if found.missing(paths) else {
        name: found.files[path] for name, path in zip(task.files, paths)}


def targets_of(tasks: list[manifest.Task]) -> list[str]:
    """What grading them builds."""
    return [name for task in tasks for name in (f"runner_task{task.number}_solution",
                                                f"judge_task{task.number}",
                                                f"fsdp_task{task.number}")]


def prepare(build: Path, tasks: list[manifest.Task]) -> None:
    """Everything that grading runs is built and up to date; at once when it already is."""
    builder.Builder(build=build).make(*targets_of(tasks), show=False)
    flags = build_submission.compile_commands(build)
    for task in tasks:  # once, before several need it at the same time
        linking.link_command(build, task, [], Path("/dev/null"))
        precompiled.make(build, flags[f"{task.folder}/{task.files[0]}"])


def told(results: Results) -> str:
    """What the terminal shows."""
    lines = [results.head(), ""]
    for task in results.tasks:
        mine = results.of_task(task)
        score, most = (sum(getattr(e, key) for e in mine) for key in ("score", "most"))
        extra = "  extra credit" if results.is_extra(task) else ""
        lines.append(f"  task {task.number}  {task.title:<20} {score:>5g} / {most:g}{extra}")
        for entry in mine:
            if not entry.passed:
                hidden = " (hidden)" if entry.kind == "hidden" else ""
                lines.append(f"      {entry.number}{hidden}: "
                             f"{gradescope_results.clean(entry.output).splitlines()[0][:100]}")
                lines += [f"          {line[:200]}" for line in
                          gradescope_results.clean(entry.private).splitlines()[:8]]
    return "\n".join(lines)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("submission", type=Path, help="a folder, .zip or .tar.gz")
    parser.add_argument("--output", type=Path, default=manifest.ROOT / "build/grade/grading",
                        help="the folder for results.json and summary.html")
    parser.add_argument("--results", type=Path, help="write results.json here besides")
    parser.add_argument("--task", type=int, action="append", help="grade this task only")
    parser.add_argument("--submitter", action="append",
                        help="an e-mail; answers.toml must name one of those given")
    parser.add_argument("--deadline", type=float, default=DEADLINE, metavar="SECONDS")
    parser.add_argument("--cpu", type=float, default=10.0, help="CPU seconds of one run")
    parser.add_argument("--memory", default="4G", help="address space of one run")
    parser.add_argument("--hidden", default="after_published",
                        choices=gradescope_results.SCHEMA_VISIBILITY,
                        help="visibility of the hidden cases")
    parser.add_argument("--backend", choices=tuple(processes.BUILDS), default="threads",
                        help="what ranks are: threads, or processes of MPI")
    parser.add_argument("--build", type=Path, help="default: build/grade, or build/grade-mpi")
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    parser.add_argument("--race", action="store_true",
                        help="judge the policy of the race too, for the leaderboard")
    parser.add_argument("--full", action="store_true", help="exit with 1 unless all points")
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process does")
    options = parser.parse_args(arguments)
    options.build = options.build or builder.Builder.of(options.backend).build
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    ending.in_order()
    if options.parent:
        ending.with_parent(options.parent)
    try:
        course = manifest.load()
        tasks = [course.task(number) for number in options.task or ()] or list(course.tasks)
        if not options.built:
            prepare(options.build, tasks)
        request = Request(options.submission, options.output, tasks, options.build,
                          options.submitter, options.deadline, options.cpu, options.memory,
                          options.hidden, race=options.race)
        results = Grading(request, course).run()
    except (manifest.ManifestError, builder.BuildError, verdicts.JudgeError, TrustedError,
            build_submission.BuildError, processes.LauncherError, OSError) as error:
        print(f"grade: the grader itself failed, the submission is not to blame: {error}",
              file=sys.stderr)
        return 2
    if options.results:
        gradescope_results.write_json(options.results, results.to_json())
    print(told(results))
    print(f"\n{os.path.relpath(options.output)}/results.json, summary.html")
    if not results.complete or options.full and not results.is_full():
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
