"""Tests of manifest.py: the real points, and what it refuses."""

import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest

GOOD = """
[[task]]
number = 1
folder = "task1_a"
title = "A"
files = ["a.cpp"]
questions = 2
steps = [
  { id = "1.1", title = "x", public = 3, requires = [] },
  { id = "1.2", title = "y", public = 2, hidden = 1, requires = ["1.1"] },
  { id = "1.3", title = "z", public = 2, requires = ["1.2"] },
]
"""


class ManifestTest(unittest.TestCase):
    def load(self, text: str, total: int = 10) -> manifest.Manifest:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "points.toml"
            path.write_text(text, encoding="utf-8")
            return manifest.load(path, total)

    def refuses(self, text: str, *parts: str, total: int = 10) -> None:
        with self.assertRaises(manifest.ManifestError) as caught:
            self.load(text, total)
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_the_course_has_seven_tasks_and_100_points(self):
        course = manifest.load()
        self.assertEqual([task.number for task in course.required], [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual(sum(task.points for task in course.required), 100)
        self.assertEqual([task.points for task in course.required], [10, 15, 15, 20, 15, 15, 10])
        self.assertEqual([task.number for task in course.optional], [8])
        self.assertEqual(course.tasks, course.required + course.optional)

    def test_extra_credit_comes_on_top_and_last(self):
        extra = GOOD.replace("number = 1", "number = 2").replace("task1", "task2").replace(
            '"1.', '"2.') + "extra = true\n"
        course = self.load(GOOD + extra)
        self.assertEqual([task.number for task in course.required], [1])
        self.assertEqual([task.number for task in course.optional], [2])
        self.assertEqual([task.extra for task in course.tasks], [False, True])
        first = GOOD + "extra = true\n"
        second = extra.replace("extra = true\n", "")
        self.refuses(first + second, "stands before one without")
        self.refuses(GOOD + extra.replace("true", '"yes"'), "extra = 'yes'; write true")

    def test_reads_steps_and_closures(self):
        task = self.load(GOOD).task(1)
        self.assertEqual((task.public, task.hidden, task.points), (7, 1, 10))
        self.assertEqual(task.closure("1.3"), ("1.1", "1.2"))
        self.assertEqual(task.dependants({"1.2"}), {"1.2", "1.3"})
        self.assertEqual(self.load(GOOD).task_of_step("1.2"), task)

    def test_unknown_steps_are_named(self):
        for step, part in (("1.9", "its steps are 1.1, 1.2, 1.3"), ("2.1", "no task 2"),
                           ("3", "write it like 3.2")):
            with self.assertRaisesRegex(manifest.ManifestError, part):
                self.load(GOOD).task_of_step(step)

    def test_refuses_what_does_not_add_up(self):
        self.refuses(GOOD, "add up to 10, not 100", "task 1: 10", total=100)

    def test_refuses_wrong_fields(self):
        self.refuses(GOOD.replace('title = "A"\n', ""), "'title' is missing")
        self.refuses(GOOD.replace("public = 3", "public = 3, bonus = 1"), "unknown field 'bonus'")
        self.refuses(GOOD.replace("public = 3", "public = -3"), "task 1, step 1", "public = -3")
        self.refuses(GOOD.replace("public = 3", "public = 0"), "at least one public point")
        self.refuses(GOOD.replace('"a.cpp"', '"../a.cpp"'), "files holds '../a.cpp'")
        self.refuses(GOOD.replace("number = 1", "number = 2"), "numbered in order")
        self.refuses(GOOD.replace('id = "1.2"', 'id = "1.4"'), "numbered in order: 1.2")
        self.refuses(GOOD.replace('["1.1"]', '["1.3"]'), "requires '1.3'", "no earlier step")
        self.refuses("task = 3", "[[task]]")


if __name__ == "__main__":
    unittest.main()
