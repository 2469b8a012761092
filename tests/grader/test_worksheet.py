"""Tests of worksheet.py, and of the writeup's worksheet itself."""

import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import worksheet

SHEET = """
[values]
N = 10
[[question]]
id = "W1"
question = "How much is N halved?"
expression = "N / 2"
unit = "bytes"
answer = 5
line = "| W1 |"
"""
CHAPTER = "**W1** How much is N\nhalved?\n\n| W1 | 5 bytes | by hand |\n"


class WorksheetTest(unittest.TestCase):
    def wrong(self, sheet: str = SHEET, chapter: str = CHAPTER) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / "sheet.toml", Path(folder) / "chapter.md"]
            for path, text in zip(paths, (sheet, chapter)):
                path.write_text(text, encoding="utf-8")
            return worksheet.check(*paths)[1]

    def test_the_worksheet_of_the_writeup(self):
        count, wrong = worksheet.check(worksheet.ROOT / "writeup" / "worksheet.toml",
                                       worksheet.ROOT / "writeup" / "worksheet.md")
        self.assertEqual(wrong, [])
        self.assertGreaterEqual(count, 10)

    def test_a_right_sheet(self):
        self.assertEqual(self.wrong(), [])

    def test_a_wrong_answer(self):
        self.assertIn("the expression gives 5", self.wrong(SHEET.replace("= 5", "= 6"))[0])

    def test_another_number_in_the_chapter(self):
        self.assertIn("'5 bytes'", self.wrong(chapter=CHAPTER.replace("5 bytes", "15 bytes"))[0])

    def test_other_words_in_the_chapter(self):
        self.assertIn("the chapter asks", self.wrong(chapter=CHAPTER.replace("much", "many"))[0])

    def test_a_question_that_is_only_in_the_chapter(self):
        self.assertIn("W2 is asked", self.wrong(chapter=CHAPTER + "\n**W2** And N?\n")[0])

    def test_a_field_is_missing(self):
        self.assertIn("lacks unit", self.wrong(SHEET.replace('unit = "bytes"', ""))[0])

    def test_an_expression_is_exact_and_over_the_values(self):
        sheet = SHEET.replace("N / 2", "ceil(N / 3) * max(1, 2) - 3")
        self.assertEqual(self.wrong(sheet), [])
        for bad in ("__import__('os')", "M / 2", "1 /", "N / 0"):
            with self.subTest(bad):
                wrong = self.wrong(SHEET.replace("N / 2", bad))
                self.assertIn(f"sheet.toml, W1: expression {bad!r}: ", wrong[0])


if __name__ == "__main__":
    unittest.main()
