"""Tests the graded tests: every wrong solution loses what it should, and no right one loses.

    mutants.py                    mutants and alternatives (format: mutant_files.py)
    mutants.py --reference        full marks          --skeleton     exactly 0, and no warning
    mutants.py --ladder           solved up to n.k: exactly the points up to there
    mutants.py --isolation        a skeleton costs its own task's points, and nobody else's
    mutants.py --all              all of these        --check        files and edits only, no build
    mutants.py --device cuda      those that forget to wait or free too early, on a CUDA device
    … [--task 3] [--only NAME] [--jobs 2] [--sample N]    of the mutants, N for each step only
    … --sample N --since COMMIT    but all of them for the tasks that differ from the commit; elsewhere
                                   a third of these (the next commit has the next third), and of the
                                   ladder its middle

Each variant costs the compilation of its files and one link (builder.py). Exit code 1 on any miss.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import course_path  # noqa: F401  must come first
import builder
import contract
import devices
import hints
import manifest
import mutant_files
import processes
import regions
import verdicts
import whole_file

ROOT = manifest.ROOT
FOLDER = Path("build") / "grade" / "mutants"
SECONDS = "4"  # of processor time a run; the reference needs a tenth
_DIED = re.compile(r"\bthe run (crashed|did not end|ended early)")


@dataclass
class Variant:
    """A program to judge, and how to tell whether it came out as it should."""

    name: str
    task: manifest.Task
    sources: dict[str, str]  # empty: the reference's runner as it is
    expected: str
    check: Callable[["Outcome"], list[str]]
    extra: tuple[str, ...] = ("-g0", "-Wno-error")
    mutant: mutant_files.Mutant | None = None


@dataclass
class Outcome:
    """What the judge said of a variant. `problems`: why it is a miss."""

    variant: Variant
    found: list[verdicts.Verdict] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lost(self) -> list[str]:
        return [v.step.id for v in self.found if v.state != "passed"]

    @property
    def points(self) -> int:
        return sum(v.public + v.hidden for v in self.found)

    def first_message(self, step: str) -> str:
        """What a student reads of a step: the first message of its first failing public case."""
        for verdict in self.found:
            if verdict.step.id == step:
                said = next((c.message for c in verdict.cases if not (c.passed or c.hidden)), "")
                return hints.with_cause(said, step)
        return ""


def check_mutant(outcome: Outcome) -> list[str]:
    """A mutant loses its roots, nothing that does not require one of them, and says why."""
    mutant = outcome.variant.mutant
    lost, roots = set(outcome.lost), set(mutant.loses)
    problems = []
    if roots - lost:
        problems.append(f"passes {', '.join(sorted(roots - lost))}")
    if too_much := lost - mutant.task.dependants(roots):
        problems.append(f"loses {', '.join(sorted(too_much))} too")
    message = outcome.first_message(mutant.step)
    if mutant.step in lost and not message:
        problems.append(f"only hidden cases of {mutant.step} notice it")
    elif mutant.step in lost and not re.search(mutant.message, message):
        problems.append(f"{mutant.step} says something else:\n{message}")
    if not mutant.dies and any(_DIED.search(outcome.first_message(step)) for step in roots):
        problems.append("is noticed by a crash or a limit, which it does not declare (dies = true)")
    return problems


def check_noticed(outcome: Outcome) -> list[str]:
    """On a device a mutant loses its step. Who notices may be the judge or, earlier, the stand-in."""
    step = outcome.variant.mutant.step
    if step not in outcome.lost:
        return [f"passes {step}"]
    return [] if outcome.first_message(step) else [f"only hidden cases of {step} notice it"]


def check_full(outcome: Outcome) -> list[str]:
    task = outcome.variant.task
    full = task.public + task.hidden
    if outcome.points == full:
        return []
    first = next(verdict for verdict in outcome.found if verdict.state != "passed")
    case = first.first_failure()
    return [f"{outcome.points} of {full} points, loses {', '.join(outcome.lost)}:\n" +
            (case.message if case is not None else f"step {first.step.id} has no case")]


def check_solved_up_to(solved: int) -> Callable[[Outcome], list[str]]:
    """The first `solved` steps have all their points, and the others none at all."""
    def check(outcome: Outcome) -> list[str]:
        problems = []
        for i, verdict in enumerate(outcome.found):
            earned, step = verdict.public + verdict.hidden, verdict.step
            if earned != (step.points if i < solved else 0):
                case = verdict.first_failure()
                problems.append(f"{step.id} has {earned} of {step.points} points" +
                                (f":\n{case.message}" if case is not None else ""))
        return problems
    return check


def sampled(mutants: list[mutant_files.Mutant], most: int) -> list[mutant_files.Mutant]:
    """All alternatives, and for each step the first `most` mutants by a hash of their names: always
    the same ones, spread over what was written early and late."""
    kept: list[mutant_files.Mutant] = []
    for mutant in sorted(mutants, key=lambda each: hashlib.sha256(each.name.encode()).digest()):
        if mutant.is_alternative or sum(each.step == mutant.step for each in kept) < most:
            kept.append(mutant)
    return sorted(kept, key=lambda each: (each.is_alternative, each.name))


def changed_since(commit: str, root: Path = ROOT) -> list[str] | None:
    """The files that differ from a commit, also those git does not know yet. None: there is no such
    commit here."""
    found = []
    for command in (("diff", "--name-only", commit, "--"),
                    ("ls-files", "--others", "--exclude-standard")):
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            return None
        found += done.stdout.splitlines()
    return found


def third_of(mutants: list[mutant_files.Mutant], turn: int) -> list[mutant_files.Mutant]:
    """Every third, so that three turns have all of them."""
    return mutants[turn % 3::3]


def turn_of_this_commit(root: Path = ROOT) -> int:
    """How many commits there are; 0 where git does not know."""
    done = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=root, capture_output=True,
                          text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def is_touched(task: manifest.Task, files: list[str] | None) -> bool:
    """Whether a change of these files may change what the task's graded tests say of a variant."""
    mine = (f"tasks/{task.folder}/", f"solutions/{task.folder}/", f"tests/task{task.number}/",
            f"tests/mutants/{task.number}.", "tests/graded/")
    return files is None or any(file.startswith(mine) for file in files)


