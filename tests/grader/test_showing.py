"""make show-taskN: which program runs, and how its end becomes a sentence and an exit code."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import showing


class Tools:
    """A builder whose program is a shell script."""

    def __init__(self, folder: Path, script: str):
        self.folder, self.script, self.made = folder, script, []

    def make(self, name: str) -> None:
        self.made.append(name)
        self.program(name).write_text(f"#!/bin/sh\n{self.script}\n", encoding="utf-8")
        self.program(name).chmod(0o755)

    def program(self, name: str) -> Path:
        return self.folder / name


class Showing(unittest.TestCase):
    def show(self, script: str, whose: str = "student", reference: bool = False):
        """(exit code, what the tool itself printed, the programs that were built)."""
        task = manifest.load().task(3)
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            if reference:
                (root / "solutions" / task.folder).mkdir(parents=True)
            tools = Tools(root, script)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = showing.show(root, task, whose, tools)
            return code, printed.getvalue(), tools.made

    def test_the_program_says_it_all(self):
        self.assertEqual(self.show("exit 0"), (0, "", ["show_task3"]))
        self.assertEqual(self.show("exit 1"), (1, "", ["show_task3"]))

    def test_the_reference_is_another_program(self):
        self.assertEqual(self.show("exit 0", "solution", True), (0, "", ["show_task3_solution"]))

    def test_a_kit_without_it_says_so(self):
        with self.assertRaisesRegex(manifest.ManifestError, "this kit has no reference of task 3"):
            self.show("exit 0", "solution")

    def test_a_crash_is_a_sentence(self):
        code, printed, _ = self.show("kill -SEGV $$")
        self.assertEqual((code, printed), (1, "Task 3 crashed (SIGSEGV); next: make test-task3\n"))


if __name__ == "__main__":
    unittest.main()
