"""Writes tasks/*/*.cpp from solutions/*/*.cpp (make skeletons).

A file that somebody worked in is never overwritten: only a file whose SHA-256 is listed in
apps/course/skeleton_versions.txt, which holds every version ever generated. `--check` writes
nothing and fails if a skeleton differs from what the solution generates.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import sys
from pathlib import Path

import manifest
import regions
import whole_file

WARM_UP = Path("warm_up") / "shard_range.cpp"  # no task: it has no points and no judge
VERSIONS = Path("apps") / "course" / "skeleton_versions.txt"
_HEAD = ("# Every skeleton ever generated (SHA-256, file): what `make skeletons` may overwrite.\n"
         "# Written by apps/course/skeletons.py; lines are only ever added.\n")


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def generate(root: Path, course: manifest.Manifest) -> dict[str, str]:
    """The skeletons by path relative to `root`. Fails if a step has no region in its task."""
    texts: dict[str, str] = {}
    for task in course.tasks:
        seen: set[str] = set()
        for name in task.files:
            path = root / "solutions" / task.folder / name
            if not path.is_file():
                raise regions.RegionError(f"{path.relative_to(root)}: missing; points.toml names it"
                                          f" among the files of task {task.number}")
            source = regions.read(path, root)
            seen.update(source.steps())
            texts[f"tasks/{task.folder}/{name}"] = regions.skeleton(source)
        expected = {step.id for step in task.steps}
        for step in sorted(seen ^ expected, key=regions.step_key):
            where = "solutions/" + task.folder
            raise regions.RegionError(
                f"{where}: step {step} of points.toml has no region" if step in expected else
                f"{where}: step {step} has a region but is not in points.toml")
    warm_up = root / "solutions" / WARM_UP
    if warm_up.is_file():
        texts[f"tasks/{WARM_UP}"] = regions.skeleton(regions.read(warm_up, root))
    return texts


def read_versions(root: Path) -> dict[str, set[str]]:
    """File → the sums of all its generated versions."""
    versions: dict[str, set[str]] = {}
    path = root / VERSIONS
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                digest, name = line.split()
                versions.setdefault(name, set()).add(digest)
    return versions


def add_versions(root: Path, texts: dict[str, str]) -> None:
    path = root / VERSIONS
    known = read_versions(root)
    new = [f"{sha256_of(text)}  {name}\n" for name, text in sorted(texts.items())
           if sha256_of(text) not in known.get(name, set())]
    if new or not path.is_file():
        old = path.read_text(encoding="utf-8") if path.is_file() else _HEAD
        whole_file.write(path, old + "".join(new))


def write_all(root: Path, texts: dict[str, str]) -> list[str]:
    """Writes what may be written; returns a line for each file that was left alone."""
    versions = read_versions(root)
    add_versions(root, texts)  # first: a file on disk is always one that the list knows
    refused = []
    for name, text in texts.items():
        path = root / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            refused.append(f"{name}: not a regular file; move it away and run make skeletons again")
        elif path.exists():
            now = path.read_text(encoding="utf-8")
            if now == text:
                continue
            if sha256_of(now) not in versions.get(name, set()):
                folder = Path(name).parts[1].split("_")[0]
                again = (f" (make reset-{folder} keeps it and starts again)"
                         if name != f"tasks/{WARM_UP}" else "")
                refused.append(f"{name}: somebody worked in this file, so it is not overwritten"
                               f"{again}")
                continue
            whole_file.write(path, text)
            print(f"rewritten  {name}")
        else:
            whole_file.write(path, text)
            print(f"written    {name}")
    return refused


def check_all(root: Path, texts: dict[str, str]) -> list[str]:
    """A paragraph for each skeleton that is not what its solution generates."""
    versions = read_versions(root)
    problems = []
    for name, text in texts.items():
        path = root / name
        if not path.is_file():
            problems.append(f"{name}: missing; run make skeletons")
            continue
        now = path.read_text(encoding="utf-8")
        if sha256_of(text) not in versions.get(name, set()):
            problems.append(f"{name}: this version is not in {VERSIONS}; run make skeletons")
        if now != text:
            diff = difflib.unified_diff(now.splitlines(), text.splitlines(), "as it is",
                                        "as generated", lineterm="", n=1)
            problems.append(f"{name}: differs from what its solution generates; run make skeletons"
                            "\n" + "\n".join(list(diff)[:20]))
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    parser.add_argument("--root", type=Path, default=manifest.ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        course = manifest.load(options.root / "apps" / "course" / "points.toml")
        texts = generate(options.root, course)
    except (manifest.ManifestError, regions.RegionError) as error:
        print(f"skeletons: {error}", file=sys.stderr)
        return 1
    run = check_all if options.check else write_all
    problems = run(options.root, texts)
    for problem in problems:
        print(f"skeletons: {problem}", file=sys.stderr)
    if options.check and not problems:
        print(f"{len(texts)} skeletons are what their solutions generate")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
