"""Tests of diagnosis.py: which case is run again, and what is told of a sanitizer's report."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import diagnosis
import grade
import manifest
import verdicts

TASK = manifest.load().task(3)
OWN = "tasks/task3_forward/forward.cpp"
CRASHED = 'start/layer W=2: the run crashed: Segmentation fault. make debug-n.m starts a debugger'

OVERFLOW = f"""\
start/layer W=2: the run ended early, with exit code 1 and without its observations.
It printed:
=================================================================
==17==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000014 at pc 0x55 bp 0x7f
WRITE of size 4 at 0x602000000014 thread T1
    #0 0x559af in fsdp::ForwardUnit::start_unshard(fsdp::Phase) {OWN}:41
    #1 0x559b0 in run_rank tests/task3/scenarios.cpp:12
    #2 0x559b1 in fsdp::ForwardUnit::forward(fsdp::Tensor const&) {OWN}:99:7
"""


def case(name="a case", message=CRASHED, hidden=False, executed=True, passed=False):
    return verdicts.Case(name, ("3.1",), hidden, passed, executed, [message] if message else [])


class WhichCase(unittest.TestCase):
    def test_the_first_public_one_that_crashed(self):
        wanted = case("wanted")
        cases = [case(hidden=True), case(message="W=2: the run threw Error"),
                 case(message="W=2: the run did not end: stopped after 10 s"),
                 case(executed=False), case(message="", passed=True), wanted, case("later")]
        self.assertIs(diagnosis.first_crash(cases), wanted)
        self.assertIsNone(diagnosis.first_crash(cases[:-2]))


class Reports(unittest.TestCase):
    def test_kind_access_and_own_frames(self):
        self.assertEqual(diagnosis.summary(OVERFLOW, [OWN]).splitlines(), [
            "Run again under the address sanitizer (no points depend on it):",
            "  heap-buffer-overflow, a write of size 4 bytes",
            f"    {OWN}:41  in fsdp::ForwardUnit::start_unshard(fsdp::Phase)",
            f"    {OWN}:99  in fsdp::ForwardUnit::forward(fsdp::Tensor const&)"])

    def test_nothing_of_the_students_own(self):
        self.assertIn("no frame of it lies in your files",
                      diagnosis.summary(OVERFLOW, ["tasks/task4_backward/backward.cpp"]))

    def test_undefined_behavior(self):
        text = f"/tmp/unshard-grade-x/source/{OWN}:7:3: runtime error: division by zero\n"
        said = diagnosis.summary(text, [OWN])
        self.assertIn(f"  {OWN}:7: division by zero", said)

    def test_no_report(self):
        self.assertIn("reports nothing", diagnosis.summary(CRASHED, [OWN]))

    def test_a_report_of_this_compiler(self):
        if not diagnosis.has_sanitizer("g++"):
            self.skipTest("g++ has no address sanitizer here")
        with tempfile.TemporaryDirectory() as name:
            source, program = Path(name) / "forward.cpp", Path(name) / "program"
            source.write_text("int main(int count, char**) {\n  int* four = new int[4];\n"
                              "  four[count + 3] = 1;\n  return four[0];\n}\n", encoding="utf-8")
            subprocess.run(["g++", "-g", *diagnosis.FLAGS, f"-ffile-prefix-map={name}=tasks",
                            str(source), "-o", str(program)], check=True)
            done = subprocess.run([str(program)], capture_output=True, text=True, check=False,
                                  env={"ASAN_OPTIONS": "detect_leaks=0:color=never"})
        self.assertEqual(diagnosis.summary(done.stderr, ["tasks/forward.cpp"]).splitlines()[1:], [
            "  heap-buffer-overflow, a write of size 4 bytes", "    tasks/forward.cpp:3  in main",
            "    allocated at tasks/forward.cpp:2"])


class Telling(unittest.TestCase):
    def tell(self, cases, left=400.0):
        tools = mock.Mock()
        tools.compiler.return_value = "g++"
        diagnosis.Diagnosis(tools, mock.Mock(judge_environment=lambda *_: {}), lambda: left,
                            10).tell(TASK, Path("judge"), cases)
        return tools

    def test_the_report_follows_the_message_and_points_stay(self):
        cases = [case("other", message="wrong"), case()]
        with (mock.patch.object(diagnosis, "has_sanitizer", return_value=True),
              mock.patch.object(verdicts, "run_judge",
                                return_value=[case(message=OVERFLOW)]) as run):
            self.tell(cases)
        self.assertEqual(run.call_args.args[2], "a case")
        self.assertEqual(cases[0].message, "wrong")
        self.assertTrue(cases[1].message.startswith(CRASHED + "\n\nRun again"))
        self.assertIn("heap-buffer-overflow", cases[1].message)
        self.assertFalse(cases[1].passed)
        earned = verdicts.judge_steps(TASK, cases, ["3.1"])[0]
        self.assertEqual((earned.public, earned.hidden), (0, 0))

    def test_what_passes_under_the_sanitizer_still_earns_nothing(self):
        cases = [case()]
        with (mock.patch.object(diagnosis, "has_sanitizer", return_value=True),
              mock.patch.object(verdicts, "run_judge",
                                return_value=[case(message="", passed=True)])):
            self.tell(cases)
        self.assertFalse(cases[0].passed)
        self.assertIn("reports nothing", cases[0].message)

    def test_near_the_deadline(self):
        cases = [case()]
        tools = self.tell(cases, left=diagnosis.NEEDS_SECONDS - 1)
        tools.build_again.assert_not_called()
        self.assertIn("the deadline is near", cases[0].message)

    def test_without_a_sanitizer(self):
        cases = [case()]
        with mock.patch.object(diagnosis, "has_sanitizer", return_value=False):
            tools = self.tell(cases)
        tools.build_again.assert_not_called()
        self.assertIn("not installed", cases[0].message)

    def test_whatever_fails_is_a_sentence(self):
        cases = [case()]
        with (mock.patch.object(diagnosis, "has_sanitizer", return_value=True),
              mock.patch.object(verdicts, "run_judge", side_effect=verdicts.JudgeError("no\nx"))):
            self.tell(cases)
        self.assertIn("Not run again under the address sanitizer: no", cases[0].message)

    def test_nothing_crashed(self):
        tools = self.tell([case(message="wrong")])
        tools.compiler.assert_not_called()


class Order(unittest.TestCase):
    def test_all_tasks_are_graded_first(self):
        """A diagnosis takes time, and must not take it from what earns points."""
        course = manifest.load()
        order = []

        def grade_task(grading, task, *_):
            order.append(f"graded {task.number}")
            grading.judged.append((task, Path("judge"), [case()]))

        with tempfile.TemporaryDirectory() as name:
            request = grade.Request(Path(name), Path(name), [course.task(3), course.task(4)],
                                    Path(name))
            grading = grade.Grading(request, course)
            with (mock.patch.object(grade.Grading, "_grade_task", grade_task),
                  mock.patch.object(grade.Grading, "_grade_questions"),
                  mock.patch.object(diagnosis.Diagnosis, "tell", lambda _, task, *__: order.append(
                      f"diagnosed {task.number}"))):
                grading._grade(mock.Mock())  # pylint: disable=protected-access
        self.assertEqual(order, ["graded 3", "graded 4", "diagnosed 3", "diagnosed 4"])
        self.assertTrue(grading.results.complete)


if __name__ == "__main__":
    unittest.main()
