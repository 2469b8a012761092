"""Makes submissions out of the references: what must score all points, and what must score none.

    reference_submission.py FOLDER [--skeleton] [--id me@school.edu]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import manifest
import questions
import regions

STUDENT = "reference@unshard.example"


def files(course: manifest.Manifest, student: str = STUDENT,
          skeleton: bool = False) -> dict[str, bytes]:
    """The files of a whole submission, by path."""
    found: dict[str, bytes] = {}
    for task in course.tasks:
        for name in task.files:
            source = manifest.ROOT / "solutions" / task.folder / name
            text = source.read_bytes()
            if skeleton:
                text = regions.skeleton(regions.read(source, manifest.ROOT)).encode()
            found[f"tasks/{task.folder}/{name}"] = text
        if task.questions and not skeleton:
            answers = questions.solve(task.number, student)
            found[f"tasks/{task.folder}/answers.toml"] = answers.encode()
    return found


def write(folder: Path, content: dict[str, bytes]) -> None:
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--skeleton", action="store_true")
    parser.add_argument("--id", default=STUDENT)
    options = parser.parse_args()
    write(options.folder, files(manifest.load(), options.id, options.skeleton))
    return 0


if __name__ == "__main__":
    sys.exit(main())
