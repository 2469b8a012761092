"""The form of answers.toml, ids, units, feedback and points."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import questions
import question_set
import question_units

ME = "me@school.edu"


class Case(unittest.TestCase):
    """A folder for answers.toml, and short ways to judge one."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "answers.toml"

    def write(self, text: str) -> Path:
        self.file.write_text(text, encoding="utf-8")
        return self.file

    def answers(self, q1: str = "", q2: str = "", student: str = ME) -> Path:
        return self.write(f'id = "{student}"\n[q1]\n{q1}\n[q2]\n{q2}\n')

    def points(self, task: int, submitter: str | list[str] | None = None) -> list[float]:
        return [points for _, points, _, _ in questions.grade(self.file, task, submitter)]

    def sentence(self, task: int, which: int = 0) -> str:
        return questions.grade(self.file, task)[which][3]

    def reference(self, task: int, which: int):
        question = question_set.load(task)[which]
        numbers = question.draw(ME, question_set.course())
        return questions.reference_of(question, numbers)


class Points(Case):

    def test_the_reference_gets_all_of_them(self) -> None:
        for task in range(1, 9):
            for student in (ME, "other@school.edu"):
                self.write(questions.solve(task, student))
                self.assertEqual(questions.check(self.file, task), [])
                self.assertEqual(self.points(task, student), [1, 1])
                self.assertEqual([s for *_, s in questions.grade(self.file, task)], ["right."] * 2)

    def test_they_add_up_to_those_of_the_manifest(self) -> None:
        for task in manifest.load().tasks:
            graded = questions.grade(self.file, task.number)
            self.assertEqual(sum(worth for _, _, worth, _ in graded), task.questions)
            keys = [key for key, *_ in graded]
            self.assertEqual(keys, [f"{task.number}.q1", f"{task.number}.q2"])

    def test_the_file_as_handed_out_is_in_order_and_earns_nothing(self) -> None:
        for task in manifest.load().tasks:
            path = manifest.ROOT / "tasks" / task.folder / "answers.toml"
            text = path.read_text(encoding="utf-8")
            if 'id = ""' not in text:
                continue  # somebody works in it
            self.assertEqual(questions.check(path), [])
            for _, points, _, sentence in questions.grade(path, task.number, ME):
                self.assertEqual((points, sentence), (0, "not answered."))
            for question in question_set.load(task.number):
                self.assertIn(f"[{question.id}]  # {question.title}\n", text)
                self.assertIn(f'unit = "{question.unit}"', text)

    def test_no_file(self) -> None:
        self.assertEqual(self.points(3), [0, 0])
        self.assertIn("not in the submission", self.sentence(3))

    def test_somebody_elses_answers(self) -> None:
        self.write(questions.solve(2, "other@school.edu"))
        self.assertEqual(self.points(2, ME), [0, 0])
        self.assertIn("not who submitted", questions.grade(self.file, 2, ME)[0][3])
        self.assertEqual(self.points(2, "Other@School.edu "), [1, 1])
        self.assertEqual(self.points(2, [ME, "other@school.edu"]), [1, 1])  # a group
        self.assertEqual(self.points(2, []), [0, 0])
        self.write(questions.solve(2, "other@school.edu").replace("other@school.edu", ME))
        self.assertEqual(self.points(2, ME), [0, 0])  # the numbers of another

    def test_answers_without_an_id(self) -> None:
        self.write(questions.solve(2, ME).replace(ME, ""))
        self.assertEqual(self.points(2), [0, 0])
        self.assertIn("id: is empty", self.sentence(2))
        self.assertIn("id: is empty", questions.check(self.file, 2)[0])


