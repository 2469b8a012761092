"""The student's tools behind the Makefile: make test-task3 calls `course.py test 3`.

    course.py test TASK [--only 3.2] [--impl student|solution] [--seed N] [--world W]
                        [--backend mpi | --device cuda]
    course.py progress | watch [TASK] | hint STEP [--level N]
    course.py debug STEP [--case NAME] [--debugger gdb|lldb|none]
    course.py show TASK [--impl student|solution]
    course.py reset TASK | submit | integrated | written TARGET
    course.py race [--track N] [--impl student|solution] [--estimate]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

import answers
import audit
import builder
import debugging
import devices
import hints
import history
import integrated
import loop
import manifest
import processes
import race
import results
import showing
import submission
import terminal
import unwritten
import verdicts

ROOT = manifest.ROOT


def test(course: manifest.Manifest, options: argparse.Namespace) -> int:
    """Builds one task's runner, judges it, tells what came out. 0: every public case passes."""
    task = course.task(options.task)
    if options.only:
        task.step(options.only)
    if options.world and not re.fullmatch(r"[1-9]\d?", options.world):
        raise manifest.ManifestError(f"W={options.world}: W is a whole number of ranks, from 1 to 99")
    if options.seed and not options.seed.isdecimal():
        raise manifest.ManifestError(f"SEED={options.seed}: a seed is a whole number")
    tools = builder.Builder.of(options.backend, options.jobs, options.device)
    is_own = options.impl == "student"
    if not is_own and not (ROOT / "solutions" / task.folder).is_dir():
        raise manifest.ManifestError(f"IMPL={options.impl}: this kit has no reference of task "
                                     f"{task.number}")
    runner = f"runner_task{task.number}" + ("" if is_own else "_solution")
    digest = history.digest_of(ROOT, task)
    tools.make(runner, f"judge_task{task.number}")
    if is_own and _audited(tools, task):
        return 1
    chosen = {"FSDP_SEED": options.seed, "FSDP_WORLD": options.world, **tools.environment()}
    started = time.monotonic()
    cases = loop.run(tools.program(f"judge_task{task.number}"), tools.program(runner),
                     (f"[{options.only}]" if options.only else "") + verdicts.PUBLIC, chosen,
                     options.jobs)
    if is_own and not any(chosen.values()):  # progress is of all cases, over threads, on the cpu
        history.store(ROOT, task, digest, cases, options.only)
    found = verdicts.judge_steps(task, cases, [options.only] if options.only else [],
                                 history.unmet_before(ROOT, course, task) if is_own else "",
                                 [step.id for step in unwritten.steps(ROOT, task)] if is_own else ())
    whose = "your code" if is_own else "the reference"
    count = f"{len(cases)} public case{'s' * (len(cases) != 1)}"
    lines = results.failures(found)
    if is_own and lines and (doubt := history.untested_before(ROOT, course, task)):
        lines += ["", doubt]
    if is_own and unwritten.given_and_untouched(ROOT, task):
        lines += ["", f"This kit brings the reference of task {task.number}, and later tasks run on "
                  f"it: go on with them, or write the task all the same. make test-task{task.number} "
                  "IMPL=solution judges the reference."]
    paper = terminal.of_stdout()
    terminal.say(f"Task {task.number}, {task.title}: {whose}, {count} in "
                 f"{time.monotonic() - started:.1f} s", "", *results.table(found, paper), "",
                 *lines, *([""] if lines else []), results.summary(task, found))
    is_green = all(case.passed for case in cases)
    if is_own and is_green and not options.only and (reminder := answers.reminder(ROOT, task)):
        terminal.say(reminder)
    return 0 if is_green else 1


def _audited(tools: builder.Builder, task: manifest.Task) -> bool:
    """Prints what the object audit objects to; true if there is anything."""
    objections = audit.objections_of_runner(tools.build, task)
    for objection in objections:
        print(f"audit: {objection}")
    return bool(objections)


def progress(course: manifest.Manifest, _: argparse.Namespace) -> int:
    terminal.say(*results.progress(ROOT, course, terminal.of_stdout()))
    return 0


def hint(course: manifest.Manifest, options: argparse.Namespace) -> int:
    width = min(terminal.of_stdout().columns, terminal.COLUMNS)
    print(hints.tell(ROOT, course, options.step, options.level, width))
    return 0


