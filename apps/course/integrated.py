"""make test-integrated: task 7's public cases on the student's own code of all seven tasks.

In a student kit, a task that came with its reference and was not begun is that reference. In the
full tree a failure is traced: the reference takes the place of one task after the other,
then of two, until the cases that failed pass. The verdict is the last line and the exit code, and
make progress and make submit repeat it. It carries no points: in grading each task stands beside
references, so that a mistake costs points once, in the task where it was made.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import builder
import history
import loop
import manifest
import results
import submission
import terminal
import unwritten
import verdicts

FOLDER = Path("build") / "grade" / "integrated"


class Mixture:
    """Runners of the last task in which some tasks are the student's and the rest references."""

    def __init__(self, root: Path, course: manifest.Manifest, tools: builder.Builder) -> None:
        self.course, self.tools = course, tools
        self.last = course.required[-1]
        self.target = submission.runner_target(tools, self.last)
        self.folder = root / FOLDER
        tools.make(self.target, f"judge_task{self.last.number}")
        self.given = [task for task in course.required if unwritten.given_and_untouched(root, task)]
        files = [(task, name) for task in course.required if task not in self.given
                 for name in task.files]

        def compile_one(entry: tuple[manifest.Task, str]) -> Path:
            task, name = entry
            output = self.folder / task.folder / f"{name}.o"
            tools.compile(root / "tasks" / task.folder / name, task.folder, name, output)
            return output

        with ThreadPoolExecutor(tools.jobs) as pool:
            self.objects = dict(zip(files, pool.map(compile_one, files)))

    def cases(self, references: tuple[int, ...]) -> list[verdicts.Case]:
        own = {(task.folder, name): path for (task, name), path in self.objects.items()
               if task.number not in references}
        runner = self.folder / "runner"
        self.tools.link(self.target, own, runner)
        return loop.run(self.tools.program(f"judge_task{self.last.number}"), runner,
                        verdicts.PUBLIC, jobs=self.tools.jobs)


def is_green(cases: list[verdicts.Case]) -> bool:
    return all(case.passed for case in cases)


def whose(given: list[manifest.Task]) -> str:
    """"All seven tasks are your own", or which of them are references that came with the kit."""
    if not given:
        return "All seven tasks are your own"
    numbers = " and ".join(f"task {task.number}" for task in given)
    are = "are the references that" if len(given) > 1 else "is the reference that"
    return f"{numbers[0].upper()}{numbers[1:]} {are} came with this kit, the others are your own"


def guilty(tasks: list[int], turns_green) -> tuple[int, ...]:
    """The one task, or the first pair, whose references make the failure go away; () if none."""
    for count in (1, 2):
        for swapped in combinations(tasks, count):
            if turns_green(swapped):
                return swapped
    return ()


def test(root: Path, course: manifest.Manifest, tools: builder.Builder,
         make_mixture=Mixture) -> int:
    """Judges, traces, and stores what came out. 0: all of it passes together."""
    digest = history.digest_of_all(root, course)
    mixture = make_mixture(root, course, tools)
    cases = mixture.cases(())
    code, verdict = _judged(root, course, mixture, cases)
    history.store_integrated(root, digest, code == 0, verdict)
    terminal.say("", f"all together: {verdict}")
    if code != 0:
        terminal.say("This costs no points by itself: in grading each task stands beside "
                     "references. But your own code alone does not train a model yet.")
    return code


def _judged(root: Path, course: manifest.Manifest, mixture: Mixture,
            cases: list[verdicts.Case]) -> tuple[int, str]:
    """Exit code and verdict, in a few words."""
    failing = f"{sum(not case.passed for case in cases)} of {len(cases)} cases fail"
    found = verdicts.judge_steps(mixture.last, cases)
    print(f"{whose(mixture.given)}; the public cases of task 7:\n")
    lines = results.failures(found)
    terminal.say(*results.table(found, terminal.of_stdout()), "", *lines)
    if is_green(cases):
        alone = "" if mixture.given else " alone"
        return 0, f"passed, all {len(cases)} cases, with your own code{alone}"
    todos = sorted({todo for case in cases for todo in case.todos})
    if todos:
        return 1, f"FAILED, not written yet: {', '.join(todos)}. Next: make test-task{todos[0][0]}"
    if (root / unwritten.KIT).is_file() or not (root / "solutions").is_dir():
        return 1, (f"FAILED, {failing}. To find the task: make test-task1, make test-task2, … in "
                   "this order")
    print("\nLooking for the task: references take the place of your code, one task at a time.")

    def turns_green(swapped: tuple[int, ...]) -> bool:
        green = is_green(mixture.cases(swapped))
        names = " and ".join(f"task {number}" for number in swapped)
        print(f"  reference for {names}: {'everything passes' if green else 'still fails'}")
        return green

    swapped = guilty([task.number for task in course.required], turns_green)
    if not swapped:
        return 1, (f"FAILED, {failing}. No task and no pair of tasks explains it alone: make "
                   "test-task1 … first")
    if len(swapped) == 1:
        return 1, f"FAILED, {failing}. It is task {swapped[0]}: make test-task{swapped[0]}"
    return 1, (f"FAILED, {failing}. It takes both, task {swapped[0]} and task {swapped[1]}: one "
               f"relies on what the other does not do. make test-task{swapped[0]} first")
