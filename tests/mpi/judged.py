"""Code whose ranks are processes is judged like code whose ranks are threads: the same verdict, in the
same words.

    judged.py BUILD

BUILD is a build with MPI. Its judges and runners of task 3 are there, and what grade.py needs.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "apps" / "course"))

import builder
import grade
import jail
import manifest
import verdicts

BUILD = Path(sys.argv[1]).resolve()
TASK = manifest.load().task(3)
FOLDER, FILE = TASK.folder, TASK.files[0]
TARGET = "runner_task3_solution"
BEGIN = "  if (state_ != State::sharded) return;\n  for ("  # in start_unshard
# Of an innocent rank, in the table of a failure: whether its wait was known yet is a matter of time.
STATE = re.compile(r"(?m) (waits|computes)$")
CASES = [case.name for case in verdicts.list_cases(BUILD / "bin" / "judge_task3", "[3.2]")
         if not case.hidden]


class Judged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tools = builder.Builder(build=BUILD)
        cls.reference = (ROOT / "solutions" / FOLDER / FILE).read_text(encoding="utf-8")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=BUILD)  # a path that the judge can split at blanks
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def runner(self, inserted: str) -> Path:
        """The reference's, but for what start_unshard does first."""
        self.assertEqual(self.reference.count(BEGIN), 1)
        source = self.folder / FILE
        source.write_text("#include <csignal>\n#include <cstdlib>\n" +
                          self.reference.replace(BEGIN, inserted + BEGIN), encoding="utf-8")
        self.tools.prepare(TARGET)
        return self.tools.runner(TARGET, FOLDER, {FILE: source}, self.folder)

    def judge(self, runner: Path, names: list[str], processes: bool = True) -> list[verdicts.Case]:
        environment = self.tools.environment() if processes else {}
        self.assertEqual(bool(environment), processes)
        return verdicts.run_judge(self.tools.program("judge_task3"), runner,
                                  verdicts.exactly(names),
                                  env={"FSDP_SECONDS": "5", "FSDP_MOST_HANGS": "1", **environment})

    def message(self, inserted: str) -> str:
        """Of the first case, over processes."""
        case, = self.judge(self.runner(inserted), CASES[:1])
        self.assertFalse(case.passed)
        return case.message

    def test_the_reference_passes(self):
        cases = self.judge(self.tools.program(TARGET), CASES)
        self.assertEqual([case.messages for case in cases if not case.passed], [])
        self.assertEqual([case.name for case in cases], CASES)

    def test_a_mistake_is_told_in_the_same_words(self):
        for mistake in ("  if (phase == Phase::forward && group_->rank() == 1) gathers_.clear();\n"
                        "  if (state_ == State::sharded) flats_[0]->full().storage()->allocate();\n",
                        "  if (group_->rank() == 1) group_->barrier({name_, phase}).wait();\n",
                        "  if (group_->rank() == 1) return;\n",
                        "  if (group_->rank() == 1) throw Error(\"not today\");\n"):
            with self.subTest(mistake=mistake):
                runner = self.runner(mistake)
                processes, threads = (self.judge(runner, CASES[:2], each) for each in (True, False))
                self.assertEqual(*([STATE.sub("", case.message) for case in cases]
                                   for cases in (processes, threads)))

    def test_a_step_that_is_not_written(self):
        self.assertIn("TODO 3.1: ", self.message('  todo("3.1", phase);\n'))

    def test_one_rank_that_crashes(self):
        self.assertIn("crashed: Segmentation fault", self.message(
            "  if (group_->rank() == group_->size() - 1) std::raise(SIGSEGV);\n"))

    def test_one_rank_that_is_killed(self):
        self.assertIn("did not end: ", self.message(
            "  if (group_->rank() == group_->size() - 1) std::raise(SIGKILL);\n"))

    def test_one_rank_in_an_endless_loop(self):
        self.assertIn("did not end: it was stopped after 5 s of processor time", self.message(
            "  for (volatile int i = 0; group_->rank() == group_->size() - 1;) i = 1 - i;\n"))

    def test_one_rank_that_ends_its_program(self):
        self.assertIn("ended early, with exit code ", self.message(
            "  if (group_->rank() == group_->size() - 1) std::exit(3);\n"))

    def test_a_submission_is_graded(self):
        submission = self.folder / "submission"
        for task, text in ((TASK, self.reference),):
            (submission / "tasks" / task.folder).mkdir(parents=True)
            (submission / "tasks" / task.folder / FILE).write_text(text, encoding="utf-8")
        request = grade.Request(submission, self.folder / "graded", [TASK], BUILD,
                                cases="[3.2]" + verdicts.PUBLIC)
        grade.prepare(BUILD, [TASK])
        results = grade.Grading(request, manifest.load()).run()
        judged = [entry for entry in results.of_task(TASK) if entry.number.startswith("3.2")]
        self.assertTrue(judged)
        self.assertEqual(results.notes, [])
        for entry in judged:
            self.assertTrue(entry.passed or entry.kind == "hidden", entry.output)
        self.assertEqual(results.isolated, jail.is_root())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
