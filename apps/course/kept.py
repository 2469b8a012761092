"""What was graded before is kept, with a sum over all that the result follows from.

That is the submission, who handed it in, which tasks were graded with which limits, and this tree.
As long as the sum is the same, so is the result, and nothing is graded again.
"""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import gradescope_results
import kit
import manifest
import unpack

_FILE = "graded.json"  # beside results.json, from when that is complete
# Of the tree: all code, what it is compiled from and with. Not texts, nor the grader's own tests.
_TOPS = ("CMake", "apps/", "common/", "solutions/", "tasks/", "tests/")
_NOT = ("tests/grader/", "tests/mutants/", "tests/golden/")
_TEXTS = (".md", ".svg", ".html")


def sum_of(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sum_of_tree(root: Path = manifest.ROOT) -> str:
    total = hashlib.sha256()
    for name in kit.files_of_tree(root):
        if name.startswith(_TOPS) and not name.startswith(_NOT) and not name.endswith(_TEXTS):
            total.update(f"{name}\n{sum_of_file(root / name)}\n".encode())
    return total.hexdigest()


def sum_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sum_of_submission(path: Path) -> str:
    """Of a folder all names, and the bytes of what is small enough to be graded, or an archive."""
    if not path.is_dir():
        return sum_of_file(path)
    found: list[object] = []
    for entry in unpack.entries_of_folder(path):
        counts = entry.kind == "file" and (entry.nbytes <= unpack.MOST_BYTES or
                                           entry.path.endswith(unpack.ARCHIVES))
        found.append([unpack.shown(entry.path), entry.nbytes, entry.kind,
                      _sum_if_regular(path / entry.path) if counts else ""])
    return sum_of(found)


def _sum_if_regular(path: Path) -> str:
    return sum_of_file(path) if stat.S_ISREG(path.lstat().st_mode) else ""


def store(folder: Path, total: str, seconds: float) -> None:
    """The results in `folder` are those of `total`, and took `seconds` by the clock."""
    gradescope_results.write_json(folder / _FILE, {"sum": total, "seconds": round(seconds, 2)})


def load(folder: Path, total: str) -> tuple[dict[str, Any], float] | None:
    """The results that are kept in `folder`, and the seconds they took; None: none of `total`."""
    try:
        note = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if note["sum"] != total:
            return None
        return read(folder), float(note["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read(folder: Path) -> dict[str, Any]:
    """results.json"""
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def forget(folder: Path) -> None:
    """From now on the results there are not complete."""
    (folder / _FILE).unlink(missing_ok=True)
