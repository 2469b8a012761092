"""The table in the handout of the race is what the policies reach, by their own estimates.

    table.py BIN     where race_policy, race_greedy and race_search are

The search takes seconds per track, so that only one of its tracks is compared.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

HANDOUT = Path(__file__).resolve().parents[2] / "tasks" / "race" / "README.md"
SEARCHED = (4,)


def milliseconds(program: Path, track: int) -> str:
    done = subprocess.run([str(program), "--track", str(track), "--estimate"], capture_output=True,
                          text=True, check=True)
    said = json.loads(done.stdout)
    assert program.name != "race_policy" or said["step_ps"] == said["fsdp_ps"], said
    return f"{said['step_ps'] / 1e9:.3f}"


def main() -> int:
    folder = Path(sys.argv[1])
    rows = re.findall(r"(?m)^\| (\d) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \| ",
                      HANDOUT.read_text(encoding="utf-8"))
    wrong = [] if len(rows) == 7 else [f"{len(rows)} rows in place of 7"]
    for number, plain, greedy, search in rows:
        track = int(number)
        expected = {"policy": plain, "greedy": greedy}
        if track in SEARCHED:
            expected["search"] = search
        for name, said in expected.items():
            reached = milliseconds(folder / f"race_{name}", track)
            if reached != said:
                wrong.append(f"track {track}, {name}: the table says {said} ms, it is {reached} ms")
    print("\n".join(wrong) or "the table holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
