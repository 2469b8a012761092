"""The verdicts on each task so far: build/grade/results/taskN.json.

A run is remembered with a digest of the files it judged. So code that is put back as it was has its
verdict back, and a run of one step (ONLY=3.2) counts for that step.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import manifest
import unwritten
import verdicts
import whole_file

FOLDER = Path("build") / "grade" / "results"
_RUNS_KEPT = 8  # of files that differ; more where only an older run judged some step


@dataclass
class Run:
    """What one state of a task's files was judged to be: these steps, by these cases."""

    files: str  # digest_of
    steps: list[str]
    cases: list[verdicts.Case]


@dataclass
class Stored:
    """What is known of a task: a verdict for each step, which of them no run ever judged, and
    whether all verdicts are of the files as they are now."""

    found: list[verdicts.Verdict]
    never_run: list[str]
    is_current: bool


def digest_of(root: Path, task: manifest.Task) -> str:
    """One sum over the student's files of a task."""
    total = hashlib.sha256()
    for name in task.files:
        path = root / "tasks" / task.folder / name
        total.update(path.read_bytes() if path.is_file() else b"missing")
        total.update(b"\0")
    return total.hexdigest()


def store(root: Path, task: manifest.Task, digest: str, cases: list[verdicts.Case],
          only: str = "") -> None:
    """Remembers what came out for the files of this digest: for all steps, or for `only` one."""
    new = Run(digest, [only] if only else [step.id for step in task.steps], list(cases))
    runs = _runs(root, task)
    for old in runs:
        if only and old.files == digest:  # what the new run did not run again still holds
            names = {case.name for case in cases}
            new.steps += [step for step in old.steps if step not in new.steps]
            new.cases += [case for case in old.cases if case.name not in names]
    runs = [new, *(old for old in runs if old.files != digest)]
    kept, covered = [], set()
    for i, run in enumerate(runs):
        if i < _RUNS_KEPT or set(run.steps) - covered:
            kept.append(run)
        covered.update(run.steps)
    text = json.dumps({"task": task.number, "runs": [
        {"files": run.files, "steps": run.steps, "cases": verdicts.to_json(run.cases)}
        for run in kept]}, indent=1, ensure_ascii=False)
    whole_file.write(root / FOLDER / f"task{task.number}.json", text + "\n")


def _runs(root: Path, task: manifest.Task) -> list[Run]:
    """What is remembered of a task, the newest first; [] if nothing can be read."""
    try:
        entry = json.loads((root / FOLDER / f"task{task.number}.json").read_text(encoding="utf-8"))
        return [Run(str(run["files"]), list(run["steps"]), verdicts.from_json(run["cases"]))
                for run in entry["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def load(root: Path, task: manifest.Task) -> Stored | None:
    """Of each step the verdict on the files as they are now, else the newest there is. None if the
    task was never tested, or its results cannot be read."""
    runs = _runs(root, task)
    now = digest_of(root, task)
    runs.sort(key=lambda run: run.files != now)  # keeps their order otherwise
    stored = Stored([], [], True)
    for step in task.steps:
        run = next((run for run in runs if step.id in run.steps), None)
        stored.found += verdicts.judge_steps(task, run.cases if run else [], [step.id])
        if run is None:
            stored.never_run.append(step.id)
        stored.is_current = stored.is_current and run is not None and run.files == now
    return stored if runs else None


def digest_of_all(root: Path, course: manifest.Manifest) -> str:
    return "-".join(digest_of(root, task)[:16] for task in course.required)


def store_integrated(root: Path, digest: str, passed: bool, verdict: str) -> None:
    """What make test-integrated found; `verdict` in a few words. What it found before is kept, for
    files that are put back."""
    runs = [run for run in _integrated_runs(root) if run["files"] != digest]
    runs.insert(0, {"files": digest, "passed": passed, "verdict": verdict})
    text = json.dumps({"runs": runs[:_RUNS_KEPT]}, indent=1, ensure_ascii=False)
    whole_file.write(root / FOLDER / "integrated.json", text + "\n")


def _integrated_runs(root: Path) -> list[dict]:
    """What is remembered of make test-integrated, the newest first; [] if nothing can be read."""
    try:
        entry = json.loads((root / FOLDER / "integrated.json").read_text(encoding="utf-8"))
        return [{"files": str(run["files"]), "passed": bool(run["passed"]),
                 "verdict": str(run["verdict"])} for run in entry["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def integrated(root: Path, course: manifest.Manifest) -> tuple[bool, str]:
    """Whether all tasks are known to pass together as they are now, and what to say of it."""
    runs, now = _integrated_runs(root), digest_of_all(root, course)
    for run in runs:
        if run["files"] == now:
            return run["passed"], run["verdict"]
    state = "changed since it was tested" if runs else "not tested yet"
    return False, f"{state}: make test-integrated"


def own_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> list[manifest.Task]:
    """The earlier tasks that run with the student's own code: in a kit, those that were not given.
    In the full tree references stand there."""
    return [earlier for earlier in course.tasks[:task.number - 1]
            if not unwritten.has_reference(root, earlier)]


def untested_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> str:
    """A sentence on the student's own earlier tasks of which no verdict holds, or ""."""
    numbers = [earlier.number for earlier in own_before(root, course, task)
               if (stored := load(root, earlier)) is None or not stored.is_current]
    if not numbers:
        return ""
    which = " and ".join(f"task {number}" for number in numbers)
    has = "have" if len(numbers) > 1 else "has"
    how = ", then ".join(f"make test-task{number}" for number in numbers)
    return (f"Task {task.number} runs on your own code of {which}, which {has} not been tested as "
            f"{'they are' if len(numbers) > 1 else 'it is'} now: {how}")


def unmet_before(root: Path, course: manifest.Manifest, task: manifest.Task) -> str:
    """The first step of an earlier task that is known to fail, if that task's code is the student's
    own; "" if there is none."""
    for earlier in own_before(root, course, task):
        stored = load(root, earlier)
        for verdict in stored.found if stored is not None and stored.is_current else []:
            if verdict.state != "passed":
                return verdict.step.id
    return ""
