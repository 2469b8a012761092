"""Tests of contract.py: which sentences it reads, and what it refuses."""

import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import contract
import manifest
import mutant_files

HEADER = """
/// @file
/// Task 3: the forward pass.
#pragma once
/// Waits for the gather. Starts it first,
/// if necessary.
///
///     sharded ----> unsharded      a picture
///   pre-forward   unshard, then notify
/// @throws Error if it is never started.
void f();
int s = 0;  ///< elements, not bytes
// a remark that promises nothing
"""
TODOS = """
// A remark above.
// ------------------------------------------------------------------- TODO 3.1
// Start to gather them.
//
// Keep:  do not wait. The gather writes
//        into full() itself.
// Hint:  look at Work.
void f() {
  // Not a sentence of the contract.
}
"""
HANDOUT = """
# Task 3

The wait must be last. This explains.

## Steps

| step | title must |
|---|---|

**3.1** Start to gather `full()` in
[the order](x.md) of `flats_`. Wait for nothing.

```
never read
```

- One item (of e.g. two). Another.

## After

Each unit is freed. This explains too.
"""


class SentencesTest(unittest.TestCase):
    def test_of_a_header(self):
        self.assertEqual(contract.of_header(HEADER), [
            "Task 3: the forward pass.", "Waits for the gather.",
            "Starts it first, if necessary.", "pre-forward unshard, then notify",
            "@throws Error if it is never started.", "elements, not bytes"])

    def test_of_todos(self):
        self.assertEqual(contract.of_todos(TODOS), [
            "Start to gather them.", "do not wait.", "The gather writes into full() itself."])

    def test_of_a_handout(self):
        self.assertEqual(contract.of_handout(HANDOUT), [
            "The wait must be last.", "Start to gather full() in the order of flats_.",
            "Wait for nothing.", "One item (of e.g. two).", "Another.", "Each unit is freed."])


class TableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.task = manifest.load().task(3)
        self.put(f"tasks/{self.task.folder}/forward.cpp", TODOS)
        self.mutant = mutant_files.Mutant("waits", "waits", self.task, "3.1", ("3.1", "3.2"), "x", {})

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def loaded(self, table: str) -> contract.Contract:
        self.put(str(contract.FOLDER / "task3.toml"), table)
        return contract.load(self.root, self.task, [self.mutant])

    def refuses(self, table: str, part: str) -> None:
        self.assertIn(part, "\n".join(self.loaded(table).problems))

    WHOLE = """["forward.cpp"]
        "do not wait" = ["3.1 waits", "3.2 waits"]
        explains = ["Start to gather", "The gather writes into"]
    """

    def test_counts_what_is_covered(self):
        found = self.loaded(self.WHOLE.replace('"do not wait"', '"do not wait."'))
        self.assertEqual((found.problems, found.demanded(), found.covered(set())), ((), 1, 1))
        self.assertEqual(found.covered({"waits"}), 0)

    def test_refuses_a_sentence_without_a_row(self):
        self.refuses(self.WHOLE.replace('"Start to gather", ', ""), "Start to gather them.\" = \"\"")

    def test_refuses_a_row_whose_sentence_is_gone(self):
        self.refuses(self.WHOLE.replace("Start to", "Begin to"), "was it reworded?")

    def test_refuses_a_variant_that_does_not_exist_or_loses_another_step(self):
        self.refuses(self.WHOLE.replace("3.2 waits", "3.3 waits"), "there is no variant '3.3 waits'")
        self.refuses(self.WHOLE.replace("3.2 waits", "alternative waits"), "there is no variant")

    def test_refuses_two_rows_and_short_quotes(self):
        self.refuses(self.WHOLE.replace("explains = [", 'explains = ["do not wait.", '), "two rows")
        self.refuses(self.WHOLE.replace("Start to gather", "Start to"), "at least 3 words")

    def test_refuses_a_file_that_is_not_there(self):
        self.refuses(self.WHOLE + '["backward.cpp"]\nexplains = []', "is no file of tasks/")


if __name__ == "__main__":
    unittest.main()
