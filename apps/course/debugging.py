"""make debug-3.2: a debugger on the first failing case of a step, without limits.

A runner reads its case from standard input. Which one fails is found out by a judge whose runs
pass through this file (`debugging.py FOLDER RUNNER`): it writes each case down and then becomes
the runner. The judge stops at its first failure, so the last case written down is the one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import verdicts

FOLDER = Path("build") / "grade" / "debug"


def keep_case_and_run(folder: Path, command: list[str]) -> None:
    """Stands between a judge and a runner."""
    case = sys.stdin.buffer.read()
    path = folder / "last.json"
    path.write_bytes(case)
    with path.open("rb") as again:
        os.dup2(again.fileno(), 0)
    os.execv(command[0], command)


def debug(root: Path, task, step: str, tools) -> int:
    """Builds, finds the failing case, starts gdb on it."""
    judge, runner = f"judge_task{task.number}", f"runner_task{task.number}"
    tools.make(runner, judge)
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "last.json").unlink(missing_ok=True)
    os.chdir(root)
    cases = verdicts.run_judge(
        tools.program(judge), tools.program(runner), f"[{step}]{verdicts.PUBLIC}",
        env={"FSDP_JAIL": f"{sys.executable}\n{Path(__file__).resolve()}\n{FOLDER}"}, abort=True)
    failed = next((case for case in cases if case.executed and not case.passed), None)
    if failed is None:
        print(f"All public cases of {step} pass: there is nothing to debug.")
        return 0
    print(f'{step} "{failed.name}"\n\n{failed.message}')
    if not (folder / "last.json").is_file():
        print(f"The judge failed before it ran a case of {step}.")
        return 1
    case = FOLDER / f"{step}.json"
    os.replace(folder / "last.json", root / case)
    program = tools.program(runner).relative_to(root)
    print(f"\nThis case alone:  {program} < {case} 3>/dev/null")
    if shutil.which("gdb") is None:
        print("gdb is not installed (as root: apt-get install gdb)")
        return 1
    print(f"In gdb: `run` starts it; `break {Path(task.files[0])}:LINE` stops at a line; "
          "`catch throw` at errors.\n")
    return subprocess.run(["gdb", "-q", "-ex", "set print thread-events off",
                           "-ex", f"set args < {case} 3>/dev/null", str(program)],
                          cwd=root, check=False).returncode


if __name__ == "__main__":
    keep_case_and_run(Path(sys.argv[1]), sys.argv[2:])
