"""Hostile submissions gain nothing and stop nothing: runs tests/grader/hostile/ against the grader.

    hostile.py [NAME…] [--jobs 2]

The audit must refuse each attack, and the jail and the judge must hold without the audit. Some run
once more beside five submissions, whose points must stay what they are. Prints a table; exit code 1
if anything came out otherwise than attacks.toml says.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import course_path  # noqa: F401  must come first
import build_submission
import builder
import ending
import grade
import jail
import manifest
import reference_submission
import regions
import verdicts
from build_submission import Staging, SubmissionBuilder
from gradescope_results import Results

FOLDER = Path(__file__).resolve().parent / "hostile"
STEP = "3.2"
FILE = "tasks/task3_forward/forward.cpp"
CPU = 2.0  # seconds a run: the reference needs a tenth
_FIELDS = {"call", "step", "bodies", "like", "refused", "noted", "then", "never"}


@dataclass
class Outcome:
    """What came of one attack; `wrong` says what should not have."""

    name: str
    audit: str
    then: str
    wrong: list[str]
    seconds: float


def read_attacks() -> dict[str, dict[str, Any]]:
    attacks = tomllib.loads((FOLDER / "attacks.toml").read_text(encoding="utf-8"))
    files = {path.stem for path in FOLDER.glob("*.cpp")}
    if files != set(attacks):
        raise SystemExit(f"hostile: attacks.toml and the files differ: {files ^ set(attacks)}")
    for name, attack in attacks.items():
        if set(attack) - _FIELDS or not {"refused", "then"} <= set(attack):
            raise SystemExit(f"hostile: attacks.toml, [{name}]: fields are {sorted(_FIELDS)}")
    for attack in attacks.values():
        if "like" in attack:
            attack["bodies"] = attacks[attack["like"]]["bodies"]
    return attacks


def task_of(attack: dict[str, Any]) -> manifest.Task:
    return manifest.load().task(int(attack.get("step", STEP).split(".")[0]))


def source_of(name: str, attack: dict[str, Any]) -> bytes:
    """The submitted file: the attack, then the skeleton, or the reference calling the attack."""
    text = (FOLDER / f"{name}.cpp").read_text(encoding="utf-8")
    task = task_of(attack)
    path = manifest.ROOT / "solutions" / task.folder / task.files[0]
    source = regions.read(path, manifest.ROOT)
    rest = regions.skeleton(source)
    if "bodies" in attack:
        rest = regions.apply(source, [regions.Edit(step, whole=body)
                                      for step, body in attack["bodies"].items()])
    elif "call" in attack:
        unused = "  static_cast<void>(phase);\n" if "phase" in rest else ""
        rest = regions.apply(source, [regions.Edit(attack["call"], whole=f"{unused}  attack();")])
    return f"{text.replace('@ROOT@', str(manifest.ROOT))}\n{rest}".encode()


def run_attack(name: str, build: Path) -> Outcome:
    attack, started = read_attacks()[name], time.monotonic()
    task = task_of(attack)
    staging = Staging.make(manifest.load())
    wrong: list[str] = []
    try:
        tools = SubmissionBuilder(build, staging, refuses=False)
        built = tools.build_task(task, {task.files[0]: source_of(name, attack)})
        found = "\n".join(map(str, built.findings))
        if attack["refused"]:
            if not re.search(attack["refused"], found):
                wrong.append(f"the audit should say /{attack['refused']}/, and says: {found!r}")
        elif found:
            wrong.append(f"the audit should find nothing, and says: {found!r}")
        if not re.search(attack.get("noted", ""), "\n".join(built.noted)):
            wrong.append(f"the instructor should be told /{attack['noted']}/")
        said, points = built.problem, 0
        if built.runner is not None:
            said, points = _judge(attack, built.runner, staging, build)
        if points:
            wrong.append(f"it earned {points} points")
        if not re.search(attack["then"], said):
            wrong.append(f"without the audit should come /{attack['then']}/, and comes: {said!r}")
        if "never" in attack and re.search(attack["never"], said):
            wrong.append(f"the results hold /{attack['never']}/: {said!r}")
        wrong += _left_over(staging)
    finally:
        staging.remove()
    first = built.findings[0].text if built.findings else "; ".join(built.noted)
    return Outcome(name, first, _gist(said), wrong, time.monotonic() - started)


def _judge(attack: dict[str, Any], runner: Path, staging: Staging,
           build: Path) -> tuple[str, int]:
    task, step = task_of(attack), attack.get("step", STEP)
    judge = build / "bin" / f"judge_task{task.number}"
    cases = verdicts.run_judge(judge, runner, f"[{step}]{verdicts.PUBLIC}",
                               env=staging.judge_environment(build, CPU, "4G", task.number))
    verdict, = verdicts.judge_steps(task, cases, [step])
    passed = [] if "bodies" in attack else [case.name for case in cases if case.passed]
    said = "\n".join(text for case in cases for text in case.messages)
    return said, verdict.public or len(passed)


def _left_over(staging: Staging) -> list[str]:
    """Processes and files of a jail of this attack that are still there."""
    noted = set()
    for path in (staging.root / "state").glob("*/uids"):
        noted |= {int(line) for line in path.read_text(encoding="ascii").split()}
    # Not those of users that are another attack's by now.
    mine = {uid for uid in noted if jail.is_root() and jail.take(uid)}
    alive = [pid for pid, uid, _ in jail.processes() if uid in mine]
    left = [f"{len(alive)} processes outlive it"] if alive else []
    files = [entry.path for folder in (*jail.SHARED, manifest.ROOT) for entry in os.scandir(folder)
             if _owner(entry) in mine]
    for uid in mine:
        jail.release(uid)
    return left + [f"{path} outlives it" for path in files]


def _owner(entry: os.DirEntry[str]) -> int | None:
    """Its user's number; None if another run has removed its own file since the folder was read."""
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None


