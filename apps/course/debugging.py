"""make debug-3.2: a debugger on the first failing case of a step, without limits; or, with CASE=, on
the case of that name.

A runner reads its case from standard input. Which one fails is found out by a judge whose runs
pass through this file (`debugging.py FOLDER RUNNER`): it writes each case down and then becomes
the runner. The judge stops at its first failure, so the last case written down is the one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import verdicts

FOLDER = Path("build") / "grade" / "debug"
LAST = "last.json"
# Both stay the same from one step to the next: an editor names them in its settings.
CASE, RUNNER = FOLDER / "case.json", FOLDER / "runner"


class DebugError(Exception):
    """What was asked for cannot be debugged; the text says why, and what can be."""


@dataclass(frozen=True)
class Debugger:
    """How a debugger is started on a program and a case, and what to type there. Its name is also
    that of its package."""

    command: Callable[[str, str], list[str]]
    help: str  # {file} stands for the task's


DEBUGGERS = {
    "gdb": Debugger(
        lambda program, case: ["gdb", "-q", "-ex", "set print thread-events off",
                               "-ex", f"set args < {case} 3>/dev/null", program],
        "`run` starts it; `break {file}:LINE` stops at a line; `catch throw` at errors"),
    "lldb": Debugger(
        lambda program, case: ["lldb", "-o", f"settings set target.input-path {case}", program],
        "`run` starts it; `b {file}:LINE` stops at a line; `b -E c++` at errors"),
    "none": Debugger(lambda program, case: [], ""),
}


def keep_case_and_run(folder: Path, command: list[str]) -> None:
    """Stands between a judge and a runner."""
    case = sys.stdin.buffer.read()
    path = folder / LAST
    path.write_bytes(case)
    with path.open("rb") as again:
        os.dup2(again.fileno(), 0)
    os.execv(command[0], command)


def chosen(cases: list[verdicts.Case], wanted: str) -> list[verdicts.Case]:
    """The case called `wanted` or, if there is none, those whose names contain it."""
    exact = [case for case in cases if case.name == wanted]
    found = exact or [case for case in cases if wanted.casefold() in case.name.casefold()]
    if not found:
        names = "\n".join(f"  {case.name}" for case in cases)
        raise DebugError(f"CASE={wanted}: no public case of this step is called so. There are\n{names}")
    return found


def debug(root: Path, task, step: str, tools, wanted: str = "", debugger: str = "gdb") -> int:
    """Builds, finds the first failing case of the step, and starts a debugger on it. With `wanted`,
    looks only at cases with that in their names; if they all pass, takes the first of them."""
    if debugger not in DEBUGGERS:
        raise DebugError(f"DEBUGGER={debugger}: there are {', '.join(DEBUGGERS)}")
    judge, runner = f"judge_task{task.number}", f"runner_task{task.number}"
    tools.make(runner, judge)
    spec = f"[{step}]{verdicts.PUBLIC}"
    if wanted:
        names = [case.name for case in
                 chosen(verdicts.list_cases(tools.program(judge), spec), wanted)]
        spec = verdicts.exactly(names)
    os.chdir(root)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in (FOLDER / LAST, CASE, RUNNER):
        old.unlink(missing_ok=True)

    def judged(what: str) -> list[verdicts.Case]:
        return verdicts.run_judge(
            tools.program(judge), tools.program(runner), what, abort=True,
            env={"FSDP_JAIL": f"{sys.executable}\n{Path(__file__).resolve()}\n{FOLDER}"})

    failed = next((case for case in judged(spec) if case.executed and not case.passed), None)
    if failed is not None:
        print(f'{step} "{failed.name}"\n\n{failed.message}')
    elif wanted:
        judged(verdicts.exactly(names[:1]))  # so that its run is the last one written down
        print(f'{step} "{names[0]}" passes. It is debugged because CASE names it.')
    else:
        print(f"All public cases of {step} pass: there is nothing to debug. CASE= chooses one.")
        return 0
    if not (FOLDER / LAST).is_file():
        print(f"The judge failed before it ran a case of {step}.")
        return 1
    case = FOLDER / f"{step}.json"
    os.replace(FOLDER / LAST, case)
    CASE.symlink_to(case.name)
    RUNNER.symlink_to(tools.program(runner).resolve())
    program = str(tools.program(runner).relative_to(root))
    print(f"\nThis case alone:  {program} < {case} 3>/dev/null")
    return start(debugger, program, str(case), task.files[0])


def start(name: str, program: str, case: str, file: str) -> int:
    """Its exit code: that of the debugger."""
    if name == "none":
        return 0
    if shutil.which(name) is None:
        print(f"{name} is not installed (as root: apt-get install {name})")
        return 1
    print(f"In {name}: {DEBUGGERS[name].help.format(file=file)}.\n", flush=True)
    # A runner reports into descriptor 3. gdb's shell opens it; of lldb the runner inherits it.
    return subprocess.run(["sh", "-c", 'exec "$@" 3>/dev/null', "sh",
                           *DEBUGGERS[name].command(program, case)], check=False).returncode


if __name__ == "__main__":
    keep_case_and_run(Path(sys.argv[1]), sys.argv[2:])
