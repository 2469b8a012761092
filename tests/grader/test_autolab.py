"""Tests of the autograder for Autolab, through a stand-in of Autolab. What grades is one, too."""

import argparse
import contextlib
import io
import json
import re
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import autolab_stand_in
import course_path  # noqa: F401  must come first
import autograder
import autolab
import grade
import manifest
from gradescope_results import Results

COURSE = manifest.load()
FULL_TREE = (manifest.ROOT / "solutions" / COURSE.task(1).folder).is_dir()

# In place of grade.py in the image: passes the first step of each task, and reports its arguments.
GRADER = """
import json, os, sys
from contextlib import nullcontext
from pathlib import Path
DEADLINE = 480.0
hidden_from_jail = lambda *_: nullcontext()
def main(words):
    print("what failed of a hidden case: secret")
    if Path(words[0]).read_bytes() == b"broken":
        print("grade: it does not work", file=sys.stderr)
        return 2
    import gradescope_results, manifest
    course = manifest.load()
    tasks = [course.task(int(after)) for word, after in zip(words, words[1:]) if word == "--task"]
    output = Path(words[words.index("--output") + 1])
    results = gradescope_results.Results(output / "results.json", tasks)
    for task in tasks:
        entry = results.of_task(task)[0]
        entry.score, entry.passed, entry.private = entry.most, True, "secret"
    results.notes, results.private = [" ".join(words)], ["secret"]
    results.complete = True
    results.write()
    return 0
"""


@unittest.skipUnless(FULL_TREE, "a kit has no autograder")
class Autolab(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.said = {task: cls.pack(task) for task in ("all", "3")}
        # The image: the course unpacked, with a grader that needs no build.
        with tarfile.open(cls.folder / "all" / autolab.PACKAGE) as archive:
            cls.names = archive.getnames()
            archive.extractall(cls.folder / "opt", filter="data")
        cls.course = cls.folder / "opt" / "unshard"
        (cls.folder / "submission").write_bytes(b"an archive")

    @classmethod
    def pack(cls, task):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            autolab.pack(autolab.parse(["pack", "--task", task, "--output",
                                        str(cls.folder / task)]))
        return said.getvalue()

    def grade(self, lab, name, submission="submission", grader=GRADER):
        # The sum over the grader, which lab and image must share, is that of the real one.
        known = f"import gradescope_results\ngradescope_results._known_versions = {VERSIONS!r}\n"
        (self.course / "apps/course/grade.py").write_text(known + grader, encoding="utf-8")
        return autolab_stand_in.grade(self.folder / lab, self.folder / submission,
                                      self.folder / name, f"COURSE={self.course}", "root=")

    def test_what_is_packed(self):
        self.assertEqual(sorted(path.name for path in (self.folder / "3").iterdir()),
                         ["Dockerfile", "autograde-Makefile", "autograde.tar"])
        self.assertTrue(all(name.startswith("unshard/") for name in self.names))
        self.assertIn("unshard/solutions/task3_forward/forward.cpp", self.names)
        self.assertIn("unshard/apps/course/gradescope_image/setup.sh", self.names)
        self.assertIn("task1 (10), task2 (15)", self.said["all"])
        self.assertIn("100 points, and 15 extra", self.said["all"])
        self.assertIn(f"15 points.\nThe lab's problems, and the most points of each: task3 "
                      f"({COURSE.task(3).points}).", self.said["3"])

    def test_the_image_allows_what_the_makefile_calls(self):
        makefile = (autolab.IMAGE / "autograde.mk").read_text(encoding="utf-8")
        dockerfile = (autolab.IMAGE / "Dockerfile").read_text(encoding="utf-8")
        called = re.search(r"@\$\(root\) (.*) \$\(HANDIN\)", makefile)[1]
        course = re.search(r"(?m)^COURSE = (.*)$", makefile)[1]
        self.assertIn(f"NOPASSWD: {called.replace('$(COURSE)', course)} *'", dockerfile)
        self.assertIn("ADD autograde.tar /opt/", dockerfile)
        self.assertEqual(course, "/opt/unshard")

    def test_an_image_has_all_that_a_grading_would_make_first(self):
        done = []
        settings = {"tasks": [1, 3], "race": False}
        with mock.patch.multiple(
                autograder, settings_here=lambda: settings,
                subprocess=mock.Mock(run=lambda *_, **__: mock.Mock(returncode=0))), \
             mock.patch.multiple(
                 grade, prepare=lambda build, tasks: done.append((build, tasks)),
                 main=lambda words: done.append("--built" in words) or 0), \
             contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(autograder.setup(argparse.Namespace(jobs=2)), 0)
        self.assertEqual(done, [(manifest.ROOT / "build" / "grade",
                                 [COURSE.task(1), COURSE.task(3)]), True])

    def test_scores_come_last(self):
        scores, feedback = self.grade("all", "graded all")
        self.assertEqual(scores, {f"task{task.number}": task.steps[0].public
                                  for task in COURSE.tasks})
        self.assertIn("1.1 ", feedback)
        self.assertIn("not run", feedback)
        self.assertIn(f"{self.folder}/graded all/submission.tar.gz", feedback)
        self.assertNotIn("secret", feedback)

    def test_a_lab_of_one_task_in_the_same_image(self):
        scores, feedback = self.grade("3", "graded 3")
        self.assertEqual(scores, {"task3": COURSE.task(3).steps[0].public})
        self.assertNotIn("1.1 ", feedback)
        self.assertIn("--task 3", feedback)

    def test_a_defect_of_the_grader_is_no_score(self):
        (self.folder / "broken").write_bytes(b"broken")
        scores, feedback = self.grade("3", "graded broken", "broken")
        self.assertIsNone(scores)
        self.assertIn("the submission is not to blame", feedback)
        self.assertNotIn("secret", feedback)

    def test_an_image_of_another_tree_is_no_score(self):
        stale = GRADER + "\ngradescope_results._known_versions = ('kit', 'another')\n"
        scores, feedback = self.grade("3", "graded stale", grader=stale)
        self.assertIsNone(scores)
        self.assertIn("Build the image anew", feedback)

    def test_points_are_those_of_the_results(self):
        results = Results(self.folder / "r.json", [COURSE.task(3), COURSE.task(8)])
        for entry in results.entries:
            entry.score = entry.most
        self.assertEqual(autolab.scores(json.loads(json.dumps(results.to_json())), [3, 8]),
                         {"task3": COURSE.task(3).points, "task8": COURSE.task(8).points})


def versions():
    from gradescope_results import versions as known
    return known()


VERSIONS = versions()

if __name__ == "__main__":
    unittest.main()