def watch(course: manifest.Manifest, options: argparse.Namespace) -> int:
    """Tests a task whenever one of its files is saved, until Ctrl-C."""
    tasks = [course.task(options.task)] if options.task else list(course.tasks)
    which = f"task {options.task}" if options.task else "all tasks"
    print(f"Watching the files of {which} in tasks/. Save one to test it; Ctrl-C ends this.")
    seen = {task.number: _saved(task) for task in tasks}
    if options.task:
        seen[options.task] = ()  # test it once at the beginning
    try:
        while True:
            for task in tasks:
                now = _saved(task)
                if now == seen[task.number]:
                    continue
                seen[task.number] = now
                print(f"\n--- {time.strftime('%H:%M:%S')} " + "-" * 60)
                options.task = task.number
                try:
                    test(course, options)
                except (builder.BuildError, verdicts.JudgeError) as error:
                    print(error)
            time.sleep(0.5)
    except KeyboardInterrupt:
        print("\nno longer watching")
        return 0


def _saved(task: manifest.Task) -> tuple[float, ...]:
    paths = [ROOT / "tasks" / task.folder / name for name in task.files]
    return tuple(path.stat().st_mtime if path.is_file() else 0.0 for path in paths)


def reset(course: manifest.Manifest, options: argparse.Namespace) -> int:
    for line in submission.reset(ROOT, course.task(options.task)):
        print(line)
    return 0


def submit(course: manifest.Manifest, options: argparse.Namespace) -> int:
    return submission.submit(ROOT, course, builder.Builder(jobs=options.jobs))


def written(course: manifest.Manifest, options: argparse.Namespace) -> int:
    """Asked before a program is built that needs every task. 0: nothing is missing."""
    lines = unwritten.before_building(ROOT, course, options.target)
    if lines:
        terminal.say(*lines)
    return 1 if lines else 0


def test_integrated(course: manifest.Manifest, options: argparse.Namespace) -> int:
    return integrated.test(ROOT, course, builder.Builder(jobs=options.jobs))


def show(course: manifest.Manifest, options: argparse.Namespace) -> int:
    tools = builder.Builder(jobs=options.jobs)
    return showing.show(ROOT, course.task(options.task), options.impl, tools)


def debug(course: manifest.Manifest, options: argparse.Namespace) -> int:
    tools = builder.Builder(jobs=options.jobs)
    return debugging.debug(ROOT, course.task_of_step(options.step), options.step, tools,
                           options.case, options.debugger)


def run_race(_: manifest.Manifest, options: argparse.Namespace) -> int:
    if options.estimate:
        return race.estimate(options.track, options.impl, options.jobs)
    return race.race(options.track, options.impl, options.jobs)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=builder.Builder().jobs)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text)
        added.set_defaults(run=run)
        return added

    for name, run, text in (("test", test, "judge one task"),
                            ("watch", watch, "judge a task whenever it is saved")):
        each = command(name, run, text)
        each.add_argument("task", type=int, nargs="?" if name == "watch" else None)
        each.add_argument("--only", default="", metavar="STEP", help="cases of this step only")
        each.add_argument("--impl", choices=("student", "solution"), default="student")
        each.add_argument("--seed", default="", help="judge with this seed besides")
        each.add_argument("--world", default="", help="judge at this number of ranks only")
        each.add_argument("--backend", choices=tuple(processes.BUILDS), default="threads",
                          help="what ranks are: threads, or processes of MPI")
        each.add_argument("--device", choices=devices.DEVICES, default="cpu",
                          help="where ranks compute: cuda is a card or, without one, its stand-in")
    command("progress", progress, "seven bars")
    each = command("hint", hint, "a hint for a step")
    each.add_argument("step")
    each.add_argument("--level", type=int, default=1)
    each = command("show", show, "what one task does now, on a tiny model")
    each.add_argument("task", type=int)
    each.add_argument("--impl", choices=("student", "solution"), default="student")
    each = command("debug", debug, "a debugger on a step's first failing case")
    each.add_argument("step")
    each.add_argument("--case", default="", metavar="NAME", help="on this case; a part of its name does")
    each.add_argument("--debugger", default="gdb", metavar="NAME",
                      help=f"{', '.join(debugging.DEBUGGERS)}; none only writes the case down")
    command("reset", reset, "start a task again").add_argument("task", type=int)
    command("submit", submit, "check, score and pack your work")
    command("written", written, "whether every step is written").add_argument("target")
    command("integrated", test_integrated, "all of your own tasks together")
    each = command("race", run_race, "plan a step, and see how long it takes")
    each.add_argument("--track", type=int, help="this track only")
    each.add_argument("--estimate", action="store_true", help="on paper, which needs no task")
    each.add_argument("--impl", choices=("student", "solution"), default="student")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        code = options.run(manifest.load(), options)
        sys.stdout.flush()
        return code
    except (manifest.ManifestError, hints.HintError, submission.SubmissionError,
            builder.BuildError, verdicts.JudgeError, processes.LauncherError,
            devices.DeviceError, debugging.DebugError, race.RaceError) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # make progress | head: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
