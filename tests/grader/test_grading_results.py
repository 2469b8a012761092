"""Tests of what comes out of grading: results.json, the page, the table of all."""

import csv
import json
import os
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import grade
import grade_all
import gradescope_results
import hints
import html_summary
import manifest
import unpack
import verdicts
from gradescope_results import Results

COURSE = manifest.load()
TASK = COURSE.task(3)


def case(name, steps, hidden=False, passed=True, message="", executed=True):
    return verdicts.Case(name, tuple(steps), hidden, passed, executed, [message] if message else [])


def all_cases(broken=()):
    """One public and one hidden case a step; those of `broken` fail."""
    return [case(f"{step.id} {'hidden' if hidden else 'public'}", [step.id], hidden,
                 step.id not in broken, "" if step.id not in broken else f"wrong in {step.id}")
            for step in TASK.steps for hidden in (False, True)]


class ResultsFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name) / "results.json"

    def read(self):
        return json.loads(self.path.read_text(encoding="utf-8"))

    def results(self, tasks=(TASK,), **options):
        return Results(self.path, list(tasks), **options)

    def test_it_is_complete_from_the_first_moment(self):
        self.results(COURSE.tasks)
        document = self.read()
        self.assertEqual(document["score"], 0)
        required = [test for test in document["tests"] if "extra" not in test["tags"]]
        self.assertEqual(sum(test["max_score"] for test in required), manifest.TOTAL)
        self.assertEqual({test["output"] for test in document["tests"]}, {"not run"})
        self.assertIn("has not ended", document["output"])

    def test_extra_credit_stands_on_top(self):
        extra = COURSE.optional[0]
        results = self.results((TASK, extra))
        for entry in results.entries:
            entry.score = entry.most
        results.complete = True
        results.write()
        document = self.read()
        self.assertEqual(results.most, TASK.points)
        self.assertEqual(results.extra, (extra.points, extra.points))
        self.assertTrue(results.is_full())
        self.assertEqual(document["score"], TASK.points + extra.points)
        self.assertIn(f"{TASK.points} of {TASK.points} points, and {extra.points} of {extra.points} "
                      "for extra credit\n", document["output"])
        for test in document["tests"]:
            is_extra = test["number"].startswith(f"{extra.number}.")
            self.assertEqual("extra" in test["tags"], is_extra)
            self.assertEqual(test["name"].endswith("(extra credit)"), is_extra)
        page = html_summary.page(document, "a student")
        self.assertIn(f"{TASK.points} of {TASK.points}, extra credit {extra.points}</h1>", page)
        numbers = grade_all.columns([TASK, extra])
        row = grade_all.row_of("a student", results.to_json(), numbers)
        self.assertEqual((row["score"], row["of"], row["extra"]),
                         (f"{TASK.points + extra.points}", f"{TASK.points}", f"{extra.points}"))

    def test_without_extra_credit_nothing_is_lost(self):
        extra = COURSE.optional[0]
        results = self.results((TASK, extra))
        for entry in results.of_task(TASK):
            entry.score, entry.passed = entry.most, True
        results.refuse_task(extra, "not in the submission")
        results.complete = True
        results.write()
        self.assertEqual(self.read()["score"], TASK.points)
        self.assertIn(f"{TASK.points} of {TASK.points} points, and 0 of {extra.points} for extra",
                      self.read()["output"])
        self.assertEqual(grade_all.row_of("a student", results.to_json(), [])["first message"], "")

    def test_a_task_for_extra_credit_alone_has_its_points(self):
        extra = COURSE.optional[0]
        results = self.results((extra,))
        self.assertEqual((results.most, results.extra), (extra.points, (0, 0)))
        self.assertFalse(any("extra" in test["tags"] for test in self.read()["tests"]))

    def test_an_exception_and_an_unwritten_step_are_told_as_in_the_students_loop(self):
        cases = all_cases(("3.3", "3.4", "3.5"))
        messages = {"3.3 public": "TODO 3.3: reshard (x.cpp:1, w)",
                    "3.4 public": f"unit W=2\n  likely:   {hints.THROWN}"}
        for each in cases:
            each.messages = [messages[each.name]] if each.name in messages else each.messages
        self.results().set_cases(TASK, cases)
        output = {test["name"].split()[0]: test["output"] for test in self.read()["tests"]
                  if "public" in test["tags"]}
        self.assertIn("waits for 3.3 (not written yet)", output["3.4"])
        self.assertIn("likely:   3.4 relies on 3.3, which does not work yet", output["3.4"])

    def test_the_schema(self):
        self.results().set_cases(TASK, all_cases())
        document = self.read()
        self.assertLessEqual({"score", "execution_time", "output", "tests", "visibility"},
                             set(document))
        for test in document["tests"]:
            self.assertLessEqual({"score", "max_score", "name", "number", "output", "status",
                                  "visibility", "tags"}, set(test))
            self.assertIn(test["status"], ("passed", "failed"))
            self.assertIn(test["visibility"], gradescope_results.SCHEMA_VISIBILITY)
            hidden = "hidden" in test["tags"]
            self.assertEqual(test["visibility"], "after_published" if hidden else "visible")

    def test_points_follow_the_steps(self):
        results = self.results()
        results.set_cases(TASK, all_cases())
        self.assertEqual(results.score, TASK.public + TASK.hidden)
        results.set_cases(TASK, all_cases(broken=["3.4"]))
        self.assertEqual(results.score, TASK.public + TASK.hidden - TASK.step("3.4").points)
        self.assertIn("wrong in 3.4", self.read()["tests"][5]["output"])

    def test_while_cases_are_missing_a_step_has_no_points(self):
        cases = all_cases()
        cases[0].executed = cases[0].passed = False
        results = self.results()
        results.set_cases(TASK, cases)
        self.assertEqual(self.read()["tests"][0]["output"], "not run")
        self.assertEqual(results.entries[0].score, 0)

    def test_a_hidden_case_says_nothing_of_what_was_printed(self):
        cases = [case("public", ["3.1"]),
                 case("secret sizes", ["3.1"], True, False, "width=1234 It printed: 1234")]
        results = self.results()
        results.set_cases(TASK, cases)
        text = self.path.read_text(encoding="utf-8")
        self.assertNotIn("1234", text)
        self.assertIn('"secret sizes" width=1234', grade.told(results))  # whoever grades sees it
        self.assertNotIn("secret", text)
        self.assertIn("1 of 1 hidden cases failed", text)

    def test_a_refused_task(self):
        results = self.results()
        results.refuse_task(TASK, "does not compile:\nx.cpp:1: error")
        tests = self.read()["tests"]
        self.assertIn("x.cpp:1", tests[0]["output"])
        self.assertEqual(tests[1]["output"], "see 3.1: does not compile")
        self.assertEqual(results.score, 0)

    def test_time(self):
        results = self.results()
        results.stop("time")
        self.assertEqual({test["output"] for test in self.read()["tests"]}, {"not run: time"})

    def test_questions(self):
        results = self.results()
        results.set_questions([("3.q1", 1, 1, "right."), ("3.q2", 0, 1, "wrong.")])
        by_number = {test["number"]: test for test in self.read()["tests"]}
        self.assertEqual(by_number["3.q1"]["status"], "passed")
        self.assertEqual(by_number["3.q2"]["output"], "wrong.")

    def test_isolation_is_told(self):
        self.results(isolated=False).write()
        self.assertIn("not isolated: advisory score", self.read()["output"])

    def test_text_is_cleaned(self):
        self.assertEqual(gradescope_results.clean("\x1b[31mred\x1b[0m\x00\x07"), "red??")
        self.assertLess(len(gradescope_results.clean("x" * 100000)), 7000)

    def test_the_page(self):
        results = self.results(isolated=False)
        results.set_cases(TASK, [case("<script>alert(1)</script>", ["3.1"], False, False,
                                      "<b>observed</b>")])
        page = html_summary.page(results.to_json(), "ada & <co>")
        self.assertNotIn("<script>", page)
        self.assertNotIn("<b>observed", page)
        self.assertIn("ada &amp; &lt;co&gt;", page)
        self.assertIn("advisory", page)
        self.assertNotIn("http", page)


