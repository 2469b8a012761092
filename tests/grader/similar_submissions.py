"""Writes submissions whose likeness is known, to try a tool on that compares sources.

    similar_submissions.py FOLDER [--task 3] [--raw]

    FOLDER/copied-NAME     the reference with one edit: a variant of tests/mutants. All are copies
    FOLDER/renamed-NAME    every fifth of them, with each name of its own changed
    FOLDER/step-3.2        the reference of one step, and the skeleton: such two share no work

apps/course/similarity.py exports FOLDER for the tool. With --raw, the files are written to compare
as they were handed in, for what would be found without similarity.py: FOLDER/taskN/NAME.cpp.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import mutant_files
import reference_submission
import regions
import similarity

ROOT = manifest.ROOT
RENAMED_EVERY = 5
_NAME = re.compile(r"\b[a-z][a-z0-9_]*[a-z0-9]\b")
_MARK = re.compile(r"(?m)^\s*// (END )?SOLUTION\b.*\n")


def renamed(text: str, given: str) -> str:
    """Every name that is declared in the student's own lines gets another one."""
    declared = re.findall(r"(?:auto\b[ &*]*|[\w>][&*]* )([a-z]\w*)\s*(?:=|:|;|\{|\()",
                          similarity.own_lines(text, given))
    own = sorted({name for name in declared if len(name) > 1} - set(_NAME.findall(given)))
    other = {name: f"my_{number}" for number, name in enumerate(own)}
    return _NAME.sub(lambda found: other.get(found[0], found[0]), text)


def submissions(task: manifest.Task) -> dict[str, dict[str, str]]:
    """The files of each, by name of the submission and of the file."""
    sources = {name: regions.read(ROOT / "solutions" / task.folder / name, ROOT)
               for name in task.files}
    given = {name: regions.skeleton(source) for name, source in sources.items()}
    solved = {name: "\n".join(source.lines) for name, source in sources.items()}
    found: dict[str, dict[str, str]] = {}
    for number, variant in enumerate(
            each for each in mutant_files.load_all(ROOT, manifest.load(), task.number)):
        texts = {**solved, **variant.sources(ROOT)}
        found[f"copied-{variant.name}"] = texts
        if number % RENAMED_EVERY == 0:
            found[f"renamed-{variant.name}"] = {name: renamed(text, given[name])
                                                for name, text in texts.items()}
    for step in task.steps:
        found[f"step-{step.id}"] = {name: regions.with_solved(source, [step.id])
                                    for name, source in sources.items()}
    return {name: {file: _MARK.sub("", text) for file, text in texts.items()}
            for name, texts in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", type=int, action="append")
    parser.add_argument("--raw", action="store_true", help="files to compare, not submissions")
    options = parser.parse_args()
    course = manifest.load()
    count = 0
    for task in [course.task(number) for number in options.task or ()] or list(course.tasks):
        for name, texts in submissions(task).items():
            count += 1
            if options.raw:
                content = {f"task{task.number}/{name}.cpp": "".join(texts.values()).encode()}
            else:
                content = {f"task{task.number}-{name}/tasks/{task.folder}/{file}": text.encode()
                           for file, text in texts.items()}
            reference_submission.write(options.folder, content)
    print(f"{count} submissions: {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
