"""Runs a case that crashed once more, under the address sanitizer, to say where. Never for points.

Only the student's own files are instrumented; what is trusted is linked as it is. The sanitizer
reserves terabytes of addresses, so this run has no limit on them: the sanitizer itself ends it when
it uses too much memory, and the limits on CPU time, files and processes stay.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import jail
import manifest
import verdicts
from build_submission import BuildError, Staging, SubmissionBuilder

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-omit-frame-pointer")
NEEDS_SECONDS = 60.0  # before the deadline: a compilation, a link and a slow run
MOST_FRAMES = 3
# 2: the sanitizer's own handler, and no later one.
_OPTIONS = ("detect_leaks=0:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_abort=2:"
            "handle_sigill=2:color=never:hard_rss_limit_mb=500:max_allocation_size_mb=400")
_CRASH = re.compile(r"(?:^|: )the run crashed: ", re.M)
_KIND = re.compile(r"ERROR: AddressSanitizer:? (?:attempting )?([\w-]+)")
_UNDEFINED = re.compile(r"^(\S+?\.(?:cpp|h):\d+)(?::\d+)?: runtime error: (.+)$", re.M)
_ACCESS = re.compile(r"^(READ|WRITE) of size \d+", re.M)
_ELSEWHERE = re.compile(r"^(?:previously )?(allocated|freed) by thread ", re.M)
_FRAME = re.compile(r"^\s*#\d+ 0x[0-9a-f]+ in (.+) (\S+\.(?:cpp|h)):(\d+)(?::\d+)?\s*$", re.M)


@dataclass
class Diagnosis:
    """Reruns crashed cases of one task at a time."""

    tools: SubmissionBuilder
    staging: Staging
    seconds_left: Callable[[], float]
    cpu: float

    def tell(self, task: manifest.Task, judge: Path, cases: Iterable[verdicts.Case]) -> None:
        """Adds to the first public case that crashed what the sanitizer says of it."""
        case = first_crash(cases)
        if case is None:
            return
        try:
            said = self._say(task, judge, case)
        except (BuildError, verdicts.JudgeError, OSError) as error:
            said = f"Not run again under the address sanitizer: {str(error).splitlines()[0][:200]}"
        case.messages[0] = f"{case.messages[0].rstrip()}\n\n{said}"

    def _say(self, task: manifest.Task, judge: Path, case: verdicts.Case) -> str:
        if self.seconds_left() < NEEDS_SECONDS:
            return "Not run again under the address sanitizer: the deadline is near."
        if not has_sanitizer(self.tools.compiler(task)):
            return "Not run again under the address sanitizer: it is not installed here."
        runner = self.tools.build_again(task, FLAGS, "sanitized")
        again = verdicts.run_judge(
            judge, runner, verdicts.exactly([case.name]),
            timeout=min(NEEDS_SECONDS, self.seconds_left()),
            env=self.staging.judge_environment(
                self.tools.build, self.cpu, "none", task.number,
                (f"ASAN_OPTIONS={_OPTIONS}", "UBSAN_OPTIONS=color=never")))
        return summary("\n".join(message for each in again for message in each.messages),
                       [f"tasks/{task.folder}/{name}" for name in task.files])


def first_crash(cases: Iterable[verdicts.Case]) -> verdicts.Case | None:
    """The first public case whose run was ended by a signal of its own making."""
    return next((case for case in cases if case.executed and not case.passed and not case.hidden
                 and _CRASH.search(case.message)), None)


def has_sanitizer(compiler: str) -> bool:
    """A compiler that has a library names its path, otherwise it repeats the name."""
    done = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True,
                          check=False)
    return done.returncode == 0 and "/" in done.stdout


def summary(text: str, own: list[str]) -> str:
    """The kind of error, and the first places of it in the student's own files."""
    head = "Run again under the address sanitizer (no points depend on it)"
    kind, undefined = _KIND.search(text), _UNDEFINED.search(text)
    if kind is None and undefined is None:
        return f"{head}: this time it reports nothing."
    lines = []
    if undefined is not None:
        place = re.sub(r"^\S*/source/(?=tasks/)", "", undefined[1])  # as the student knows it
        lines.append(f"  {place}: {undefined[2]}"[:200])
    if kind is not None:
        access = _ACCESS.search(text, kind.end())
        lines.append(f"  {kind[1]}" + (f", a {access[0].lower()} bytes" if access else ""))
        here, *others = text[kind.end():].split("\n\n")
        places = [f"{where}  in {name}" for name, where in _own_frames(here, own)[:MOST_FRAMES]]
        lines += [f"    {place}"[:160] for place in places] or [
            "    no frame of it lies in your files"]
        for other in others:
            how, frames = _ELSEWHERE.search(other), _own_frames(other, own)
            if how is not None and frames:
                lines.append(f"    {how[1]} at {frames[0][1]}")
    return "\n".join([f"{head}:", *lines])


def _own_frames(stack: str, own: list[str]) -> list[tuple[str, str]]:
    """(function, file:line) of the frames in the student's files, the innermost first."""
    return list(dict.fromkeys((name, f"{path}:{line}")
                              for name, path, line in _FRAME.findall(stack) if path in own))
