"""Tests of grade_all.py, with a stand-in for the grader: what is kept, goes on, is graded alone."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import ending
import grade
import grade_all
import kept
import manifest
import side_by_side
from gradescope_results import Results

COURSE_FOLDER = Path(grade_all.__file__).parent
TASK = manifest.load().task(3)

# In place of grade.py: SUBMISSION OUTPUT PARENT RESULTS. A submission is a folder; its file "does"
# says what the grading is to do. Beside the submissions a log says who began and ended, in order.
GRADER = """
import json, os, sys
submission, output, parent, template = sys.argv[1:5]
folder, name = os.path.split(submission)
def is_new(path):
    there = os.path.exists(path)
    open(path, "w").close()
    return not there
def log(what):
    with open(f"{folder}/log", "a") as file:
        file.write(f"{what} {name}\\n")
does = open(f"{submission}/does").read()
log("begins")
if does == "waits":
    sys.path.insert(0, COURSE)
    import ending
    ending.with_parent(int(parent))
    with open(f"{folder}/began", "w"), open(f"{folder}/goes on"):
        pass
if does == "fails":
    raise SystemError("a grader's defect")
if does == "dies" and is_new(f"{submission}.died"):
    os.kill(os.getpid(), 9)
slow = does == "slow" and is_new(f"{submission}.slow")
results = json.loads(template)
results["tests"][0]["score"] = results["score"] = 0 if slow else len(name)
results["extra_data"].update(complete=True, by_clock=slow)
os.makedirs(output, exist_ok=True)
with open(f"{output}/results.json", "w") as file:
    json.dump(results, file)
