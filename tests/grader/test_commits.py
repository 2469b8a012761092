"""The subjects of commits: what `git log --oneline` shows on a line of 80 columns."""

import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 70
# The rule counts from here on; 79 subjects before it are longer.
SINCE = "176a2756ebdd260f88b2cdb8b0c77115dbe9a28b"


def too_long(log: str) -> list[str]:
    """Of lines "commit subject", those whose subject is longer than MOST characters."""
    return [line for line in log.splitlines() if len(line.partition(" ")[2]) > MOST]


class Subjects(unittest.TestCase):
    def test_only_longer_ones_are_named(self) -> None:
        just = f"1a2b3c4 {'x' * MOST}"
        longer = f"5d6e7f8 {'é' * (MOST + 1)}"
        self.assertEqual(too_long(f"{just}\n{longer}\n"), [longer])

    def test_no_subject_since_the_rule_is_longer(self) -> None:
        try:
            log = subprocess.run(["git", "log", "--format=%h %s", f"{SINCE}..HEAD"], cwd=ROOT,
                                 capture_output=True, text=True, encoding="utf-8", check=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest(f"no history that reaches back to {SINCE[:7]}")
        long = "\n  ".join(too_long(log.stdout))
        self.assertFalse(long, f"subjects of more than {MOST} characters:\n  {long}")


if __name__ == "__main__":
    unittest.main()
