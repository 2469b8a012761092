#!/usr/bin/env python3
"""Flips one bit of a checkpoint at a time and resumes: every flip must be an error by name.

    python3 tests/faults/flips.py 1000

Half of the flips are in the header of a file, the others in its data.
"""

import pathlib
import random
import sys
import tempfile

import trials


def fault_in(folder: pathlib.Path, file: pathlib.Path, ranks: int) -> str:
    resumed = trials.run([*trials.arguments(folder, ranks), "--training.steps", "13"])
    if resumed.returncode == 0:
        return "loaded"
    if resumed.returncode != 2 or "step 13/13" in resumed.stdout:
        return f"exit code {resumed.returncode}: {resumed.stderr.strip()}"
    if str(file.parent) not in resumed.stderr:
        return f"not named: {resumed.stderr.strip()}"
    return ""


def main() -> None:
    draw = random.Random(1)
    tally = trials.Tally()
    with tempfile.TemporaryDirectory() as home:
        folders = {}
        for ranks in (1, 2):
            folders[ranks] = pathlib.Path(home) / str(ranks)
            folders[ranks].mkdir()
            saved = trials.run([*trials.arguments(folders[ranks], ranks),
                                "--lr_scheduler.total_steps", "13"])
            assert saved.returncode == 0, saved.stderr
        for _ in range(int(sys.argv[1])):
            folder = folders[draw.choice([1, 2])]
            file = draw.choice(sorted((folder / "runs" / f"step_{trials.STEPS}").glob("shard-*")))
            whole = file.read_bytes()
            data = 8 + int.from_bytes(whole[:8], "little")
            at = draw.randrange(data) if draw.random() < 0.5 else draw.randrange(data, len(whole))
            bit = draw.randrange(8)
            file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1:])
            tally.add(f"{file.name}, byte {at}, bit {bit}",
                      fault_in(folder, file, draw.choice([1, 2])))
            file.write_bytes(whole)
        for ranks, folder in folders.items():
            trials.run([*trials.arguments(folder, ranks), "--training.steps", "13"])
    tally.finish()


if __name__ == "__main__":
    main()