class Tables(unittest.TestCase):
    def test_a_row_and_its_columns(self):
        with tempfile.TemporaryDirectory() as name:
            results = Results(Path(name) / "results.json", [TASK])
            results.set_cases(TASK, all_cases(broken=["3.2"]))
            numbers = grade_all.columns([TASK])
            self.assertEqual(numbers, ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.q1", "3.q2"])
            row = grade_all.row_of("=ada", results.to_json(), numbers)
            self.assertEqual(row["3.1"], str(TASK.step("3.1").points))
            self.assertEqual(row["3.2"], "0")
            self.assertIn("wrong in 3.2", row["first message"])
            path = Path(name) / "grades.csv"
            grade_all.write_csv(path, [row], list(row))
            with path.open(newline="", encoding="utf-8") as file:
                self.assertEqual(next(csv.DictReader(file))["submission"], "'=ada")

    def test_what_is_a_submission(self):
        with tempfile.TemporaryDirectory() as name:
            for each in ("ada.zip", "bob.tar.gz", "notes.txt", ".hidden.zip"):
                (Path(name) / each).touch()
            (Path(name) / "ada").mkdir()
            found = [each for each, _ in grade_all.submissions(Path(name))]
            self.assertEqual(sorted(found), ["ada", "ada+", "bob"])

    def test_a_name_that_is_no_utf_8_can_be_written_and_printed(self):
        with tempfile.TemporaryDirectory() as name:
            os.mkdir(os.path.join(os.fsencode(name), b"m\xfcller"))
            [(found, path)] = grade_all.submissions(Path(name))
            self.assertEqual(found, r"m\xfcller")
            self.assertTrue(path.is_dir())
            results = Results(Path(name) / "results.json", [TASK])
            row = grade_all.row_of(found, results.to_json(), [])
            grade_all.write_csv(Path(name) / "grades.csv", [row], list(row))
            html_summary.write(results.to_json(), Path(name) / "summary.html", unpack.name_of(path))


if __name__ == "__main__":
    unittest.main()
