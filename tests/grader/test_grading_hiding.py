"""Tests of hiding.py, and that a grading gives back the modes it took, however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import grade
import gradescope_results
import hiding
import jail
import manifest

# Closes argv[2:], notes in argv[1], says so, and waits to be ended.
WAITS = """
import sys, time
from pathlib import Path
import ending, hiding
ending.in_order()
with hiding.hidden([Path(each) for each in sys.argv[2:]], Path(sys.argv[1])):
    print("closed", flush=True)
    sys.stdin.read()
"""


def mode(path):
    return path.stat().st_mode & 0o7777


@unittest.skipUnless(jail.is_root(), "only root takes rights from others")
class Hiding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.notes = self.root / "build"
        self.modes = {self.root / "solutions": 0o755, self.root / "tests": 0o2775,
                      self.root / "private": 0o700}
        for path, each in self.modes.items():
            path.mkdir()
            path.chmod(each)

    def hidden(self):
        return hiding.hidden([*self.modes, self.root / "absent"], self.notes)

    def check_closed(self):
        self.assertEqual([mode(path) for path in self.modes], [0o750, 0o2770, 0o700])

    def check_open(self):
        self.assertEqual({path: mode(path) for path in self.modes}, self.modes)
        self.assertFalse((self.notes / hiding.RECORD).exists())

    def begin_another(self):
        """Another grader, at work."""
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS, self.notes, *self.modes], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(hiding.__file__).parent)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"closed\n")
        return process

    def test_closed_while_it_lasts(self):
        with self.hidden():
            self.check_closed()
        self.check_open()

    def test_an_exception_opens(self):
        with self.assertRaises(ZeroDivisionError), self.hidden():
            self.check_closed()
            raise ZeroDivisionError
        self.check_open()

    def test_a_signal_opens(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number.name):
                other = self.begin_another()
                self.check_closed()
                other.send_signal(number)
                other.wait()
                self.check_open()

    def test_the_last_of_several_opens(self):
        other = self.begin_another()
        with self.hidden():
            pass
        self.check_closed()
        with self.hidden():
            other.terminate()
            other.wait()
            self.check_closed()
        self.check_open()

    def test_one_inside_another(self):
        with self.hidden():
            with self.hidden():
                pass
            self.check_closed()
        self.check_open()

    def test_what_a_killed_one_left_closed_is_opened_by_the_next(self):
        other = self.begin_another()
        other.kill()
        other.wait()
        self.check_closed()
        self.assertIn(f'"{self.root}/tests": "2775"',
                      (self.notes / hiding.RECORD).read_text(encoding="utf-8"))
        with self.hidden():
            self.check_closed()
        self.check_open()

    def test_what_was_opened_by_hand_stays_as_it_is(self):
        with self.hidden():
            (self.root / "solutions").chmod(0o711)
        self.assertEqual(mode(self.root / "solutions"), 0o711)

    def test_a_grading_that_fails_opens(self):
        """Grading itself, not only hiding.py; what it fails in does not matter."""
        course = manifest.load()
        request = grade.Request(self.root / "submission", self.root / "out", list(course.tasks),
                                self.root)
        with (mock.patch.object(manifest, "ROOT", self.root),
              mock.patch.object(gradescope_results, "_known_versions", ("kit", "grader")),
              mock.patch.object(grade.Staging, "make", side_effect=self.fail_closed)):
            with self.assertRaises(KeyboardInterrupt):
                grade.Grading(request, course).run()
        self.assertEqual((mode(self.root / "solutions"), mode(self.root / "tests")),
                         (0o755, 0o2775))

    def fail_closed(self, _):
        self.assertEqual((mode(self.root / "solutions"), mode(self.root / "tests")),
                         (0o750, 0o2770))
        raise KeyboardInterrupt


class NotRoot(unittest.TestCase):
    def test_nothing_is_touched(self):
        with (tempfile.TemporaryDirectory() as folder,
              mock.patch.object(jail, "is_root", return_value=False)):
            path = Path(folder) / "solutions"
            path.mkdir(0o755)
            before = mode(path)
            with hiding.hidden([path], Path(folder) / "build"):
                self.assertEqual(mode(path), before)
            self.assertEqual(os.listdir(folder), ["solutions"])


if __name__ == "__main__":
    unittest.main()
