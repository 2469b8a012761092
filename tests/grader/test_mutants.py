"""Tests of mutant_files.py, mutants.py and builder.py, without a build."""

import json
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import builder
import manifest
import mutant_files
import mutants
import verdicts

GOOD = """
[no_wait]
title = "does not wait"
loses = ["3.2", "3.4"]
message = 'observed: NaN'
[[no_wait.edit]]
find = 'gather.wait();'
replace = ''
"""
RIGHT = """
title = "waits backwards"
task = 3
[[edit]]
region = "3.2"
whole = '  wait();'
"""


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.course = manifest.load()

    def put(self, name: str, text: str) -> Path:
        path = self.root / mutant_files.FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def refuses(self, text: str, part: str) -> None:
        with self.assertRaisesRegex(mutant_files.MutantError, part):
            mutant_files.load_step(self.put("3.2.toml", text), self.course)

    def test_reads_mutants_and_alternatives(self):
        self.put("3.2.toml", GOOD)
        self.put("alternatives/backwards.toml", RIGHT)
        found = mutant_files.load_all(self.root, self.course)
        self.assertEqual([(each.name, each.is_alternative) for each in found],
                         [("no_wait", False), ("backwards", True)])
        self.assertEqual(list(found[0].edits), ["forward.cpp"])
        self.assertEqual(mutant_files.load_all(self.root, self.course, 4), [])

    def test_edits_are_made_on_the_solution(self):
        self.put("3.2.toml", GOOD)
        solution = self.root / "solutions/task3_forward/forward.cpp"
        solution.parent.mkdir(parents=True)
        text = "// - TODO 3.2\n// SOLUTION 3.2: todo()\ngather.wait();\n// END SOLUTION\n"
        solution.write_text(text)
        mutant, = mutant_files.load_all(self.root, self.course)
        self.assertEqual(mutant.sources(self.root),
                         {"forward.cpp": text.replace("gather.wait();\n", "")})

    def test_refuses_what_cannot_be(self):
        self.refuses(GOOD.replace("message", "massage"),
                     "3.2.toml: no_wait: unknown field 'massage'")
        self.refuses(GOOD.replace("title", "why"), "'title' is missing")
        self.refuses(GOOD.replace('"3.2"', '"3.1"'), "must be one of loses")
        self.refuses(GOOD.replace('"3.4"', '"4.4"'), "4.4 is no step of task 3")
        self.refuses(GOOD.replace("'observed: NaN'", "'('"), "no regular expression")
        self.refuses(GOOD.replace("replace = ''", ""), "find and replace, or whole")
        with self.assertRaisesRegex(mutant_files.MutantError, "unknown field 'loses'"):
            mutant_files.load_alternative(
                self.put("alternatives/x.toml", 'loses = ["3.2"]\n' + RIGHT), self.course)
        with self.assertRaisesRegex(mutant_files.MutantError, "needs file, one of"):
            mutant_files.load_step(self.put("7.2.toml", GOOD.replace("3.2", "7.2").replace(
                "3.4", "7.4")), self.course)

    def test_a_file_that_no_step_is_called_after_is_refused(self):
        self.put("3.9.toml", GOOD)
        with self.assertRaisesRegex(mutant_files.MutantError, "3.9.toml: .*named after a step"):
            mutant_files.load_all(self.root, self.course)

    def test_the_repositorys_own_fit_the_solutions(self):
        if not (manifest.ROOT / "solutions").is_dir():
            self.skipTest("a student kit: no solutions")
        for mutant in mutant_files.load_all(manifest.ROOT, self.course):
            with self.subTest(mutant.name):
                self.assertTrue(mutant.sources(manifest.ROOT))


class CheckTest(unittest.TestCase):
    """A mutant of 3.2, judged by one public and one hidden case a step."""

    def outcome(self, name: str = "a", says: str = "observed: NaN", lost: str = "3.2 3.4",
                hidden_only: bool = False, **fields) -> mutants.Outcome:
        task = manifest.load().task(3)
        values = {"loses": ("3.2",), "message": "observed: NaN", **fields}
        mutant = mutant_files.Mutant(name, "t", task, "3.2", edits={}, **values)
        cases = []
        for step in task.steps:
            for hidden in (False, True):
                bad = step.id in lost.split() and (hidden or not hidden_only)
                cases.append(verdicts.Case(f"{step.id}{hidden}", (step.id,), hidden, not bad, True,
                                           [says] if bad else []))
        variant = mutants.Variant(name, task, {}, "", mutants.check_mutant, mutant=mutant)
        return mutants.Outcome(variant, verdicts.judge_steps(task, cases))

    def problem(self, **fields) -> str:
        return "; ".join(mutants.check_mutant(self.outcome(**fields)))

    def test_losses_follow_from_the_roots(self):
        self.assertEqual(self.problem(), "")
        self.assertEqual(self.problem(lost="3.2 3.3 3.4 3.5"), "")
        self.assertEqual(self.problem(lost="3.4"), "passes 3.2")
        self.assertEqual(self.problem(lost=""), "passes 3.2")
        self.assertEqual(self.problem(lost="3.1 3.2"), "loses 3.1 too")

    def test_the_message_is_the_one_a_student_reads(self):
        self.assertIn("says something else:\nobserved: 3", self.problem(says="observed: 3"))
        self.assertIn("only hidden cases of 3.2 notice it", self.problem(hidden_only=True))

    def test_a_crash_counts_only_if_declared(self):
        says = "start W=2: the run crashed: Segmentation fault"
        self.assertIn("does not declare", self.problem(says=says, message="crashed"))
        self.assertEqual(self.problem(says=says, message="crashed", dies=True), "")

    def test_patterns_do_not_match_what_another_mutant_reads(self):
        one, two = self.outcome("one"), self.outcome("two", says="observed: NaN, likely: x",
                                                     message="likely: x")
        mutants.confused([one, two])
        self.assertIn("also matches what two reads", "".join(one.problems))
        self.assertEqual(two.problems, [])
        twin = self.outcome("three", like=("two",))
        mutants.confused([twin, two])
        self.assertEqual(twin.problems, [])

    def test_full_marks_and_ladders(self):
        self.assertEqual(mutants.check_full(self.outcome(lost="")), [])
        self.assertIn("10 of 13 points, loses 3.3", mutants.check_full(self.outcome(lost="3.3"))[0])
        up_to_2 = mutants.check_solved_up_to(2)
        self.assertEqual(up_to_2(self.outcome(lost="3.3 3.4 3.5 3.6")), [])
        self.assertIn("3.4 has 2 of 2 points", up_to_2(self.outcome(lost="3.3 3.5 3.6"))[0])
        self.assertIn("3.2 has 0 of 2", up_to_2(self.outcome(lost="3.2 3.3 3.4 3.5 3.6"))[0])


