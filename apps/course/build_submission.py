"""Builds runners of submitted code: compiled in the jail, audited, linked outside of it.

A task's files are compiled with the flags of build/grade/compile_commands.json. How they are linked
is in linking.py.
"""

from __future__ import annotations

import copy
import hashlib
import os
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import audit
import builder
import jail
import manifest
import precompiled
import processes
import source_check
from linking import BuildError, link_command
from trusted import Trusted

COMPILE = jail.Limits(cpu=120, memory=3 << 30, file=64 << 20, files=256, processes=32, asleep=60)
UNPACK = jail.Limits(cpu=20, memory=1 << 30, file=0, output=8 << 20, processes=8)
CHECK = jail.Limits(cpu=20, memory=1 << 30, file=0, output=1 << 20, processes=8)
_JAIL = "jail.pyc"  # of the Python that grades
SHOWN_LINES = 25  # of what the compiler says


@dataclass
class Built:
    """What became of one task. `runner` is None when there is nothing to run."""

    runner: Path | None = None
    problem: str = ""  # why there is no runner, for the student
    noted: list[str] = field(default_factory=list)  # for the instructor
    findings: list[source_check.Finding] = field(default_factory=list)  # of source check and audit


@dataclass
class Staging:
    """A folder outside the tree for what untrusted programs read, write and are.

        bin/     copies of the programs that start jails, and that run in them
        source/  common/ and tasks/: the headers, and the submitted sources; readable by all
        work/    one folder a task, written by the jailed compiler
        run/     the linked runners
        state/   what jails note; for root only

    Only its own jails get in: they have its group, a number that nobody else has meanwhile.
    """

    root: Path
    salts: dict[int, int] = field(default_factory=dict)  # by task, of what is being graded
    group: int | None = None  # None: not root

    @staticmethod
    def make(course: manifest.Manifest) -> Staging:
        root = Path(tempfile.mkdtemp(prefix="unshard-grade-"))
        staging = Staging(root, group=jail.fresh_uid() if jail.is_root() else None)
        if staging.group is not None:
            os.chown(root, -1, staging.group)
        root.chmod(0o711 if staging.group is None else 0o710)
        for name, mode in (("bin", 0o755), ("source", 0o755), ("work", 0o711), ("run", 0o711),
                           ("objects", 0o700), ("state", 0o700)):
            (root / name).mkdir(mode=mode)
            (root / name).chmod(mode)
        for name in ("unpack.py", "source_check.py"):
            _copy(Path(__file__).with_name(name), root / "bin" / name)
        # Once here, and not in each jail.
        py_compile.compile(jail.__file__, str(root / "bin" / _JAIL), doraise=True,
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        for name in processes.SCRIPTS:
            _copy(manifest.ROOT / processes.SCRIPTS_FOLDER / name, root / "bin" / name)
        for top in ("common", "tasks"):
            for header in sorted((manifest.ROOT / top).rglob("*.h")):
                _copy(header, root / "source" / header.relative_to(manifest.ROOT))
        return staging

    def remove(self) -> None:
        for state in (self.root / "state").iterdir():
            jail.sweep(str(state))
        shutil.rmtree(self.root, ignore_errors=True)
        jail.release(self.group)

    def run(self, command: list[object], limits: jail.Limits, **options: Any) -> jail.Outcome:
        """Runs what is not a case in the jail."""
        state = str(self.state(0))
        jailed = jail.Jail([str(word) for word in command], limits, keep=[self.root],
                           group=self.group, **options)
        if jailed.uid is not None:
            jail.append(state, "uids", f"{jailed.uid}\n")
        ended = jailed.run()
        if ended.by_clock:
            jail.append(state, jail.BY_CLOCK, "x")
        return ended

    def jail_words(self, cpu: float, memory: str, *options: str) -> list[str]:
        """A jail that is a process of its own: the words before "--" and its command."""
        return [sys.executable, "-I", "-S", str(self.root / "bin" / _JAIL), "--cpu", f"{cpu:g}",
                "--memory", memory, *options, "--keep", str(self.root),
                *(("--group", str(self.group)) if self.group is not None else ())]

    def state(self, task: int) -> Path:
        """Where the jails of a task's cases note things; 0: all others."""
        path = self.root / "state" / f"task{task}"
        path.mkdir(exist_ok=True)
        return path

    def is_by_clock(self) -> bool:
        """Whether a run might have ended otherwise on a machine with less to do."""
        return any((self.root / "state").glob(f"*/{jail.BY_CLOCK}"))

    def judge_environment(self, build: Path, cpu: float, memory: str, task: int,
                          environment: tuple[str, ...] = ()) -> dict[str, str]:
        """What a judge is told: the jail, before a runner of `build`, and the limits of a run. Two
        resource kills shorten what comes after. Seeds are those of the submission that was built
        last. `environment`: what the jailed runner sees."""
        ranks = processes.environment(build, self.root / "bin")
        cpu *= processes.CPU_FACTOR if ranks else 1
        words = [*self.jail_words(cpu, memory, "--stay", "--fd3", "--state",
                                  str(self.state(task))),
                 *(jail.FOR_PROCESSES if ranks else ()),
                 *(word for each in environment for word in ("--env", each)), "--"]
        return {**ranks, "FSDP_RESIDENT_JAIL": "\n".join(words),
                "FSDP_SECONDS": f"{cpu + 10:.0f}", "FSDP_SALT": str(self.salts.get(task, 0))}

    def unpack_in_jail(self, wanted: list[str], file: object) -> str:
        """For unpack.unpack()."""
        import unpack

        # Not sys.executable: it may lie where only its owner can read.
        python = jail.find_program("python3")
        ended = self.run([python, "-I", "-S", self.root / "bin" / "unpack.py", *wanted],
                         UNPACK, stdin=file.fileno())  # type: ignore[attr-defined]
        if ended.kind != "exited" or ended.code != 0:
            said = ended.err.decode("utf-8", "replace").strip().splitlines()
            raise unpack.UnpackError(ended.says or (said[-1] if said else "it cannot be unpacked"))
        return ended.out.decode()


def salt_of(task: manifest.Task, files: dict[str, bytes]) -> int:
    """What is added to the seed of every case (FSDP_SALT): the same for the same files, and nobody
    who does not know the hidden cases can tell it beforehand. Observations that were recorded
    elsewhere, and put into a file, answer another question then."""
    digest = hashlib.sha256()
    for path in sorted((manifest.ROOT / "tests" / f"task{task.number}").glob("hidden_cases*.cpp")):
        digest.update(path.read_bytes())
    for name, data in sorted(files.items()):
        digest.update(f"\n{name} {len(data)}\n".encode() + data)
    return int.from_bytes(digest.digest()[:4], "big") >> 2  # scenarios count on in 32 bits


def _copy(source: Path, target: Path) -> None:
    for folder in reversed(target.parents):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o755)
    shutil.copyfile(source, target)
    target.chmod(0o644)


