"""Exports submissions for a tool that compares sources (MOSS, JPlag, Dolos, …).

    similarity.py FOLDER [--output build/grade/similarity] [--task 3]

Writes OUTPUT/taskN/NAME.cpp for every submission in FOLDER, without the lines that were handed out:
what is left is what the student wrote. OUTPUT/taskN/_handed_out.cpp is the skeleton, for tools that
take a base file. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import grade_all
import hiding
import manifest
import reference_submission
import unpack


def own_lines(text: str, given: str) -> str:
    """The lines of `text` that the skeleton does not have."""
    known = {line.strip() for line in given.splitlines()}
    return "\n".join(line for line in text.splitlines()
                     if line.strip() and line.strip() not in known) + "\n"


def export(folder: Path, output: Path, tasks: list[manifest.Task]) -> int:
    """Returns how many submissions were read."""
    course = manifest.load()
    given = reference_submission.files(course, skeleton=True)
    wanted = unpack.wanted_paths(course)
    count = 0
    for name, path in grade_all.submissions(folder):
        try:
            found = unpack.unpack(path, wanted)
        except unpack.UnpackError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        count += 1
        for task in tasks:
            paths = [f"tasks/{task.folder}/{file}" for file in task.files]
            texts = [own_lines(found.files[each].decode("utf-8", "replace"), given[each].decode())
                     for each in paths if each in found.files]
            target = output / f"task{task.number}"
            target.mkdir(parents=True, exist_ok=True)
            if texts:
                (target / f"{name}.cpp").write_text("".join(texts), encoding="utf-8")
            (target / "_handed_out.cpp").write_text(
                "".join(given[each].decode() for each in paths), encoding="utf-8")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=manifest.ROOT / "build/grade/similarity")
    parser.add_argument("--task", type=int, action="append")
    options = parser.parse_args()
    try:
        course = manifest.load()
        tasks = [course.task(number) for number in options.task or ()] or list(course.tasks)
        count = export(options.folder, options.output, tasks)
    except (manifest.ManifestError, OSError) as error:
        print(f"similarity: {error}", file=sys.stderr)
        return 2
    hiding.close(options.output)  # for good: it holds everybody's work
    print(f"{count} submissions: {os.path.relpath(options.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