log("ends")
""".replace("COURSE", repr(str(COURSE_FOLDER)))


def template():
    with tempfile.TemporaryDirectory() as name:
        return json.dumps(Results(Path(name) / "results.json", [TASK]).to_json())


def grade_all_with(grader, results, folder, output, *options):
    """grade_all.py with another grader."""
    def command(self, name, path):
        return [sys.executable, "-I", "-S", "-c", grader, str(path),
                str(self.options.output / name), str(os.getpid()), results]

    with (mock.patch.object(grade, "hidden_from_jail", lambda *_: nullcontext()),
          mock.patch.object(grade_all.Class, "_command", command)):
        return grade_all.main([str(folder), "--output", str(output), "--task", "3", "--built",
                               *options])


class Classes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "submissions"
        self.output = Path(folder.name) / "out"
        self.folder.mkdir()

    def submit(self, *names, does=""):
        for name in names:
            (self.folder / name).mkdir()
            (self.folder / name / "does").write_text(does, encoding="utf-8")

    def begin(self, *options):
        """In a process of its own."""
        words = [GRADER, template(), str(self.folder), str(self.output), *options]
        call = f"import sys, test_grading_class as t; sys.exit(t.grade_all_with(*{words!r}))"
        return subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL,
                                cwd=Path(__file__).parent)

    def call(self, *options):
        out, err = io.StringIO(), io.StringIO()
        with (mock.patch.object(ending, "in_order"), redirect_stdout(out), redirect_stderr(err)):
            code = grade_all_with(GRADER, template(), self.folder, self.output, *options)
        return code, out.getvalue(), err.getvalue()

    def log(self):
        path = self.folder / "log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def table(self):
        with (self.output / "grades.csv").open(newline="", encoding="utf-8") as file:
            return {row["submission"]: row["score"] for row in csv.DictReader(file)}

    def test_what_this_tree_has_graded_is_not_graded_again(self):
        self.submit("a", "bb", "ccc")
        code, out, err = self.call("--jobs", "1")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("[3 of 3]", out)
        self.assertEqual(self.table(), {"a": "1", "bb": "2", "ccc": "3"})
        self.assertEqual(len(self.log()), 6)
        before = (self.output / "grades.csv").read_bytes()
        code, out, _ = self.call()
        self.assertEqual((code, self.log()), (0, []))
        self.assertIn("3 of 3 were graded before", out)
        self.assertEqual((self.output / "grades.csv").read_bytes(), before)
        (self.folder / "bb" / "new").write_text("x", encoding="utf-8")
        self.call()
        self.assertEqual(self.log(), ["begins bb", "ends bb"])
        self.call("--again", "--jobs", "1")
        self.assertEqual(self.log(), [f"{what} {name}" for name in ("a", "bb", "ccc")
                                      for what in ("begins", "ends")])
        self.call("--deadline", "100")
        self.assertEqual(len(self.log()), 6)

    def test_killed_twice_and_gone_on(self):
        self.submit("a", "ccc", "eeeee")
        self.submit("bb", "dddd", does="waits")
        for name in ("began", "goes on"):
            os.mkfifo(self.folder / name)
        for how, done in ((signal.SIGKILL, ["a"]), (signal.SIGTERM, ["a", "bb", "ccc"])):
            process = self.begin("--jobs", "1")
            waits = open(self.folder / "began", encoding="utf-8")  # the next one that waits, does
            waits.close()
            process.send_signal(how)
            process.wait(timeout=60)
            self.assertEqual(list(self.table()), done)
            # Its grader has ended with it: nobody reads here.
            with self.assertRaises(OSError):
                for _ in range(1000):
                    os.close(os.open(self.folder / "goes on", os.O_WRONLY | os.O_NONBLOCK))
                    os.sched_yield()
            with grade_all.alone_in(self.output):
                pass
            name = "bb" if how == signal.SIGKILL else "dddd"
            (self.folder / name / "does").write_text("", encoding="utf-8")
        self.log()
        code, out, _ = self.call("--jobs", "1")
        self.assertEqual(code, 0)
        self.assertIn("3 of 5 were graded before", out)
        self.assertEqual(self.log(), ["begins dddd", "ends dddd", "begins eeeee", "ends eeeee"])
        resumed = (self.output / "grades.csv").read_bytes()
        self.call("--again", "--jobs", "3")
        self.assertEqual((self.output / "grades.csv").read_bytes(), resumed)

    def test_what_the_clock_ended_beside_others_is_graded_alone(self):
        self.submit("a", "ccc")
        self.submit("bb", does="slow")
        self.submit("dddd", does="dies")
        code, out, err = self.call("--jobs", "2")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("Of 2 the clock ended something", out)
        self.assertEqual(self.log()[-4:], ["begins bb", "ends bb", "begins dddd", "ends dddd"])
        self.assertEqual(self.table(), {"a": "1", "bb": "2", "ccc": "3", "dddd": "4"})

    def test_alone_the_clock_decides(self):
        self.submit("bb", does="slow")
        self.call("--jobs", "2")
        self.assertEqual(self.log(), ["begins bb", "ends bb"])
        self.assertEqual(self.table(), {"bb": "0"})

    def test_a_defect_of_the_grader_ends_it(self):
        self.submit("a", "ccc")
        self.submit("bb", does="fails")
        code, _, err = self.call("--jobs", "1")
        self.assertEqual(code, 2)
        self.assertRegex(err, "(?s)^grade-all: bb: .*a grader's defect")
        self.assertEqual(self.table(), {"a": "1"})


class Sums(unittest.TestCase):
    def test_of_a_folder(self):
        with tempfile.TemporaryDirectory() as name:
            folder, sums = Path(name), []
            for change in (lambda: None, lambda: (folder / "x.cpp").write_text("1"),
                           lambda: (folder / "x.cpp").write_text("2"),
                           lambda: (folder / "x.cpp").rename(folder / "y.cpp"),
                           lambda: (folder / "z.cpp").symlink_to("y.cpp"),
                           lambda: (folder / "z.zip").write_bytes(bytes(300 << 10)),
                           lambda: (folder / "z.zip").write_bytes(bytes(299 << 10) + b"x" * 1024)):
                change()
                sums.append(kept.sum_of_submission(folder))
            self.assertEqual(len(set(sums)), len(sums))
            self.assertEqual(kept.sum_of_submission(folder), sums[-1])

    def test_of_a_tree(self):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for path in ("common/x.h", "tests/task1/hidden_cases.cpp", "docs/page.md",
                         "apps/course/points.toml", "tests/grader/test_x.py", "CMakeLists.txt"):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("1", encoding="utf-8")
            before, changes = kept.sum_of_tree(root), []
            for path in sorted(each for each in root.rglob("*") if each.is_file()):
                path.write_text("2", encoding="utf-8")
                if kept.sum_of_tree(root) != before:
                    changes.append(str(path.relative_to(root)))
                path.write_text("1", encoding="utf-8")
            self.assertEqual(changes, ["CMakeLists.txt", "apps/course/points.toml", "common/x.h",
                                       "tests/task1/hidden_cases.cpp"])

    def test_a_note_that_cannot_be_read_is_none(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.assertIsNone(kept.load(folder, "sum"))
            (folder / "results.json").write_text('{"score": 1}', encoding="utf-8")
            kept.store(folder, "sum", 2.5)
            self.assertEqual(kept.load(folder, "sum"), ({"score": 1}, 2.5))
            self.assertIsNone(kept.load(folder, "another"))
            for text in ("", "[]", json.dumps({"sum": "sum"})):
                (folder / "graded.json").write_text(text, encoding="utf-8")
                self.assertIsNone(kept.load(folder, "sum"))
            kept.store(folder, "sum", 1)
            kept.forget(folder)
            self.assertIsNone(kept.load(folder, "sum"))


class TimeLeft(unittest.TestCase):
    def test_from_what_was_measured(self):
        self.assertIsNone(side_by_side.time_left([], 5, 2))
        self.assertEqual(side_by_side.time_left([50.0, 70.0], 10, 2), 300.0)
        self.assertEqual([side_by_side.told(each) for each in (10, 61, 5000, 7260)],
                         ["less than a minute", "about 1 min", "about 83 min", "about 2 h 1 min"])


if __name__ == "__main__":
    unittest.main()
