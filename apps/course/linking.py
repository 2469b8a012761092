"""Links runners of submitted code.

As CMake links runner_taskN_solution, with three differences: archives come whole (an archive only
fills gaps, so a definition in a submission would silently replace one), the task's reference is left
out, and the submitted objects come last. All that is trusted is linked into one object beforehand
(build/grade/prelinked), so that a submission costs one short link a task.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import manifest
import object_file
import stamp
from object_file import ObjectFile


class BuildError(Exception):
    """The grader's own part of the build does not work: not the submission's fault."""


def link_command(build: Path, task: manifest.Task, objects: list[Path],
                 output: Path) -> list[str]:
    """The reference runner's link command, changed as the head of this file says."""
    target = f"runner_task{task.number}_solution"
    done = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "-s", f"bin/{target}"],
                          capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise BuildError(f"nothing links {target} in {build}: {done.stderr.strip()[:200]}")
    parts = taken_apart([word for word in shlex.split(lines[-1]) if word not in (":", "&&")], task)
    trusted = prelinked(build, task, parts)
    return [*parts.options, str(trusted), *(str(path) for path in objects), *parts.system,
            "-o", str(output)]


@dataclass
class LinkParts:
    """A link command, taken apart."""

    options: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)  # of the runner; not of the task
    archives: list[str] = field(default_factory=list)  # of the course
    system: list[str] = field(default_factory=list)


def taken_apart(words: list[str], task: manifest.Task) -> LinkParts:
    own = tuple(f"/{top}/{task.folder}/{name}.o" for top in ("solutions", "tasks")
                for name in task.files)
    parts = LinkParts()
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "-o":
            skip = True
        elif word.endswith(own):
            continue
        elif word.endswith(".o"):
            parts.objects.append(word)
        elif word.endswith(".a") and not word.startswith("-") and not os.path.isabs(word):
            if word not in parts.archives:
                parts.archives.append(word)
        elif (word.startswith(("-l", "-Wl,-rpath")) or word.endswith((".so", ".a"))
              or ".so." in word):
            parts.system.append(word)
        else:
            parts.options.append(word)
    if not parts.archives or not parts.objects:
        raise BuildError("the link command of the reference names no archive of the course")
    return parts


def prelinked(build: Path, task: manifest.Task, parts: LinkParts) -> Path:
    """All trusted objects of a runner as one: every member of every archive, used or not. A member
    that the runner replaces by one of its own (memory filled with NaN) is left out."""
    inputs = [build / word for word in (*parts.objects, *parts.archives)]
    folder = build / "prelinked"
    output, stamped = folder / f"task{task.number}.o", folder / f"task{task.number}.of"
    if (output.is_file() and stamped.is_file()
            and stamp.holds(stamped.read_text(encoding="utf-8"), inputs)):
        return output
    noted = stamp.of(inputs)
    folder.mkdir(exist_ok=True)
    replaced = {symbol.name for word in parts.objects
                for symbol in ObjectFile((build / word).read_bytes(), word).symbols
                if symbol.strong}
    with tempfile.TemporaryDirectory(prefix="unshard-prelink-") as name:
        members = []
        for archive in parts.archives:
            for member, data in object_file.members(build / archive):
                if any(s.strong and s.name in replaced for s in ObjectFile(data, member).symbols):
                    continue
                members.append(Path(name) / f"{len(members)}-{member}")
                members[-1].write_bytes(data)
        temporary = folder / f".task{task.number}.{os.getpid()}.o"
        done = subprocess.run(["ld", "-r", "--strip-debug", "-o", str(temporary),
                               *(str(build / word) for word in parts.objects),
                               *(str(path) for path in members)],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"the trusted objects of task {task.number} do not link: "
                         f"{done.stderr.strip()[:400]}")
    os.replace(temporary, output)
    stamped.write_text(noted, encoding="utf-8")
    return output
