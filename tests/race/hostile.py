"""Hostile policies gain nothing: each ends without a time, and the message says why.

    hostile.py BIN     where race_judge and race_hostile_* are

What they forge is in their own process, which hands over a text and ends.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "apps" / "course"))
import race  # noqa: E402  pylint: disable=wrong-import-position

TRACK = 4  # the smallest
SAID = {
    "endless": "used up its 1 s of processor time",
    "faster_machine": "bytes at its peak, and a rank has",
    "forged_result": "a plan has no such field; it has units and neighbors",
    "hidden_gathers": "bytes at its peak, and a rank has",
    "much_memory": "no memory left: it may have 1024 MiB",
    "no_plan": "no plan over",
    "throws": "the policy has thrown an exception: of its own",
    "two_plans": "the plan is not JSON",
}


def main() -> int:
    folder = Path(sys.argv[1])
    race.CPU = 1
    race.MEMORY = 1 << 30
    names = {path.stem for path in (Path(__file__).parent / "hostile").glob("*.cpp")}
    wrong = [] if names == set(SAID) else [f"not the same: {sorted(names ^ set(SAID))}"]
    for name, said in SAID.items():
        verdict = race.judge(folder / race.JUDGE, TRACK,
                             race.plan_here(folder / f"race_hostile_{name}", TRACK))
        if "step_ps" in verdict or said not in verdict["refused"]:
            wrong.append(f"{name}: expected '{said}', got {verdict}")
    print("\n".join(wrong) or f"{len(SAID)} hostile policies have no time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
