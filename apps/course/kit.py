"""Packs what students get: make student-kit [GIVEN=1-2] [UPDATE=yes].

    kit.py [--given 1-2] [--update] [--output build/unshard-kit.tar.gz]

Everything but solutions, hidden cases, mutants and the instructor's tools; sources only. Where the
full tree has references a kit has the student's own earlier tasks, or, with --given, the references
of tasks that are already due. An update never holds a student's files: unpack it over the
old kit, from which common/, apps/ and tests/ were removed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from pathlib import Path

import builder
import gradescope_results
import manifest
import regions
import skeletons
import trusted
import unpack
import whole_file

FOLDER = "unshard-kit"
_LEFT_OUT = [
    r"solutions/.*", r"tests/solutions/.*", r"tests/mutants/.*", r"tests/task[0-9]+/hidden_.*",
    r"tests/grader/.*", r"tests/mpi/judged\.py", r"apps/course/questions/reference_.*",
    r"apps/course/questions/README\.md",
    r"apps/course/interface\.json", r"apps/course/skeletons/.*",
    r"apps/course/(grade|grade_all|gradescope|gradescope_results|html_summary|kit|jail"
    r"|build_submission|diagnosis|hiding|race_board|reference_submission|similarity|ahead|ending"
    r"|machine|kept|linking|precompiled|side_by_side|autolab|autograder)\.py",
    r"apps/course/(gradescope|autolab)_image/.*", r"tests/structure/.*", r"\.ci/.*",
    r"docs/(instructors|syllabus)\.md", r"docs/board/.*",
    r"tests/cuda_stand_in/.*", r"tests/support/cuda_on_card/.*", r"tests/cuda(_fsdp|_train)?/.*",
    r"tests/mpi/(cuda_.*|cards\.py)", r"tests/race/(hostile/.*|.*\.py)",
    r"\.git(?!(ignore|attributes)$).*",
    r"build/.*", r".*\.kept-[0-9]+",
]
_OWN = r"tasks/[a-z0-9_]+/([a-z0-9_]+\.cpp|answers\.toml)"  # files that belong to the student
# What a kit has in another place: workflows of a student's repository (the tree's own are in
# .github/workflows/), and how an editor starts a debugger.
_PLACES = {"apps/course/github/": ".github/workflows/", "apps/course/vscode/": ".vscode/"}


# Targets for work on the project itself: they need git, other compilers, or what a kit leaves out.
_FOR_MAINTAINERS = ("check-grader|compare-pytorch|skeletons|check|format|tidy|sanitize|sanitize-dev"
                    "|sanitize-tsan|check-clang|check-arm64|test-cuda|check-cuda|check-install"
                    "|cuda-kernels")


class KitError(Exception):
    """The kit cannot be made from this tree."""


def files_of_tree(root: Path) -> list[str]:
    """Every file of the project, by path; build products left out."""
    if (root / ".git").exists():
        done = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                              capture_output=True, text=True, check=True)
        names = done.stdout.splitlines()
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")
                 if "__pycache__" not in path.parts and path.relative_to(root).parts[0] != "build"]
    return sorted(name for name in set(names)
                  if (root / name).is_file() and not (root / name).is_symlink())


def given_tasks(text: str, course: manifest.Manifest) -> set[int]:
    """"1-2", "1,2" or "" as task numbers."""
    found: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if match is None:
            raise KitError(f"GIVEN={text}: write it like 1-2, or 1,3")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    for number in found:
        course.task(number)
    return found


def belongs(name: str, given: set[int], update: bool) -> bool:
    """Whether a file of the tree is for students."""
    match = re.match(r"solutions/task([0-9]+)_[a-z0-9_]+/[a-z0-9_]+\.cpp$", name)
    if match and int(match[1]) in given:
        return True
    if re.fullmatch(_OWN, name):  # skeletons are generated
        return (name.endswith("answers.toml") or name == unpack.POLICY) and not update
    return not any(re.fullmatch(pattern, name) for pattern in _LEFT_OUT)


def place(name: str) -> str:
    """Where a kit has a file of the tree."""
    for here, there in _PLACES.items():
        if name.startswith(here):
            return there + name.removeprefix(here)
    return name


def without_instructor(makefile: str) -> str:
    """The Makefile without the targets that need what a kit does not hold."""
    kept = re.sub(r"# ---- for instructors.*?# ---- end\n+", "", makefile, flags=re.S)
    kept = re.sub(rf"(?m)^({_FOR_MAINTAINERS}):.*\n(\t.*\n)*\n?", "", kept)
    kept = kept.replace("bench, test-taskN and grade", "bench and test-taskN")
    kept = kept.replace("test-task% grade", "test-task%")
    phony = re.search(r"(?m)^\.PHONY:(?:.*\\\n)*.*\n", kept)
    names = [name for name in phony[0].replace("\\\n", " ").split()[1:]
             if re.search(rf"(?m)^{re.escape(name)}:", kept)]
    return kept.replace(phony[0], f".PHONY: {' '.join(names)}\n")


def for_students(text: str) -> str:
    """A text without what stands between the marks for instructors, or lists the solutions."""
    text = re.sub(r"<!-- for instructors -->.*?<!-- end -->\n?", "", text, flags=re.S)
    return re.sub(r"(?m)^( *reference +)?solutions/.*\n", "", text)


def with_given(text: str, given: set[int]) -> str:
    """The front page of a kit that holds the references of these tasks."""
    paragraph = re.search(r"(?ms)^Each task has its own tests\..*?\n\n", text)
    if paragraph is None:
        raise KitError("README.md: the paragraph 'Each task has its own tests.' is not there")
    names = [f"task {number}" for number in sorted(given)]
    which = " and ".join([*filter(None, [", ".join(names[:-1])]), names[-1]])
    first = min(given)
    said = (f"**Given here.** This kit holds the references of {which}, in `solutions/`. Later tasks "
            "run on these, whatever your own files hold, so you can go on without them. "
            f"`make test-task{first}` still judges your own file, and `make test-task{first} "
            "IMPL=solution` the reference. In `make test-integrated`, a reference stands for its "
            "task as long as you have written no step of it.")
    lines = textwrap.fill(said, 100, break_long_words=False, break_on_hyphens=False)
    page = text.replace(paragraph[0], f"{paragraph[0]}{lines}\n\n")
    return page.replace("\napps/         programs",
                        "\nsolutions/    the references that came with this kit"
                        "\napps/         programs")


def contents(root: Path, course: manifest.Manifest, given: set[int], update: bool,
             build: Path) -> dict[str, bytes]:
    """The files of a kit, by path."""
    found = {place(name): (root / name).read_bytes() for name in files_of_tree(root)
             if belongs(name, given, update)}
    found["Makefile"] = without_instructor(found["Makefile"].decode()).encode()
    for name in ("README.md", "writeup/README.md", "docs/architecture.md"):
        if name in found:
            found[name] = for_students(found[name].decode()).encode()
    if given and "README.md" in found:
        found["README.md"] = with_given(found["README.md"].decode(), given).encode()
    for name, text in skeletons.generate(root, course).items():
        kept = name.replace("tasks/", "apps/course/skeletons/", 1)
        found[kept] = text.encode()
        if not update:
            found[name] = text.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "interface.json"
        trusted.write_interface(list(course.tasks), build, path)
        found["apps/course/interface.json"] = path.read_bytes()
    kit, _ = gradescope_results.versions()
    found["apps/course/kit.json"] = (json.dumps({"kit": kit, "given": sorted(given)}) +
                                      "\n").encode()
    return found


def pack(files: dict[str, bytes], root: Path, folder: str = FOLDER) -> bytes:
    """A .tar.gz; equal files give equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            path = root / name
            runs = path.is_file() and os.access(path, os.X_OK)
            entry.size, entry.mode = len(data), 0o755 if runs else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--given", default="", help="tasks whose references are in the kit: 1-2")
    parser.add_argument("--update", action="store_true", help="leave out the students' files")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--build", type=Path, default=manifest.ROOT / "build" / "grade")
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    options = parser.parse_args()
    root = manifest.ROOT
    try:
        course = manifest.load()
        given = given_tasks(options.given, course)
        if not options.built:
            builder.Builder(build=options.build).make(
                *(f"fsdp_task{task.number}" for task in course.tasks), show=False)
        files = contents(root, course, given, options.update, options.build)
    except (KitError, manifest.ManifestError, regions.RegionError, builder.BuildError,
            trusted.TrustedError) as error:
        print(f"kit: {error}", file=sys.stderr)
        return 2
    default = f"unshard-kit{'-update' if options.update else ''}.tar.gz"
    output = options.output or root / "build" / default
    data = pack(files, root)
    whole_file.write(output, data)
    references = f", references of task {options.given}" if given else ""
    print(f"{os.path.relpath(output)}: {len(files)} files, {len(data) >> 10} KiB{references}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