class Form(Case):

    def test_unit_alternatives(self) -> None:
        right = self.reference(3, 0).value
        for value, unit, points in (
                (right, "B", 1), (right, "bytes", 1), (f'"{right:_}"', " B ", 1),
                (float(right), "B", 1), (f'"{right / 1000:.3f}"', "KB", 1),
                (f'"{right / 1024:.10f}"', "KiB", 1), (f'"{right / 10**9:.9f}"', "GB", 1),
                (right, "KB", 0), (right + 1, "B", 0)):
            with self.subTest(value=value, unit=unit):
                self.answers(f'value = {value}\nunit = "{unit}"')
                self.assertEqual(questions.check(self.file, 3), [])
                self.assertEqual(self.points(3)[0], points)

    def test_decimals_have_a_tolerance(self) -> None:
        right = float(self.reference(6, 0).value)
        for factor, points in ((1, 1), (1.0009, 1), (0.9991, 1), (1.002, 0), (0.998, 0), (-1, 0)):
            self.answers(f'value = {right * factor}\nunit = "tokens"')
            self.assertEqual(self.points(6)[0], points, factor)

    def test_milliseconds_and_seconds(self) -> None:
        right = self.reference(6, 1).value
        self.answers(q2=f'value = {right / 1000}\nunit = "s"')
        self.assertEqual(self.points(6), [0, 1])

    def test_names(self) -> None:
        right = self.reference(7, 1).value
        for text in (right, right.upper(), f" {right} ", right.replace("block", "block ")):
            self.answers(q2=f'value = "{text}"')
            self.assertEqual(self.points(7), [0, 1], text)
        self.answers(q2='value = "block7"')
        self.assertIn("write one of embed, block0", questions.check(self.file, 7)[0])

    def test_what_is_wrong_is_named(self) -> None:
        for text, *words in (
                ("value = 4\nunit = \"\"", "[q1], unit", "empty", "write one of B, KB"),
                ("value = 4", "[q1], unit", "write one of B"),
                ("value = 4\nunit = \"Mb\"", "[q1], unit", "'Mb'"),
                ("value = 4\nunit = \"tokens\"", "[q1], unit", "'tokens'"),
                ("value = 4\nunit = 3", "[q1], unit"),
                ("value = true\nunit = \"B\"", "[q1], value", "number"),
                ("value = [4]\nunit = \"B\"", "[q1], value", "number"),
                ("value = \"four\"\nunit = \"B\"", "[q1], value", "'four'", "4096"),
                ("value = nan\nunit = \"B\"", "[q1], value", "not a number"),
                ("value = inf\nunit = \"B\"", "[q1], value"),
                ("value = 2024-01-01\nunit = \"B\"", "[q1], value"),
                ("value = 4\nunit = \"B\"\nwork = 4", "[q1], work", "quotes"),
                ("value = 4\nunit = \"B\"\nwork = \"2 * q\"", "[q1], work", "'q'", "are: e, u"),
                ("value = 4\nunit = \"B\"\nwork = \"2 + 3\"", "[q1], work", "gives 5", "says 4"),
                ("value = 4\nunit = \"B\"\nanswer = 4", "[q1]", "'answer' is not a field")):
            with self.subTest(text):
                self.answers(text)
                said = " ".join(questions.check(self.file, 3))
                for word in ("answers.toml", *words):
                    self.assertIn(word, said)
                self.assertEqual(self.points(3), [0, 0])

    def test_a_problem_in_one_answer_costs_only_that_one(self) -> None:
        right = self.reference(3, 1).value
        self.answers('value = "four"\nunit = "B"', f'value = {right}\nunit = "B"')
        self.assertEqual(self.points(3), [0, 1])

    def test_files_that_are_none(self) -> None:
        for text in ("id = ", "q1 = 3", "[q1]\nvalue = 1" + "0" * 5000, "a = " + "[" * 5000,
                     "x" * 50000, "a" + ".a" * 16000 + " = 1", "a = " + "{a = " * 6000, "id = 3",
                     'id = "a\\u0007b"', "[q9]\nvalue = 3", "[[q1]]"):
            with self.subTest(text[:20]):
                self.write(text)
                self.assertNotEqual(questions.check(self.file, 3), [])
                for _, points, _, sentence in questions.grade(self.file, 3, ME):
                    self.assertEqual(points, 0)
                    self.assertTrue(sentence.isprintable() and len(sentence) < 600, sentence)

    def test_links_pipes_folders_and_bytes_are_refused(self) -> None:
        secret = self.file.with_name("secret")
        secret.write_text('id = "secret"', encoding="utf-8")
        for make in (lambda: self.file.symlink_to(secret), lambda: os.mkfifo(self.file),
                     lambda: self.file.write_bytes(b'id = "\xff\xfe"'), lambda: self.file.mkdir()):
            make()
            self.assertEqual(self.points(3, "secret"), [0, 0])
            self.assertIn("cannot be read", self.sentence(3))
            if not self.file.is_dir() or self.file.is_symlink():
                self.file.unlink()