def variants_of(task: manifest.Task, options: argparse.Namespace,
                mutants: list[mutant_files.Mutant]) -> list[Variant]:
    """Everything that is to be judged for one task."""
    sources = {name: regions.read(ROOT / "solutions" / task.folder / name, ROOT)
               for name in task.files}
    strict = ("-g0", "-Werror")
    found: list[Variant] = []
    if options.reference:
        found.append(Variant("reference", task, {}, "full marks", check_full))
    if options.skeleton:
        found.append(Variant("skeleton", task, {n: regions.skeleton(s) for n, s in sources.items()},
                             "0 points", check_solved_up_to(0), strict))
    is_untouched = bool(options.since) and not is_touched(task, changed_since(options.since))
    if options.ladder:
        for k, step in enumerate(task.steps, 1):
            if is_untouched and k != (len(task.steps) + 1) // 2:
                continue
            texts = {n: regions.ladder(s, step.id) for n, s in sources.items()}
            points = sum(each.points for each in task.steps[:k])
            found.append(Variant(f"solved up to {step.id}", task, texts, f"{points} points",
                                 check_solved_up_to(k), strict))
    on_device = options.device != "cpu"
    if on_device:
        mutants = [each for each in mutants if each.waits]
    if options.sample and (is_untouched or not options.since):
        mutants = sampled(mutants, options.sample)
        if is_untouched:
            mutants = third_of(mutants, turn_of_this_commit())
    for mutant in mutants if options.mutants else []:
        check = (check_full if mutant.is_alternative else check_noticed if on_device
                 else check_mutant)
        found.append(Variant(mutant.name, task, mutant.sources(ROOT),
                             " ".join(mutant.loses) or "full marks", check, mutant=mutant))
    return [each for each in found if options.only in ("", each.name)]


