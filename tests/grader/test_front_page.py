"""The front page: in the order that a newcomer reads it, with code that a test compiles and runs."""

import re
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


class FrontPage(unittest.TestCase):
    def test_its_code_is_that_of_the_test(self) -> None:
        test = (ROOT / "tests/solutions/front_page.cpp").read_text(encoding="utf-8")
        tested = re.findall(r"(?ms)^  // README\n(.*?)^  // end$", test)
        shown = re.findall(r"(?ms)^```cpp\n(.*?)^```$", TEXT)
        self.assertEqual(shown, [textwrap.dedent(each) for each in tested])
        self.assertEqual(len(shown), 1)

    def test_its_order(self) -> None:
        places = [TEXT.index(text) for text in
                  ("make demo", "yes  every loss", "](writeup/figures/", "fully_shard(",
                   "tasks/warm_up/README.md", "docs/instructors.md", "## What it does not do")]
        self.assertEqual(places, sorted(places))

    def test_the_demo_prints_what_it_shows(self) -> None:
        demo = (ROOT / "apps/demo/main.cpp").read_text(encoding="utf-8")
        lines = re.findall(r"(?m)^yes  (.*)$", TEXT)
        self.assertEqual(len(lines), 5)
        for line in lines:
            self.assertIn(f'"{line}"', demo)
        tables = (ROOT / "apps/demo/tables.cpp").read_text(encoding="utf-8")
        for column in ("first loss", "peak per rank", "the bound", "received", "optimizer state",
                       "received/step", "parameters"):
            self.assertIn(column, TEXT)
            self.assertIn(f'"{column}"', tables)


if __name__ == "__main__":
    unittest.main()