def _gist(said: str) -> str:
    for pattern in (r"did not end[^.\n]*", r"crashed: [^.]*", r"ended early[^.]*", r"does not (compile|link)", r"TODO 3\.\d", r"the run threw[^\n]*\n?[^\n]*",
                    r"observed:.*", r"what came back[^\n]*", r"event \d+ of the trace[^.]*"):
        match = re.search(pattern, said)
        if match:
            return " ".join(match[0].split())
    return " ".join(said.split())


# -------------------------------------------------------------------------- archives, and deadlines


def _zip(entries: list[tuple[str, bytes, int]]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            archive.writestr(info, data)
    return stream.getvalue()


def _tar_bomb(_: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("zeros")
        info.size = 1 << 30
        archive.addfile(info, _Zeros())  # type: ignore[arg-type]
    return stream.getvalue()


class _Zeros:
    def read(self, count: int) -> bytes:
        return bytes(count)


_FILE_MODE, _LINK_MODE = 0o100644, 0o120777
# name → (makes the archive from the reference's file, whether the file in it earns the points of
# step 3.1, what must be reported)
_ARCHIVES: dict[str, tuple[Callable[[bytes], bytes], bool, str]] = {
    "stray file": (lambda good: _zip([(FILE, good, _FILE_MODE),
                                      ("tests/task3/public_cases.cpp", b"x", _FILE_MODE)]),
                   True, "not a file of the course; ignored"),
    "symbolic link": (lambda _: _zip([(FILE, str(manifest.ROOT / "solutions/task3_forward/"
                                                 "forward.cpp").encode(), _LINK_MODE)]),
                      False, "it is a link"),
    "traversal": (lambda good: _zip([(FILE, good, _FILE_MODE),
                                     ("../../../tests/task3/scenarios.cpp", b"x", _FILE_MODE)]),
                  True, "leads out of the submission"),
    "missing file": (lambda _: _zip([("tasks/task2_flat_parameter/flat_parameter.cpp", b"int x;",
                                      _FILE_MODE)]), False, "not in the submission"),
    "twice": (lambda good: _zip([(FILE, good, _FILE_MODE), ("a/" + FILE, good, _FILE_MODE)]),
              False, "more than once"),
    "zip bomb": (lambda _: _zip([(FILE, bytes(256 << 20), _FILE_MODE)]), False,
                 "larger than 256 KiB"),
    "tar bomb": (_tar_bomb, False, "cannot be read"),
    "no archive": (lambda _: os.urandom(1000), False, "cannot be read"),
}


def run_archive(name: str, build: Path) -> Outcome:
    make, earns, report = _ARCHIVES[name]
    course = manifest.load()
    good = reference_submission.files(course)[FILE]
    points = course.task(3).step("3.1").public if earns else 0
    return _graded(name, make(good), points, report, build, grade.DEADLINE)


def run_deadline(name: str, build: Path) -> Outcome:
    """The time is over in the middle: the file is complete, and says so."""
    attack = {"call": STEP}
    data = _zip([(FILE, source_of("endless_loop", attack), _FILE_MODE)])
    return _graded(name, data, 0, "not run: time", build, 12.0)


def _graded(name: str, data: bytes, points: int, report: str, build: Path,
            deadline: float) -> Outcome:
    started, wrong = time.monotonic(), []
    course = manifest.load()
    with tempfile.TemporaryDirectory(prefix="unshard-hostile-") as folder:
        path = Path(folder) / "submission"
        path.write_bytes(data)
        cases = f"[3.1]{verdicts.PUBLIC}" if deadline == grade.DEADLINE else ""
        request = grade.Request(path, Path(folder) / "out", [course.task(3)], build,
                                deadline=deadline, cases=cases)
        results: Results = grade.Grading(request, course).run()
        written = (Path(folder) / "out" / "results.json").read_text(encoding="utf-8")
        earned = next(e.score for e in results.entries if e.number == "3.1" and e.kind == "public")
    if deadline == grade.DEADLINE and earned != points:
        wrong.append(f"step 3.1 has {earned} points, not {points}")
    if report not in written:
        wrong.append(f"results.json does not say '{report}'")
    if deadline != grade.DEADLINE and time.monotonic() - started > deadline + 30:
        wrong.append("it went on long after the deadline")
    said = next((e.output for e in results.entries if report in e.output), "; ".join(results.notes))
    return Outcome(name, "", _gist(said), wrong, time.monotonic() - started)


# Attacks that run once more, beside five submissions that are solved so far each.
_BESIDE = {f"beside {name}": name for name in ("kill_all", "fork_bomb", "memory")}
_SOLVED = ("3.2", "3.3", "3.4", "3.5", "3.6")


def run_beside(name: str, build: Path) -> Outcome:
    """Whatever one submission does, the others have their points."""
    with ProcessPoolExecutor(1 + len(_SOLVED)) as pool:
        attack = pool.submit(run_attack, _BESIDE[name], build)
        found = list(pool.map(_points_up_to, _SOLVED, [build] * len(_SOLVED)))
        outcome = attack.result()
    task = manifest.load().task(3)
    for solved, points in zip(_SOLVED, found):
        expected = {step.id: step.public * (step.id <= solved) for step in task.steps}
        if points != expected:
            outcome.wrong.append(f"beside it, solved up to {solved} earned {points}")
    outcome.name = name
    return outcome


def _points_up_to(solved: str, build: Path) -> dict[str, float]:
    """The public points of each step for the reference up to one of them."""
    course = manifest.load()
    task = course.task(3)
    source = regions.read(manifest.ROOT / "solutions" / task.folder / task.files[0], manifest.ROOT)
    with tempfile.TemporaryDirectory(prefix="unshard-hostile-") as folder:
        reference_submission.write(Path(folder), {FILE: regions.ladder(source, solved).encode()})
        request = grade.Request(Path(folder), Path(folder) / "out", [task], build,
                                cases=verdicts.PUBLIC)
        results = grade.Grading(request, course).run()
    return {entry.number: entry.score for entry in results.entries if entry.kind == "public"}


def run_one(name: str, build: Path) -> Outcome:
    if name in _BESIDE:
        return run_beside(name, build)
    if name in _ARCHIVES:
        return run_archive(name, build)
    if name == "deadline":
        return run_deadline(name, build)
    return run_attack(name, build)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--build", type=Path, default=manifest.ROOT / "build" / "grade")
    parser.add_argument("--built", action="store_true", help="do not look whether all is built")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    known = [*read_attacks(), *_ARCHIVES, "deadline", *_BESIDE]
    for name in options.names:
        if name not in known:
            parser.error(f"no attack is called '{name}'; there are {', '.join(known)}")
    names = options.names or known
    started = time.monotonic()
    attacks = read_attacks()
    tasks = [task_of(attacks.get(name, {})) for name in names]
    tasks = list({task.number: task for task in tasks}.values())
    try:
        if not options.built:
            grade.prepare(options.build, tasks)
    except (builder.BuildError, build_submission.BuildError) as error:
        print(f"hostile: {error}", file=sys.stderr)
        return 2
    ending.in_order()
    print(f"  {'attack':<24} {'the audit says':<58} then")
    failed = 0
    with grade.hidden_from_jail(), ProcessPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(run_one, names, [options.build] * len(names)):
            mark = "FAIL" if outcome.wrong else "ok"
            print(f"  {outcome.name:<24} {_cut(outcome.audit, 58):<58} "
                  f"{_cut(outcome.then, 60):<60} {mark}", flush=True)
            for text in outcome.wrong:
                print(f"      {text[:1500]}")
            failed += bool(outcome.wrong)
    isolation = "" if jail.is_root() else " (not root: the jail does not isolate)"
    print(f"{len(names)} hostile submissions, {failed} not held, in "
          f"{time.monotonic() - started:.0f} s{isolation}")
    return 1 if failed else 0


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[:width - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