def judge(tools: builder.Builder, variant: Variant,
          includes: Mapping[str, tuple[str, ...]]) -> Outcome:
    """Builds and judges one variant. Never throws for what the variant does. `includes`: by file,
    the options that precompile() gave."""
    started = time.monotonic()
    number = variant.task.number
    target = f"runner_task{number}_solution"
    folder = ROOT / FOLDER / f"task{number}" / variant.name.replace(" ", "-")
    outcome = Outcome(variant)
    try:
        runner = tools.program(target)
        if variant.sources:
            for name, text in variant.sources.items():
                whole_file.write(folder / name, text)
            paths = {name: folder / name for name in variant.sources}
            objects = {(variant.task.folder, name): folder / f"{name}.o" for name in paths}
            for name, source in paths.items():
                tools.compile(source, variant.task.folder, name,
                              objects[variant.task.folder, name],
                              (*variant.extra, *includes.get(name, ())))
            tools.link(target, objects, folder / "runner")
            runner = folder / "runner"
        # The stand-in is slow: there, of a mutant, only its own step.
        only = "" if tools.device == "cpu" or variant.mutant is None else variant.mutant.step
        cases = verdicts.run_judge(tools.program(f"judge_task{number}"), runner,
                                   f"[{only}]" if only else "", env={"FSDP_SECONDS": SECONDS, **tools.environment()})
        outcome.found = verdicts.judge_steps(variant.task, cases, [only] if only else [])
        outcome.problems = variant.check(outcome)
        if variant.sources:
            runner.unlink()
    except (builder.BuildError, verdicts.JudgeError) as error:
        outcome.problems = [f"does not build or run: {error}"]
    outcome.seconds = time.monotonic() - started
    return outcome


def confused(outcomes: list[Outcome]) -> None:
    """A mutant's pattern matches no other mutant's message in that step."""
    told = [outcome for outcome in outcomes
            if outcome.variant.mutant is not None and not outcome.variant.mutant.is_alternative]
    for one in told:
        for other in told:
            mine, theirs = one.variant.mutant, other.variant.mutant
            if mine is theirs or mine.step not in theirs.loses or theirs.name in mine.like:
                continue
            text = other.first_message(mine.step)
            if text and re.search(mine.message, text):
                one.problems.append(f"its pattern also matches what {theirs.name} reads:\n{text}")


def check_isolation(tools: builder.Builder, course: manifest.Manifest) -> list[str]:
    """The runner that judges a student's task holds that task's code from tasks/, and no other."""
    problems = []
    for task in course.tasks:
        try:
            line = " ".join(tools.link_command(f"runner_task{task.number}"))
        except builder.BuildError as error:
            problems.append(f"task {task.number}: {error}")
            continue
        own = set(re.findall(r"/tasks/(task\d_\w+)/", line))
        if own != {task.folder}:
            problems.append(f"runner_task{task.number} holds {', '.join(sorted(own)) or 'nothing'}")
    return problems


def isolation_matrix(course: manifest.Manifest, scores: dict[tuple[int, str], int]) -> list[str]:
    """What the reference with task k's skeleton scores, from the points of this run: its runners
    hold one task's code each, so a submission's points are the sum of what its tasks got."""
    full = sum(task.public + task.hidden for task in course.tasks)
    lines = []
    for k in course.tasks:
        points = sum(scores.get((task.number, "skeleton" if task is k else "reference"), 0)
                     for task in course.tasks)
        right = full - k.public - k.hidden
        verdict = "ok" if points == right else f"MISS: should be {right}"
        lines.append(f"reference but for task {k.number}, a skeleton: {points}/{full}  {verdict}")
    return lines