class BuilderTest(unittest.TestCase):
    LINK = ["c++", "-g", "runner.cpp.o", "dir/__/__/solutions/task3_forward/forward.cpp.o", "-o",
            "bin/runner_task3_solution", "tasks/libfsdp_task2.a", "tasks/libfsdp_task1.a", "-lz"]

    def test_objects_are_exchanged_on_the_link_line(self):
        words = builder.relink(self.LINK, {("task3_forward", "forward.cpp"): Path("/m.o")},
                               Path("/out"))
        self.assertEqual(words, ["c++", "-g", "runner.cpp.o", "/m.o", "-o", "/out",
                                 "tasks/libfsdp_task2.a", "tasks/libfsdp_task1.a", "-lz"])

    def test_a_replaced_archive_leaves_the_line(self):
        words = builder.relink(self.LINK, {("task1_meta_device", "meta_device.cpp"): Path("/1.o")},
                               Path("/out"))
        self.assertIn("/1.o", words)
        self.assertNotIn("tasks/libfsdp_task1.a", words)
        self.assertIn("tasks/libfsdp_task2.a", words)

    def test_a_task_that_is_not_on_the_line_is_refused(self):
        with self.assertRaisesRegex(builder.BuildError, "libfsdp_task5.a"):
            builder.relink(self.LINK, {("task5_x", "x.cpp"): Path("/5.o")}, Path("/out"))

    def test_flags_are_read_without_source_and_output(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "compile_commands.json"
            path.write_text(json.dumps([
                {"file": "/r/common/a.cpp", "command": "c++ -c /r/common/a.cpp -o a.o"},
                {"file": "/r/solutions/task1_a/a.cpp",
                 "command": "c++ -O1 -o d/a.cpp.o -c /r/solutions/task1_a/a.cpp"}]))
            self.assertEqual(builder.read_flags(path), {("task1_a", "a.cpp"): ["c++", "-O1"]})


class IsolationTest(unittest.TestCase):
    def test_a_skeleton_costs_its_own_points_and_no_others(self):
        course = manifest.load()
        scores = {(task.number, "skeleton"): 0 for task in course.tasks}
        scores |= {(task.number, "reference"): task.public + task.hidden for task in course.tasks}
        full = sum(task.public + task.hidden for task in course.tasks)
        right = full - course.task(3).public - course.task(3).hidden
        lines = mutants.isolation_matrix(course, scores)
        self.assertEqual(lines[2], f"reference but for task 3, a skeleton: {right}/{full}  ok")
        self.assertFalse([line for line in lines if "MISS" in line])
        scores[3, "skeleton"] = 2  # points for nothing
        self.assertIn(f"{right + 2}/{full}  MISS: should be {right}", mutants.isolation_matrix(course, scores)[2])


class SinceTest(unittest.TestCase):
    def test_a_task_is_touched_by_its_own_files_and_by_what_all_share(self):
        task = manifest.load().task(3)
        for file in ("tasks/task3_forward/forward.h", "solutions/task3_forward/forward.cpp",
                     "tests/task3/scenarios.cpp", "tests/mutants/3.2.toml", "tests/graded/run.cpp"):
            self.assertTrue(mutants.is_touched(task, [file]), file)
        for file in ("tasks/task2_flat_parameter/flat_parameter.h", "tests/mutants/2.3.toml",
                     "writeup/3_forward.md", "tests/mutants/contract/task3.toml"):
            self.assertFalse(mutants.is_touched(task, [file]), file)

    def test_three_commits_try_each_mutant_of_an_untouched_task_once(self):
        names = [f"mutant {i}" for i in range(11)]
        thirds = [mutants.third_of(names, turn) for turn in (700, 701, 702)]
        self.assertEqual(sorted(sum(thirds, [])), sorted(names))
        self.assertEqual(mutants.third_of(names, 703), thirds[0])
        self.assertGreaterEqual(mutants.turn_of_this_commit(), 0)

    def test_without_the_commit_every_task_is_touched(self):
        self.assertIsNone(mutants.changed_since("0" * 40))
        self.assertTrue(mutants.is_touched(manifest.load().task(3), None))

    def test_the_commit_that_ci_starts_from_can_be_a_commit(self):
        commit = (mutants.ROOT / "tests" / "grader" / "checked_at").read_text("utf-8")
        self.assertRegex(commit, r"^[0-9a-f]{40}\n$")


if __name__ == "__main__":
    unittest.main()
