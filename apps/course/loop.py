"""How the student's tools run a judge: with short limits, and never silent for long.

The grader's own limits are longer (grade.py): there a slow machine must cost nobody a point.
"""

from __future__ import annotations

import os
from pathlib import Path

import terminal
import verdicts

SECONDS = "5"  # of processor time a run: many times what any needs, and an endless loop ends soon
MOST_HANGS = "2"  # after two runs that do not end, a judge begins none of its cases that are left


def run(judge: Path, runner: Path, spec: str, chosen: dict[str, str] | None = None, jobs: int = 1
        ) -> list[verdicts.Case]:
    """The cases of `judge` that match `spec`; `chosen` variables that are empty are left out."""
    limits = {"FSDP_SECONDS": os.environ.get("FSDP_SECONDS", SECONDS),
              "FSDP_MOST_HANGS": MOST_HANGS}
    env = {name: value for name, value in {**limits, **(chosen or {})}.items() if value}
    return verdicts.run_side_by_side(judge, runner, spec, jobs, env=env, on_wait=still_running)


def still_running(case: str) -> None:
    """A run that takes long does not end, most of the time: says where it is."""
    terminal.say("Nothing came out for 10 s. " + (f'Still running: "{case}"' if case else
                                                  "No case has begun yet."))
