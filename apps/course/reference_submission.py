"""Makes submissions out of the references: what must score all points, and what must score none."""

from __future__ import annotations

from pathlib import Path

import manifest
import questions
import regions

STUDENT = "reference@unshard.example"


def files(course: manifest.Manifest, skeleton: bool = False) -> dict[str, bytes]:
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
            answers = questions.solve(task.number, STUDENT)
            found[f"tasks/{task.folder}/answers.toml"] = answers.encode()
    return found


def write(folder: Path, content: dict[str, bytes]) -> None:
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
