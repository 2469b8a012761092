"""Tests of regions.py and skeletons.py."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import regions
import skeletons

SOURCE = """#include "x.h"

// SOLUTION 3.2:
int helper() { return 1; }
// END SOLUTION

// ------ TODO 3.1
// Start.
void start(int a) {
  // SOLUTION 3.1: todo(a, b_)
  begin(a);
  go(a);
  // END SOLUTION
}

// ------ TODO 3.2
void finish() {
  // SOLUTION 3.2: todo()
  go(helper());
  // END SOLUTION
}

Thing::~Thing() {
  // SOLUTION 3.2: (void)owner_
  go(2);
  // END SOLUTION
}
"""

SKELETON = """#include "x.h"

// ------ TODO 3.1
// Start.
void start(int a) {
  todo("3.1", a, b_);
}

// ------ TODO 3.2
void finish() {
  todo("3.2");
}

Thing::~Thing() {
  (void)owner_;
}
"""


class RegionsTest(unittest.TestCase):
    def setUp(self):
        self.source = regions.parse(SOURCE, "x.cpp")

    def test_skeleton_has_stubs_and_all_that_is_given(self):
        self.assertEqual(regions.skeleton(self.source), SKELETON)

    def test_everything_solved_is_the_solution(self):
        self.assertEqual(regions.with_solved(self.source, ["3.1", "3.2"]), SOURCE)

    def test_ladder_stubs_the_later_steps(self):
        text = regions.ladder(self.source, "3.1")
        self.assertIn("begin(a);", text)
        self.assertIn('todo("3.2");', text)
        self.assertNotIn("helper", text)

    def test_steps_are_ordered_by_number(self):
        self.assertLess(regions.step_key("2.9"), regions.step_key("2.10"))

    def test_edits_replace_inside_one_region(self):
        text = regions.apply(self.source, [regions.Edit("3.1", find="  begin(a);", replace="")])
        self.assertEqual(text, SOURCE.replace("  begin(a);", ""))
        text = regions.apply(self.source, [regions.Edit("3.2", find="go(2)", replace="go(3)"),
                                           regions.Edit("3.1", whole="  stop();\n")], ["<set>"])
        self.assertTrue(text.startswith('#include <set>\n#include "x.h"\n'))
        self.assertIn("{\n  // SOLUTION 3.1: todo(a, b_)\n  stop();\n  // END SOLUTION\n}", text)
        self.assertIn("go(3);", text)

    def test_two_edits_of_a_region_both_hold(self):
        text = regions.apply(self.source, [regions.Edit("3.1", find="begin(a);", replace="x();"),
                                           regions.Edit("3.1", find="go(a);", replace="y();")])
        self.assertIn("  x();\n  y();\n", text)

    def test_given_code_can_be_edited(self):
        find = next(line for line in SKELETON.splitlines() if line.startswith("#include"))
        edit = regions.Edit(regions.GIVEN, find=find, replace="#include <map>")
        self.assertEqual(regions.apply(self.source, [edit]), SOURCE.replace(find, "#include <map>"))
        with self.assertRaisesRegex(regions.RegionError, "given code.* occurs 0 times"):
            regions.apply(self.source, [regions.Edit(regions.GIVEN, find="nowhere", replace="")])

    def test_edits_that_do_not_fit_are_refused(self):
        for edit, part in ((regions.Edit("3.1", find="nowhere", replace=""), "occurs 0 times"),
                           (regions.Edit("3.2", find="go(", replace=""), "occurs 2 times"),
                           (regions.Edit("3.2", whole="x"), "has 3 regions"),
                           (regions.Edit("3.2", whole="x", nth=4), "nth = 4"),
                           (regions.Edit("3.1"), "needs find and replace"),
                           (regions.Edit("3.7", whole="x"), "no region of step 3.7")):
            with self.assertRaisesRegex(regions.RegionError, part):
                regions.apply(self.source, [edit])

    def test_marks_that_do_not_hold_together_are_refused(self):
        for text, part in (("// SOLUTION 1.1: todo()\n", "x.cpp:1: .*never closed"),
                           ("\n// END SOLUTION\n", "x.cpp:2: END SOLUTION without"),
                           ("// SOLUTION 1.1:\n// SOLUTION 1.2:\n", "begins inside"),
                           ("// SOLUTION 11\n", "not a mark"),
                           ("// SOLUTION 1.1:\n// END SOLUTION\n", "no '// ---- TODO 1.1' block"),
                           ("// ---- TODO 1.1\n", "has no region")):
            with self.assertRaisesRegex(regions.RegionError, part):
                regions.parse(text, "x.cpp")


class SkeletonsTest(unittest.TestCase):
    POINTS = """
[[task]]
number = 1
folder = "task1_a"
title = "A"
files = ["a.cpp"]
questions = 0
steps = [{ id = "1.1", title = "x", public = 100, requires = [] }]
"""
    SOLUTION = ("// - TODO 1.1\nvoid f() {\n  // SOLUTION 1.1: todo()\n  g();\n"
                "  // END SOLUTION\n}\n")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.put("apps/course/points.toml", self.POINTS)
        self.put("solutions/task1_a/a.cpp", self.SOLUTION)
        self.skeleton = self.root / "tasks/task1_a/a.cpp"

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def texts(self) -> dict[str, str]:
        return skeletons.generate(self.root, manifest.load(self.root / "apps/course/points.toml"))

    def write(self) -> list[str]:
        with contextlib.redirect_stdout(io.StringIO()):
            return skeletons.write_all(self.root, self.texts())

    def test_a_generated_file_follows_its_solution(self):
        self.assertEqual(self.write(), [])
        self.assertEqual(self.skeleton.read_text(),
                         '// - TODO 1.1\nvoid f() {\n  todo("1.1");\n}\n')
        self.assertEqual(skeletons.check_all(self.root, self.texts()), [])
        self.put("solutions/task1_a/a.cpp", self.SOLUTION.replace("void f", "int f"))
        problems = skeletons.check_all(self.root, self.texts())
        self.assertIn("differs from what its solution generates", "\n".join(problems))
        self.assertEqual(self.write(), [])
        self.assertIn("int f", self.skeleton.read_text())
        self.assertEqual(len(skeletons.read_versions(self.root)["tasks/task1_a/a.cpp"]), 2)

    def test_an_edited_file_is_left_alone(self):
        self.write()
        self.skeleton.write_text("mine")
        self.assertIn("somebody worked in this file", self.write()[0])
        self.assertEqual(self.skeleton.read_text(), "mine")

    def test_a_step_without_a_region_is_refused(self):
        self.put("solutions/task1_a/a.cpp", "int nothing;\n")
        with self.assertRaisesRegex(regions.RegionError, "step 1.1 of points.toml has no region"):
            self.texts()


class RepositoryTest(unittest.TestCase):
    """What the marked solutions generate. (That the files on disk match is skeletons --check.)"""

    def test_every_solution_parses_and_every_step_has_a_region(self):
        if not (manifest.ROOT / "solutions").is_dir():
            self.skipTest("a student kit: no solutions")
        texts = skeletons.generate(manifest.ROOT, manifest.load())
        self.assertEqual(len(texts), 11)
        for name, text in texts.items():
            self.assertNotIn("SOLUTION", text, name)
            unsolved = "throw NotWritten" if "warm_up" in name else 'todo("'
            self.assertIn(unsolved, text, name)


if __name__ == "__main__":
    unittest.main()
