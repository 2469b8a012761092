"""Whole submissions that are wrong in several tasks at once: tests/mutants/whole/NAME.toml.

    title = "DDP posing as FSDP"
    loses = ["3.3", "4.4"]        # root steps; each task alone, by its own judge, loses its own
    integrated = ["7.4"]          # what task 7's cases lose when all of it runs together, or []
    message = 'as much as DDP'    # read in the first of them; left out with []
    [[edit]]
    task = 3                      # then as in mutant_files.py
    region = "3.3"
    find = '…'
    replace = '…'

Mistakes may agree with each other: an average that is missing in one task and made up for in the
next changes no result. So the tasks are judged one by one, next to references, as in grading; and
together, as in make test-integrated.

    whole_mutants.py [--only NAME] [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import course_path  # noqa: F401  must come first
import builder
import manifest
import mutant_files
import regions
import verdicts
import whole_file

ROOT = manifest.ROOT
SOURCES = Path("tests") / "mutants" / "whole"
FOLDER = Path("build") / "grade" / "mutants" / "whole"
SECONDS = {"FSDP_SECONDS": "4"}
_FIELDS = {"title", "loses", "integrated", "message", "edit", "why"}


@dataclass(frozen=True)
class Whole:
    """One submission: the text of every file that differs from the reference, by task."""

    name: str
    title: str
    loses: tuple[str, ...]
    integrated: tuple[str, ...]
    message: str
    texts: dict[int, dict[str, str]]


def load(path: Path, course: manifest.Manifest) -> Whole:
    where = f"whole/{path.name}"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    if unknown := sorted(set(table) - _FIELDS):
        raise mutant_files.MutantError(f"{where}: unknown field '{unknown[0]}'")
    if missing := sorted({"title", "loses", "integrated", "edit"} - set(table)):
        raise mutant_files.MutantError(f"{where}: the field '{missing[0]}' is missing")
    edits: dict[int, dict[str, list[regions.Edit]]] = {}
    for each in table["edit"]:
        task = course.task(each["task"])
        name = each.get("file", task.files[0])
        edits.setdefault(task.number, {}).setdefault(name, []).append(
            regions.Edit(each["region"], each.get("find"), each.get("replace"), each.get("whole"),
                         each.get("nth")))
    texts: dict[int, dict[str, str]] = {}
    for number, files in edits.items():
        task = course.task(number)
        sources = {n: regions.read(ROOT / "solutions" / task.folder / n, ROOT) for n in task.files}
        texts[number] = {n: regions.apply(s, files.get(n, [])) for n, s in sources.items()}
    return Whole(path.stem, table["title"], tuple(table["loses"]), tuple(table["integrated"]),
                 table.get("message", ""), texts)


def judged(tools: builder.Builder, task: manifest.Task,
           objects: dict[builder.FolderAndName, Path], folder: Path) -> list[verdicts.Verdict]:
    """The verdicts on task's runner with other objects."""
    tools.link(f"runner_task{task.number}_solution", objects, folder / "runner")
    cases = verdicts.run_judge(tools.program(f"judge_task{task.number}"), folder / "runner",
                               env=SECONDS)
    return verdicts.judge_steps(task, cases)


def lost_of(found: list[verdicts.Verdict]) -> set[str]:
    return {verdict.step.id for verdict in found if verdict.state != "passed"}


def compare(what: str, lost: set[str], roots: set[str], task: manifest.Task) -> list[str]:
    """A loss of all the roots and of nothing that does not require one of them."""
    problems = []
    if roots - lost:
        problems.append(f"{what} passes {', '.join(sorted(roots - lost))}")
    if too_much := lost - task.dependants(roots):
        problems.append(f"{what} loses {', '.join(sorted(too_much))} too")
    return problems


def check(tools: builder.Builder, course: manifest.Manifest, whole: Whole) -> list[str]:
    """What does not come out as it should."""
    folder = ROOT / FOLDER / whole.name
    last = course.required[-1]
    objects: dict[builder.FolderAndName, Path] = {}
    problems = []
    for number, files in sorted(whole.texts.items()):
        task = course.task(number)
        tools.make(f"runner_task{number}_solution", f"judge_task{number}")
        own: dict[builder.FolderAndName, Path] = {}
        for name, text in files.items():
            source = folder / task.folder / name
            whole_file.write(source, text)
            own[task.folder, name] = folder / task.folder / f"{name}.o"
            tools.compile(source, task.folder, name, own[task.folder, name],
                          ("-g0", "-Wno-error"))
        objects |= own
        lost = lost_of(judged(tools, task, own, folder))
        roots = {step for step in whole.loses if step.startswith(f"{number}.")}
        problems += compare(f"task {number} alone", lost, roots, task)
    tools.make(f"runner_task{last.number}_solution", f"judge_task{last.number}")
    found = judged(tools, last, objects, folder)
    problems += compare("all together", lost_of(found), set(whole.integrated), last)
    if whole.integrated and not problems:
        first = next(v for v in found if v.step.id == whole.integrated[0]).first_failure()
        text = first.message if first is not None else ""
        if not re.search(whole.message, text):
            problems.append(f"{whole.integrated[0]} says something else:\n{text}")
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="read files and try edits; no build")
    options = parser.parse_args(arguments)
    misses = 0
    try:
        course = manifest.load()
        tools = builder.Builder()
        for path in sorted((ROOT / SOURCES).glob("*.toml")):
            if options.only not in ("", path.stem):
                continue
            whole = load(path, course)
            problems = [] if options.check else check(tools, course, whole)
            misses += bool(problems)
            print(f"{whole.name}: {'MISS' if problems else 'ok'}  ({whole.title})")
            print("".join(f"    {line}\n" for each in problems for line in each.splitlines()), end="")
    except (manifest.ManifestError, regions.RegionError, mutant_files.MutantError,
            builder.BuildError, verdicts.JudgeError, tomllib.TOMLDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
