"""The race's board: the policies of all submissions in a folder. make race-board DIR=folder

    race_board.py FOLDER

Compiles each tasks/race/policy.cpp in the jail, runs it there once per track, and judges its plans
with the references. Writes board.txt and board.html into build/race. Names on the board are the
pseudonyms that the policies give themselves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import build_submission
import ending
import grade
import grade_all
import manifest
import race
import terminal
import unpack
from build_submission import Staging, SubmissionBuilder

RELEASE = race.PROGRAMS.parent


@dataclass
class Entry:
    """One policy. `problem` says why there are no verdicts."""

    name: str
    problem: str = ""
    verdicts: dict[int, dict] = field(default_factory=dict)

    def score(self, count: int) -> float | None:
        return race.score(self.verdicts, count)

    def times(self) -> int:
        return sum("step_ps" in each for each in self.verdicts.values())


def plan_in_jail(program: Path, staging: Staging, track: int,
                 seconds_left: Callable[[], float]) -> race.Plan:
    """Runs a stranger's policy."""
    if seconds_left() <= 0:
        return race.Plan(problem="not run: time")
    done = subprocess.run(
        [*staging.jail_words(race.CPU, str(race.MEMORY), "--output", "2M", "--processes", "8"), "--",
         str(program), "--track", str(track)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    return race.plan_of(done.returncode, done.stdout, done.stderr)


def enter(policy: bytes, staging: Staging, jobs: int,
          seconds_left: Callable[[], float] = lambda: 3600.0) -> Entry:
    """Compiles a policy, and judges it on all tracks."""
    entry = Entry(race.pseudonym(policy))
    tools = SubmissionBuilder(RELEASE, staging, seconds_left=seconds_left)
    built = tools.build_alone("race", "policy.cpp", policy, race.POLICY)
    if built.runner is None:
        entry.problem = built.problem
        return entry
    judging = race.PROGRAMS / race.JUDGE
    numbers = [each["track"] for each in race.tracks(judging)]
    entry.verdicts = {track: verdict for track, _, verdict in race.run(
        judging, numbers, lambda track: plan_in_jail(built.runner, staging, track, seconds_left),
        jobs)}
    return entry


def leaderboard(entry: Entry) -> list[dict]:
    """Gradescope's field of that name."""
    reached = entry.score(len(entry.verdicts)) if entry.verdicts else None
    rows: list[dict] = [{"name": "score", "value": round(reached or 0.0, 4)}]
    for number, verdict in sorted(entry.verdicts.items()):
        if "step_ps" in verdict:
            rows.append({"name": f"{number} {verdict['name']}, ms", "order": "asc",
                         "value": round(verdict["step_ps"] / 1e9, 3)})
    return rows


def ranked(entries: list[Entry], count: int) -> list[Entry]:
    """Best first; those without a score by how many tracks have a time."""
    return sorted(entries, key=lambda each: (-(each.score(count) or 0.0), -each.times(), each.name))


def board(entries: list[Entry], tracks: list[dict]) -> list[str]:
    """The table: a rank, a name, the score, and a step in milliseconds per track."""
    width = max([len("policy"), *(len(each.name) for each in entries)])
    numbers = [each["track"] for each in tracks]
    head = " ".join(f"{f'track {number}':>8}" for number in numbers)
    lines = [f"{'':>3} {'policy':<{width}} {'score':>7} {head}"]
    for place, each in enumerate(ranked(entries, len(tracks)), 1):
        reached = each.score(len(tracks))
        steps = " ".join(
            f"{verdict['step_ps'] / 1e9:>8.3f}" if "step_ps" in
            (verdict := each.verdicts.get(number, {})) else f"{'-':>8}" for number in numbers)
        lines.append(f"{place:>3} {each.name:<{width}} "
                     f"{'-' if reached is None else f'{reached:.4f}':>7} {steps}")
    return [*lines, "", "Steps in milliseconds; the score is the geometric mean of bound / step.",
            *(f"Track {each['track']}, {each['name']}. {each['about']}" for each in tracks)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    ending.in_order()
    try:
        course = manifest.load()
        if not options.folder.is_dir():
            raise OSError(f"{options.folder}: no such folder")
        entries = []
        with grade.hidden_from_jail(options.folder):
            for name, path in grade_all.submissions(options.folder):
                entry = _of_submission(path, course, options.jobs)
                if entry is None:
                    print(f"{name}: no {unpack.POLICY}")
                    continue
                taken = {each.name for each in entries}
                while entry.name in taken:
                    entry.name += "+"
                entries.append(entry)
                said = entry.problem.splitlines()[0] if entry.problem else (
                    f"{entry.times()} of {len(entry.verdicts)} tracks have a time")
                print(f"{name}: {entry.name}, {said}", flush=True)
                for number, verdict in sorted(entry.verdicts.items()):
                    if verdict["refused"]:
                        print(f"  track {number}: {verdict['refused']}", flush=True)
            tracks = race.tracks(race.PROGRAMS / race.JUDGE)
    except (manifest.ManifestError, race.RaceError, build_submission.BuildError, OSError) as error:
        print(f"race-board: {error}", file=sys.stderr)
        return 2
    lines = board(entries, tracks)
    race.FOLDER.mkdir(parents=True, exist_ok=True)
    (race.FOLDER / "board.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (race.FOLDER / "board.html").write_text(race.page("The race", [(lines, [])], ""),
                                            encoding="utf-8")
    terminal.say("", *lines, "", "build/race/board.txt, board.html")
    return 0 if entries else 1


def _of_submission(path: Path, course: manifest.Manifest, jobs: int) -> Entry | None:
    staging = Staging.make(course)
    try:
        found = unpack.unpack(path, unpack.wanted_paths(course), staging.unpack_in_jail)
        policy = found.files.get(unpack.POLICY)
        return None if policy is None else enter(policy, staging, jobs)
    except unpack.UnpackError:
        return None
    finally:
        staging.remove()


if __name__ == "__main__":
    sys.exit(main())
