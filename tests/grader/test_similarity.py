"""Tests of what similarity.py exports, on submissions whose likeness is known."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import reference_submission
import similar_submissions
import similarity

COURSE = manifest.load()


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        root, task = Path(folder.name), COURSE.task(2)
        for name, texts in similar_submissions.submissions(task).items():
            reference_submission.write(root / "in" / name, {
                f"tasks/{task.folder}/{file}": text.encode() for file, text in texts.items()})
        reference_submission.write(root / "in" / "nothing",
                                   reference_submission.files(COURSE, skeleton=True))
        (root / "in" / "no_archive.zip").write_text("nothing that can be unpacked")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            cls.count = similarity.export(root / "in", root / "out", [task])
        cls.said = said.getvalue()
        cls.texts = {path.stem: path.read_text(encoding="utf-8")
                     for path in (root / "out/task2").iterdir()}

    def lines(self, name: str) -> set[str]:
        return {line.strip() for line in self.texts[name].splitlines()} - {""}

    def test_every_submission_and_the_skeleton_are_exported(self) -> None:
        self.assertEqual(self.count, len(self.texts) - 1)
        self.assertIn('todo("2.1"', self.texts["_handed_out"])
        self.assertIn("no_archive", self.said)

    def test_nothing_that_was_handed_out_is_left(self) -> None:
        self.assertEqual(self.lines("nothing"), set())
        for name, text in self.texts.items():
            if name != "_handed_out":
                self.assertEqual(self.lines(name) & self.lines("_handed_out"), set(), name)
                self.assertNotIn("SOLUTION", text)

    def test_who_shares_no_work_shares_no_line(self) -> None:
        alone = [f"step-{step.id}" for step in COURSE.task(2).steps]
        for one, other in zip(alone, alone[1:]):
            self.assertTrue(self.lines(one), one)
            self.assertEqual(self.lines(one) & self.lines(other), set(), f"{one}, {other}")

    def test_a_copy_keeps_nearly_every_line_and_a_renamed_one_fewer(self) -> None:
        whole = set().union(*(self.lines(f"step-{step.id}") for step in COURSE.task(2).steps))
        names = [name.removeprefix("renamed-") for name in self.texts if name.startswith("renamed-")]
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertGreater(len(self.lines(f"copied-{name}") & whole), 0.7 * len(whole), name)
            self.assertLess(len(self.lines(f"renamed-{name}") & whole), 0.7 * len(whole), name)


if __name__ == "__main__":
    unittest.main()