class Feedback(Case):

    def said_to(self, task: int, which: int, value: object, unit: str, work: str = "") -> str:
        shown = f'"{value}"' if isinstance(value, str) else value
        text = f'value = {shown}\nunit = "{unit}"\nwork = "{work}"'
        self.answers(*([text] if which == 0 else ["", text]))
        self.assertEqual(self.points(task), [0, 0])
        return self.sentence(task, which)

    def test_a_known_mistake_is_named(self) -> None:
        named = 0
        for task in range(1, 9):
            for which, question in enumerate(question_set.load(task)):
                if question.kind == "name":
                    continue
                reference = self.reference(task, which)
                for value, cause in reference.mistakes:
                    same = {c for v, c in reference.mistakes
                            if questions._equals(question, Fraction(value), v)}
                    said = self.said_to(task, which, float(value), question.unit)
                    if len(same) == 1:
                        self.assertIn("known mistake", said, cause)
                        named += cause in said
        self.assertGreater(named, 95)

    def test_gb_for_gib(self) -> None:
        right = self.reference(3, 0).value
        said = self.said_to(3, 0, f"{right / 10**6:.6f}", "MiB")
        self.assertIn("the number is right for MB, but the unit says MiB", said)

    def test_a_rounded_number(self) -> None:
        right = self.reference(3, 0).value
        self.assertIn("asked is the exact number, in B", self.said_to(3, 0, right + 8, "B"))

    def test_an_unknown_mistake(self) -> None:
        said = self.said_to(3, 0, 12345, "B")
        self.assertIn("Read common/optim/reshard.h, and keep_until_backward in "
                      "tasks/task3_forward/forward.h again", said)
        self.assertNotIn(str(self.reference(3, 0).value), said)

    def test_work_tells_a_slip_of_the_pen(self) -> None:
        self.assertIn("Your work: it gives 12, but value says 13", self.said_to(
            3, 0, 13, "B", "3 * 4"))

    def test_no_sentence_holds_the_answer(self) -> None:
        for task in range(1, 9):
            for which, question in enumerate(question_set.load(task)):
                reference = self.reference(task, which)
                if question.kind != "integer":
                    continue
                for value, _ in reference.mistakes:
                    said = self.said_to(task, which, float(value), question.unit)
                    self.assertNotIn(f" {reference.value} ", said)


class Drawing(unittest.TestCase):

    def test_numbers_do_not_change_with_time_or_version(self) -> None:
        question = question_set.load(3)[0]
        self.assertEqual(question.draw(ME, "unshard"),
                         {"e": 49813, "u": 23399, "h": 66859, "L": 4, "W": 8})

    def test_they_depend_on_id_and_course(self) -> None:
        question = question_set.load(3)[0]
        draws = {str(question.draw(f"s{i}@school.edu", course))
                 for i in range(100) for course in ("spring", "autumn")}
        self.assertGreater(len(draws), 195)

    def test_every_number_that_can_be_drawn_is(self) -> None:
        for task in range(1, 9):
            for question in question_set.load(task):
                drawn = [question.draw(f"s{i}", "unshard") for i in range(400)]
                for name, values in question.choices.items():
                    seen = {draw[name] for draw in drawn}
                    self.assertLessEqual(seen, set(values))
                    self.assertGreaterEqual(len(seen), min(len(values), 10))

    def test_every_number_is_in_the_text_and_every_file_named_exists(self) -> None:
        for task in range(1, 9):
            for question in question_set.load(task):
                for name in question.choices:
                    self.assertRegex(question.text, r"\{" + name + r"[:}]", question.key)
                files = [word.strip(",()") for word in (question.read + " " + question.text).split()
                         if "/" in word and word.strip(",()").endswith(".h")]
                for file in files:
                    self.assertTrue((manifest.ROOT / file).is_file(), file)
                self.assertGreaterEqual(len(files), 1)

    def test_no_unit_means_two_things(self) -> None:
        self.assertEqual(question_units.canonical("bytes", "gib"), "GiB")
        for text in ("b", "Mb", "GiB/s", "", "tokens"):
            self.assertIsNone(question_units.canonical("bytes", text), text)


class CommandLine(Case):

    def run_main(self, *arguments: str) -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = questions.main(list(arguments))
        return code, said.getvalue()

    def test_show(self) -> None:
        code, said = self.run_main("show", "--task", "3", "--id", ME)
        self.assertEqual(code, 0)
        self.assertIn("e = 49,813 elements", said)
        self.assertIn("W = 8", said)

    def test_solve_check_and_grade(self) -> None:
        file = str(self.file)
        self.assertEqual(self.run_main("solve", "--task", "4", "--id", ME, "--output", file)[0], 0)
        code, said = self.run_main("check", file, "--task", "4")
        self.assertEqual(code, 0, said)
        self.assertIn("form is in order; answers", said)
        blank = re.sub(r"(?m)^value = .*$", 'value = ""', self.file.read_text(encoding="utf-8"), count=1)
        self.file.write_text(blank, encoding="utf-8")
        said = self.run_main("check", file, "--task", "4")[1]
        self.assertIn("in order, with 1 question not answered", said)
        self.assertEqual(self.run_main("solve", "--task", "4", "--id", ME, "--output", file)[0], 0)
        self.assertIn("4.q2  1/1  right.", self.run_main("grade", file, "--task", "4")[1])
        said = self.run_main("grade", file, "--task", "4", "--submitter", "x")[1]
        self.assertIn("4.q2  0/1", said)

    def test_what_it_says_when_it_cannot(self) -> None:
        self.write("id = ")
        code, said = self.run_main("check", str(self.file), "--task", "4")
        self.assertEqual(code, 1)
        self.assertIn("Compare it with the file as it was handed out", said)
        code, said = self.run_main("check", str(self.file))
        self.assertEqual(code, 2)
        self.assertIn("say which with --task N", said)


if __name__ == "__main__":
    unittest.main()
