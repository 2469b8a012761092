"""The given header that nearly every file of a task includes, compiled once.

Half of what compiling a submission costs is reading it. A file that includes it anyhow gets it first
(-include), as text for the preprocessor and compiled for the compiler: what it means stays the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import manifest
from linking import BuildError

HEADER = "nn/module.h"
_NAME = "precompiled.h"  # includes it
_TEXT = f'#include "{HEADER}"\n'
_TOPS = ("common", "tasks")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"\n]+)"', re.MULTILINE)


def compiled(build: Path, flags: list[str]) -> Path:
    """The header as `flags` compile it, in `build`: made anew when they, or a header of the
    library, have changed."""
    headers = sorted((manifest.ROOT / "common").rglob("*.h"))
    stamp = "\n".join([" ".join(flags), *(f"{path} {path.stat().st_mtime_ns}" for path in headers)])
    folder = build / "precompiled"
    output, stamped = folder / f"{_NAME}.gch", folder / f"{_NAME}.of"
    if output.is_file() and stamped.is_file() and stamped.read_text(encoding="utf-8") == stamp:
        return output
    folder.mkdir(exist_ok=True)
    (folder / _NAME).write_text(_TEXT, encoding="utf-8")
    temporary = folder / f".{_NAME}.{os.getpid()}"
    done = subprocess.run([*flags, f"-ffile-prefix-map={manifest.ROOT}/=", "-x", "c++-header",
                           folder / _NAME, "-o", temporary],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{HEADER} does not compile: {done.stderr.strip()[:400]}")
    os.replace(temporary, output)
    stamped.write_text(stamp, encoding="utf-8")
    return output


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
    """Whether `source` includes the header, or a header does that it includes. `root` holds common/
    and tasks/."""
    seen: set[str] = set()
    unread = _INCLUDE.findall(source.read_text(encoding="utf-8", errors="replace"))
    while unread:
        name = unread.pop()
        if name == HEADER:
            return True
        if name in seen:
            continue
        seen.add(name)
        for path in (root / top / name for top in _TOPS):
            if path.is_file():
                unread += _INCLUDE.findall(path.read_text(encoding="utf-8"))
    return False