def table(outcomes: list[Outcome], task: manifest.Task) -> list[str]:
    width = max(len(each.variant.name) for each in outcomes)
    lines = [f"task {task.number}, {task.title}",
             f"  {'variant':<{width}}  {'points':>6}  {'expected':<12}  verdict  lost"]
    for each in outcomes:
        verdict = "MISS" if each.problems else "ok"
        points = f"{each.points}/{task.public + task.hidden}"
        lines.append(f"  {each.variant.name:<{width}}  {points:>6}  {each.variant.expected:<12}  "
                     f"{verdict:<7}  {' '.join(each.lost)}".rstrip())
        lines += [f"      {line}".rstrip() for problem in each.problems
                  for line in problem.splitlines()[:12]]
    return lines


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = ("reference", "skeleton", "ladder", "isolation", "mutants")
    for kind in kinds:
        parser.add_argument(f"--{kind}", action="store_true")
    parser.add_argument("--all", action="store_true", help="all of these")
    parser.add_argument("--check", action="store_true", help="read files and try edits; no build")
    parser.add_argument("--task", type=int)
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--sample", type=int, default=0, metavar="N",
                        help="of the mutants, N for each step (and all alternatives)")
    parser.add_argument("--since", default="", metavar="COMMIT",
                        help="with --sample: all of a task that differs from this commit")
    parser.add_argument("--jobs", type=int, default=builder.Builder().jobs)
    parser.add_argument("--backend", choices=tuple(processes.BUILDS), default="threads",
                        help="what ranks are: threads, or processes of MPI")
    parser.add_argument("--device", choices=devices.DEVICES, default="cpu",
                        help="where ranks compute")
    options = parser.parse_args(arguments)
    if options.all or not any(getattr(options, kind) for kind in kinds):
        for kind in kinds:
            setattr(options, kind, options.all or kind == "mutants")
    return options


def run(options: argparse.Namespace) -> int:
    course = manifest.load()
    mutants = mutant_files.load_all(ROOT, course, options.task)
    tools = builder.Builder.of(options.backend, options.jobs, options.device)
    tasks = [task for task in course.tasks if options.task in (None, task.number)]
    work = [(task, variants_of(task, options, [m for m in mutants if m.task is task]))
            for task in tasks]
    if options.check:
        print(f"{sum(len(each) for _, each in work)} variants can be made")
        return 0
    misses = count = covered = demanded = 0
    scores: dict[tuple[int, str], int] = {}
    started = time.monotonic()
    for task, variants in work:
        if not variants:
            continue
        try:
            tools.make(f"runner_task{task.number}_solution", f"judge_task{task.number}")
        except builder.BuildError as error:
            print(f"task {task.number}: MISS: {error}\n")
            misses += 1
            continue
        tools.prepare(f"runner_task{task.number}_solution")
        includes = {name: tools.precompile(task.folder, name,
                                           ROOT / FOLDER / f"task{task.number}", ("-g0",))
                    for name in task.files}
        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(lambda each: judge(tools, each, includes), variants))
        if options.device == "cpu":
            confused(outcomes)
        print("\n".join(table(outcomes, task)))
        missed = {each.variant.name for each in outcomes if each.problems}
        if options.mutants and options.device == "cpu":
            promised = contract.load(ROOT, task, [m for m in mutants if m.task is task])
            print("  " + promised.summary(missed))
            covered += promised.covered(missed)
            demanded += promised.demanded()
        print(flush=True)
        misses += len(missed)
        count += len(outcomes)
        scores |= {(task.number, each.variant.name): each.points for each in outcomes}
        whole_file.write(
            ROOT / FOLDER / f"task{task.number}.json",
            json.dumps([{"name": e.variant.name, "lost": e.lost, "points": e.points,
                         "problems": e.problems,
                         "said": e.first_message(e.variant.mutant.step) if e.variant.mutant else "",
                         "seconds": round(e.seconds, 2)}
                        for e in outcomes], indent=1) + "\n")
    if options.isolation:
        problems = check_isolation(tools, course) if not options.task else []
        misses += len(problems)
        print("\n".join(problems) or "isolation: every runner holds its own task's code alone")
        if options.reference and options.skeleton and tasks == list(course.tasks):
            matrix = isolation_matrix(course, scores)
            misses += sum("MISS" in line for line in matrix)
            print("\n".join(matrix))
    if demanded:
        print(f"contract: {covered} of {demanded} sentences that demand are covered")
    print(f"{count} variants, {misses} misses, {time.monotonic() - started:.0f} s")
    return 1 if misses else 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(parse(arguments))
    except (manifest.ManifestError, regions.RegionError, mutant_files.MutantError,
            contract.ContractError, builder.BuildError, devices.DeviceError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
