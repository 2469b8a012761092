"""Builds with build/grade: its targets, and runners of which some task's code is another's.

A runner with other code is linked by the very command CMake links the runner with: the objects of
the replaced task are exchanged on it, and nothing else changes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import devices
import manifest
import processes

_CLEAR = "\r\033[K"  # empties the terminal's line

FolderAndName = tuple[str, str]  # ("task3_forward", "forward.cpp")


class BuildError(Exception):
    """Something did not compile or link; the text is what the compiler said."""


@dataclass
class Builder:
    """The build folder of preset `grade`, or of another preset of that name."""

    root: Path = manifest.ROOT
    build: Path = manifest.ROOT / "build" / "grade"
    jobs: int = os.cpu_count() or 1
    device: str = "cpu"
    _flags: dict[FolderAndName, list[str]] = field(default_factory=dict)
    _links: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def of(backend: str, jobs: int = os.cpu_count() or 1, device: str = "cpu") -> Builder:
        """The builder of runners whose ranks are what `backend` says, threads or mpi, and compute
        on `device`."""
        if device != "cpu" and backend != "threads":
            raise devices.DeviceError(f"--device {device} --backend {backend}: ranks on CUDA cards "
                                      "are threads")
        name = processes.BUILDS[backend] if device == "cpu" else devices.preset(device)
        return Builder(build=manifest.ROOT / "build" / name, jobs=jobs, device=device)

    def environment(self) -> dict[str, str]:
        """What a judge of this build's runners must be told of their ranks."""
        return {**processes.environment(self.build, self.root / processes.SCRIPTS_FOLDER),
                **devices.environment(self.device)}

    def program(self, name: str) -> Path:
        return self.build / "bin" / name

    @property
    def shared(self) -> str:
        """Who takes the processor time that was named before."""
        return f", which {self.jobs} jobs share" if self.jobs > 1 else ""

    def configure(self) -> None:
        """Once; afterwards the build itself notices what changed."""
        if (self.build / "build.ninja").is_file():
            return
        self._call(["cmake", "--preset", self.build.name, "--log-level=NOTICE"], self.root)

    def make(self, *targets: str, show: bool = True, tell: bool | None = None,
             what: str = "") -> None:
        """Builds targets. `show`: the compiler's words go to the terminal. `tell`, by default the
        same: so does how far it is and, the first time, `what` is built."""
        self.configure()
        command = ["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *targets]
        tell = show if tell is None else tell
        if tell and not all(self.program(target).is_file() for target in targets):
            is_first = not any((self.build / "bin").glob("judge_task*"))
            what = what or (
                f"what is given, once: about five minutes of processor time{self.shared}"
                if is_first else
                "this task's programs, once: half a minute of processor time, or a minute")
            print(f"Building {what}. After that a save takes seconds.", flush=True)
        said: list[str] = []
        with subprocess.Popen(command, cwd=self.root, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as build:
            for line in build.stdout:
                said.append(line)
                if tell:
                    _show_progress(line)
            if tell and sys.stdout.isatty():
                print(_CLEAR, end="", flush=True)  # a count that ended early, as [0/2]
        if build.returncode != 0:
            if show:
                print(_only_errors("".join(said)))
            raise BuildError(f"{' '.join(targets)}: did not build" +
                             ("" if show else f"\n{_only_errors(''.join(said))}"))

    def prepare(self, target: str) -> None:
        """Reads the build's commands once, so that threads may call runner()."""
        self.link_command(target)
        self._flags = self._flags or read_flags(self.build / "compile_commands.json")

    def compile(self, source: Path, folder: str, name: str, output: Path,
                extra: tuple[str, ...] = ()) -> None:
        """Compiles `source` as if it were the task's file `name`."""
        output.parent.mkdir(parents=True, exist_ok=True)
        self._call([*self._flags_of(folder, name), *extra, "-c", str(source), "-o", str(output)],
                   self.build)

    def precompile(self, folder: str, name: str, output: Path,
                   extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Compiles what the reference's file includes, once, into the folder `output`. Returns what
        to pass to compile() with the same `extra`, for variants of it: half its time."""
        source = self.root / "solutions" / folder / name
        includes = re.findall(r"^#include .*$", source.read_text(encoding="utf-8"), re.MULTILINE)
        header = output / f"{name}.includes.h"
        output.mkdir(parents=True, exist_ok=True)
        header.write_text("\n".join(includes) + "\n", encoding="utf-8")
        self._call([*self._flags_of(folder, name), *extra, "-x", "c++-header", str(header), "-o",
                    f"{header}.gch"], self.build)
        return ("-include", str(header))

    def link(self, target: str, objects: Mapping[FolderAndName, Path], output: Path) -> None:
        """Links the runner `target` with other objects for some files, as `output`."""
        output.parent.mkdir(parents=True, exist_ok=True)
        command = relink(self.link_command(target), objects, output)
        self._call(command, self.build)

    def runner(self, target: str, folder: str, sources: Mapping[str, Path], output: Path,
               extra: tuple[str, ...] = ()) -> Path:
        """The runner `target`, already built, with other sources for some files of a task."""
        objects: dict[FolderAndName, Path] = {}
        for name, source in sources.items():
            objects[folder, name] = output / f"{name}.o"
            self.compile(source, folder, name, objects[folder, name], extra)
        self.link(target, objects, output / "runner")
        return output / "runner"

    def _flags_of(self, folder: str, name: str) -> list[str]:
        if not self._flags:
            self._flags = read_flags(self.build / "compile_commands.json")
        if (folder, name) not in self._flags:
            raise BuildError(f"{self.build}: no command compiles {folder}/{name}")
        return self._flags[folder, name]

    def link_command(self, target: str) -> list[str]:
        if target not in self._links:
            done = subprocess.run(
                ["ninja", "-C", str(self.build), "-t", "commands", "-s", f"bin/{target}"],
                capture_output=True, text=True, check=False)
            lines = done.stdout.strip().splitlines()
            if done.returncode != 0 or not lines:
                raise BuildError(f"no command links {target}: {done.stderr.strip()}")
            words = shlex.split(lines[-1])
            self._links[target] = [word for word in words if word not in (":", "&&")]
        return self._links[target]

    def _call(self, command: list[str], folder: Path) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(_only_errors(done.stdout + done.stderr))


def read_flags(path: Path) -> dict[FolderAndName, list[str]]:
    """What compiles each task's files, without source and output."""
    flags: dict[FolderAndName, list[str]] = {}
    for entry in json.loads(path.read_text(encoding="utf-8")):
        source = Path(entry["file"])
        if source.suffix != ".cpp" or source.parent.parent.name not in ("tasks", "solutions"):
            continue
        words = shlex.split(entry["command"])
        for option in ("-c", "-o"):
            at = words.index(option)
            del words[at:at + 2]
        flags.setdefault((source.parent.name, source.name), words)
    return flags


def relink(command: list[str], objects: Mapping[FolderAndName, Path], output: Path) -> list[str]:
    """A link command with objects exchanged. A task that is an archive on it (the tasks before the
    runner's own) is replaced as a whole: an archive must not fill gaps in the code under test."""
    words = list(command)
    inserted: list[str] = []
    archives: set[str] = set()
    for (folder, name), path in objects.items():
        endings = (f"/solutions/{folder}/{name}.o", f"/tasks/{folder}/{name}.o")
        places = [i for i, word in enumerate(words) if word.endswith(endings)]
        if places:
            words[places[0]] = str(path)
            continue
        archive = f"libfsdp_task{folder.removeprefix('task').split('_')[0]}.a"
        if not any(word.endswith("/" + archive) for word in command):
            raise BuildError(f"neither {name}.o nor {archive} is on the link line of {command}")
        inserted.append(str(path))
        archives.add("/" + archive)
    words = [word for word in words if not word.endswith(tuple(archives) or ("\0",))]
    at = words.index("-o")
    words[at + 1] = str(output)
    return words[:at] + inserted + words[at:]


def _show_progress(line: str) -> None:
    """The build tool's count, e.g. [12/130]: on one line of a terminal; elsewhere, of a
    long build, every tenth."""
    count = re.match(r"\[(\d+)/(\d+)\]", line)
    if count is None:
        return
    done, total = int(count[1]), int(count[2])
    if sys.stdout.isatty():
        print(f"\r{count[0]}", end="", flush=True)
    elif total >= 20 and done % (total // 10) == 0 and done > 0:
        print(count[0], flush=True)


def _only_errors(output: str) -> str:
    """The compiler's words without the build tool's progress."""
    skipped = ("[", "ninja: ", "gmake", "make[", "FAILED: ", ": && ")
    kept = [line for line in output.splitlines()
            if not line.startswith(skipped) and not (" -o " in line and " -c " in line)]
    return "\n".join(kept[:60])


def remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
