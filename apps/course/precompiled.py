"""The given header that nearly every file of a task includes, compiled once.

Half of what compiling a submission costs is reading it. A file that begins by including it gets it
first (-include), as text for the preprocessor and compiled for g++: what it means stays the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import manifest
import stamp
from linking import BuildError

HEADER = "nn/module.h"
_NAME = "precompiled.h"  # includes it
_TEXT = f'#include "{HEADER}"\n'
_TOPS = ("common", "tasks")
# What may stand before the first declaration: blanks, comments, and includes.
_HEAD = re.compile(r'[ \t\r\n]+|//(?:[^\\\n]|\\(?!\n))*|/\*.*?\*/'
                   r'|#[ \t]*include[ \t]*(?:"(?P<own>[^"\n]+)"|<[^>\n]+>)', re.DOTALL)


def make(build: Path, flags: list[str]) -> None:
    """Compiles the header with `flags` into `build`, if they, or a file that it reads, have changed
    since. Only g++ will read it."""
    if find(build, flags) is not None or not _is_gcc(flags[0]):
        return
    folder = build / "precompiled"
    folder.mkdir(exist_ok=True)
    (folder / _NAME).write_text(_TEXT, encoding="utf-8")
    output, rule = _compiled(build), folder / f".{_NAME}.{os.getpid()}.d"
    temporary = rule.with_suffix(".gch")
    done = subprocess.run([*flags, f"-ffile-prefix-map={manifest.ROOT}/=", "-MD", "-MF", rule,
                           "-x", "c++-header", folder / _NAME, "-o", temporary],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{HEADER} does not compile: {done.stderr.strip()[:400]}")
    read = rule.read_text(encoding="utf-8").partition(": ")[2].replace("\\\n", " ")
    # A blank within a name is written with a backslash before it.
    files = [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"(?:\\.|[^\s\\])+", read)]
    os.replace(temporary, output)
    _stamp_of(output).write_text(f"{_one_line(flags)}\n{stamp.of(files)}", encoding="utf-8")
    rule.unlink()


def find(build: Path, flags: list[str]) -> Path | None:
    """What make() has compiled; None if there is none that is up to date."""
    output = _compiled(build)
    if not output.is_file() or not _stamp_of(output).is_file():
        return None
    made_with, _, noted = _stamp_of(output).read_text(encoding="utf-8").partition("\n")
    is_current = made_with == _one_line(flags) and stamp.holds(noted, stamp.names(noted))
    return output if is_current else None


def put(made: Path, folder: Path) -> list[str]:
    """The compiled header in `folder`, for those who cannot read the build. Returns the options that
    use it."""
    name = folder / _NAME
    if not name.exists():
        try:
            os.link(made, folder / made.name)
        except OSError:  # on another file system
            shutil.copyfile(made, folder / made.name)
        name.write_text(_TEXT, encoding="utf-8")
        for path in (name, folder / made.name):
            path.chmod(0o644)
    return ["-include", str(name)]


def is_included(source: Path, root: Path) -> bool:
    """Whether `source` begins with includes, and one of them leads to the header before anything
    else is said. `root` holds common/ and tasks/."""
    seen: set[str] = set()
    unread = list(_first_includes(source.read_text(encoding="utf-8", errors="replace")))
    while unread:
        name = unread.pop()
        if name == HEADER:
            return True
        if name in seen:
            continue
        seen.add(name)
        for path in (root / top / name for top in _TOPS):
            if path.is_file():
                unread += _first_includes(
                    path.read_text(encoding="utf-8").replace("#pragma once\n", "", 1))
    return False


def without_path(text: str) -> str:
    """A compiler's words without the lines that name the file which is included first."""
    return "".join(line for line in text.splitlines(keepends=True) if f"/{_NAME}:" not in line)


def _first_includes(text: str) -> Iterator[str]:
    at = 0
    while (found := _HEAD.match(text, at)) is not None:
        if found["own"]:
            yield found["own"]
        at = found.end()


def _compiled(build: Path) -> Path:
    return build / "precompiled" / f"{_NAME}.gch"


def _stamp_of(output: Path) -> Path:
    return output.with_suffix(".of")


def _one_line(flags: list[str]) -> str:
    return " ".join(flags).replace("\n", " ")


def _is_gcc(compiler: str) -> bool:
    """clang++ reads its own kind of such files only where their sources can be read."""
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return "Free Software Foundation" in done.stdout