@dataclass
class SubmissionBuilder:
    """Builds the tasks of one submission. `build` is the graded build, everything in it built."""

    build: Path
    staging: Staging
    refuses: bool = True  # false only for the tests of the jail: findings are just written down
    seconds_left: Callable[[], float] = lambda: 3600.0
    _compile: dict[str, list[str]] = field(default_factory=dict)

    def build_task(self, task: manifest.Task, files: dict[str, bytes]) -> Built:
        """`files`: the task's sources by name; all of them are there."""
        folder = self.staging.root / "source" / "tasks" / task.folder
        work = self.staging.root / "work" / f"task{task.number}"
        work.mkdir()
        self.staging.salts[task.number] = salt_of(task, files)
        built = Built()
        for name, data in files.items():
            path = folder / name
            path.write_bytes(data)
            path.chmod(0o644)
            checked = self._check("text", path, "--where", f"tasks/{task.folder}/{name}", "--task",
                                  task.number, "--folder", task.folder, "--root",
                                  self.staging.root / "source")
            built.noted += [str(each) for each in checked.noted]
            built.findings += checked.refused
        if built.findings and self.refuses:
            return self._refuse(built)
        objects = []
        with _user_of(work) as uid:
            for name in files:
                source = folder / name
                problem, findings = self._compile_one(task, source, work, uid)
                built.findings += findings
                if built.findings and self.refuses:
                    return self._refuse(built)
                if problem:
                    built.problem = problem
                    return built
                objects.append(self._take(work / f"{name}.o", task, name))
        trusted = Trusted.for_task(task, self.build)
        for path in objects:
            built.findings += audit.audit_object(path, task, trusted=trusted)
        built.findings = built.findings or audit.missing_definitions(objects, trusted)
        if built.findings and self.refuses:
            return self._refuse(built)
        self._link(task, objects, built)
        return built

    def build_again(self, task: manifest.Task, extra: tuple[str, ...], name: str) -> Path:
        """Another runner of what build_task() accepted, compiled and linked with `extra` flags."""
        work = self.staging.root / "work" / f"task{task.number}-{name}"
        work.mkdir()
        objects = []
        with _user_of(work) as uid:
            for file in task.files:
                source = self.staging.root / "source" / "tasks" / task.folder / file
                ended = self._compile_object([*self._flags(task, file), *extra], source, work, uid)
                if not _ok(ended):
                    raise BuildError(f"{file} does not compile for it")
                objects.append(self._take(work / f"{file}.o", task, f"{name}_{file}"))
        runner = self.staging.root / "run" / f"runner_task{task.number}-{name}"
        done = subprocess.run([*link_command(self.build, task, objects, runner), *extra],
                              cwd=self.build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError("it does not link")
        runner.chmod(0o755)
        return runner

    def build_alone(self, folder: str, name: str, data: bytes, target: str) -> Built:
        """The program `target`, with `data` in place of tasks/<folder>/<name>. Nothing is audited: it
        is for a program of which only what it prints counts, and which runs in the jail alone."""
        task = manifest.Task(0, folder, folder, (name,), 0, ())
        source = self.staging.root / "source" / "tasks" / folder / name
        work = self.staging.root / "work" / folder
        work.mkdir()
        source.write_bytes(data)
        source.chmod(0o644)
        with _user_of(work) as uid:
            ended = self._compile_object(self._flags(task, name), source, work, uid)
            if not _ok(ended):
                return Built(problem=f"does not compile:\n{self._said(ended)}")
            objects = {(folder, name): self._take(work / f"{name}.o", task, name)}
        runner = self.staging.root / "run" / target
        try:
            builder.Builder(build=self.build).link(target, objects, runner)
        except builder.BuildError as error:
            return Built(problem=f"does not link:\n{str(error)[:2000]}")
        runner.chmod(0o755)
        return Built(runner)

    def compiler(self, task: manifest.Task) -> str:
        return self._flags(task, task.files[0])[0]

    def _refuse(self, built: Built) -> Built:
        built.problem = "not allowed in a submission:\n" + audit.shown(built.findings)
        built.noted += [f"refused: {finding}" for finding in built.findings]
        return built

    def _check(self, what: str, path: Path, *words: object,
               uid: int | None = None) -> source_check.Checked:
        """Reads a stranger's text in the jail, under the clock of the whole submission."""
        program = self.staging.root / "bin" / "source_check.py"
        ended = self.staging.run([jail.find_program("python3"), "-I", "-S", program, what, path,
                                  *words], self._limits(CHECK), uid=uid)
        if _ok(ended):
            return source_check.from_json(ended.out.decode())
        if ended.killed:
            return source_check.Checked(
                [source_check.Finding("source", f"the check of this file {ended.says}",
                                      path.name)], [])
        raise BuildError(f"source_check.py: {ended.says or ended.err.decode('utf-8', 'replace')}")

    def _compile_one(self, task: manifest.Task, source: Path, work: Path,
                     uid: int | None) -> tuple[str, list[source_check.Finding]]:
        """(what the compiler says if it fails, what the preprocessed text shows)."""
        flags = self._flags(task, source.name, source)
        text = work / f"{source.name}.ii"
        ended = self.staging.run([*flags, "-E", "-dI", source, "-o", text], self._limits(),
                                 folder=str(work), uid=uid, extra=[f"TMPDIR={work}"])
        findings: list[source_check.Finding] = []
        if _ok(ended):
            findings = self._check("preprocessed", text, "--where",
                                   f"tasks/{task.folder}/{source.name}", "--source", source,
                                   "--allowed", self.staging.root / "source", uid=uid).refused
        if _ok(ended) and not (findings and self.refuses):
            ended = self._compile_object(flags, source, work, uid)
        if not _ok(ended):
            return f"does not compile:\n{self._said(ended)}", findings
        return "", findings

    def _compile_object(self, flags: list[str], source: Path, work: Path,
                        uid: int | None) -> jail.Outcome:
        source_map = f"{self.staging.root}/source/="
        return self.staging.run([*flags, f"-ffile-prefix-map={source_map}", "-c", source, "-o",
                                 work / f"{source.name}.o"], self._limits(), folder=str(work),
                                uid=uid, extra=[f"TMPDIR={work}"])

    def _said(self, ended: jail.Outcome) -> str:
        """The compiler's words, with the paths that the student knows."""
        text = precompiled.without_path((ended.err + ended.out).decode("utf-8", "replace"))
        text = text.replace(f"{self.staging.root}/source/", "").replace(f"{manifest.ROOT}/", "")
        lines = text.splitlines()
        more = [f"… {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else []
        says = [f"the compiler {ended.says}"] if ended.says else []
        return "\n".join(says + lines[:SHOWN_LINES] + more)

    def _flags(self, task: manifest.Task, name: str, source: Path | None = None) -> list[str]:
        """The compiler and its options, with the staged sources in place of the tree's. For a
        `source` that includes the precompiled header they use that one."""
        if not self._compile:
            self._compile = compile_commands(self.build)
        words = self._compile.get(f"{task.folder}/{name}")
        if words is None:
            raise BuildError(f"{self.build}/compile_commands.json does not compile "
                             f"{task.folder}/{name}; configure the preset grade anew")
        staged = self.staging.root / "source"
        folders = {manifest.ROOT / top: f"-I{staged}/{top}" for top in ("common", "tasks")}
        compiler, *options = [*(folders.get(_included(word), word) for word in words),
                              "-fdiagnostics-color=never"]
        if source is not None and precompiled.is_included(source, staged):
            made = precompiled.find(self.build, words)
            options += precompiled.put(made, staged) if made is not None else []
        return [compiler, *options]

    def _limits(self, of: jail.Limits = COMPILE) -> jail.Limits:
        limits = copy.copy(of)
        limits.wall = max(1.0, min(limits.wall, self.seconds_left()))
        return limits

    def _take(self, path: Path, task: manifest.Task, name: str) -> Path:
        """Copies an object out of the folder that the jail could write."""
        kept = self.staging.root / "objects" / f"task{task.number}_{name}.o"
        kept.write_bytes(_read_own(path))
        return kept

    def _link(self, task: manifest.Task, objects: list[Path], built: Built) -> None:
        runner = self.staging.root / "run" / f"runner_task{task.number}"
        command = link_command(self.build, task, objects, runner)
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [re.sub(r"^.*?ld: ", "", line) for line in done.stderr.splitlines()
                     if "undefined reference" in line or "multiple definition" in line]
            built.problem = "does not link:\n" + "\n".join(lines[:8] or
                                                           done.stderr.splitlines()[:8])
            return
        runner.chmod(0o755)
        built.runner = runner


@contextmanager
def _user_of(work: Path) -> Iterator[int | None]:
    """A user of the jail who may write the folder `work`, for as long as this lasts; None: not
    root."""
    uid = jail.fresh_uid() if jail.is_root() else None
    if uid is not None:
        os.chown(work, uid, uid)
    try:
        yield uid
    finally:
        jail.release(uid)


def _ok(ended: jail.Outcome) -> bool:
    return ended.kind == "exited" and ended.code == 0


def _read_own(path: Path) -> bytes:
    """A file that a jailed program wrote: a regular one, of the size it was limited to."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise BuildError(f"{path.name} is no regular file")
        return file.read(COMPILE.file)


def _included(word: str) -> Path | None:
    """The folder of an option -I, whatever links the build was configured through."""
    return Path(os.path.realpath(word[2:])) if word.startswith("-I") else None


def compile_commands(build: Path) -> dict[str, list[str]]:
    """"task3_forward/forward.cpp" → the compiler and its options, without source and output.
    -Werror is for our own checks: a warning costs a student nothing. -g is for a debugger; lines, all
    that is said of a crash, stand without it."""
    found: dict[str, list[str]] = {}
    tests = manifest.ROOT / "tests"
    for (folder, name), words in builder.read_flags(build / "compile_commands.json").items():
        has_launcher = Path(words[0]).name in ("ccache", "sccache")
        found[f"{folder}/{name}"] = [word for word in words[has_launcher:]
                                     if word not in ("-Werror", "-g") and _included(word) != tests]
    return found
