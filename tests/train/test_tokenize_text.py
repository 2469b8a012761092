"""apps/train/tokenize_text.py: the files that it writes, as unshard-train reads them.

FSDP_TRAIN_PROGRAM is unshard-train.
"""

import contextlib
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "apps" / "train"))
import tokenize_text  # noqa: E402

SCRIPT = Path(tokenize_text.__file__)


def fake(vocabulary: int) -> tokenize_text.Tokenizer:
    """Characters from the end of the vocabulary; its last token ends a document."""
    return tokenize_text.Tokenizer(lambda text: [vocabulary - 2 - ord(each) for each in text],
                                   vocabulary, vocabulary - 1)


class TokenFiles(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.output = self.folder / "tokens.bin"

    def put(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_bytes(text.encode("utf-8"))
        return path

    def read(self) -> tuple[tuple[int, int, int], tuple[int, ...]]:
        """The header and the tokens, by the layout alone."""
        raw = self.output.read_bytes()
        header = struct.unpack("<3i", raw[:12])
        letter = {20240520: "H", 20240801: "I"}[header[0]]
        return header, tuple(each for each, in struct.iter_unpack(f"<{letter}", raw[1024:]))

    def run_main(self, *words: object) -> tuple[int, str]:
        """The exit code, and all that was printed."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = tokenize_text.main([str(each) for each in words])
        return code, said.getvalue()


class WithoutPackage(TokenFiles):
    def write(self, vocabulary: int, *texts: str) -> int:
        documents = [self.put(f"{i}.txt", text) for i, text in enumerate(texts)]
        return tokenize_text.write_tokens(self.output, fake(vocabulary), documents)

    def test_the_width_is_that_of_the_vocabulary(self):
        for vocabulary, header in ((65536, (20240520, 1, 5)), (65537, (20240801, 7, 5))):
            with self.subTest(vocabulary=vocabulary):
                self.assertEqual(self.write(vocabulary, "ab", "c"), 5)
                end = vocabulary - 1
                self.assertEqual(self.read(), (header, (
                    end - 1 - 97, end - 1 - 98, end, end - 1 - 99, end)))
                self.assertEqual(list(self.folder.glob("*.tmp")), [])

    def test_documents_are_kept_byte_by_byte(self):
        self.write(300, "a\r\nb\n", "", "\xe4")
        self.assertEqual([298 - each for each in self.read()[1]],
                         [97, 13, 10, 98, 10, -1, -1, 0xe4, -1])

    def test_unshard_train_reads_both_widths(self):
        for vocabulary in (300, 70000):
            with self.subTest(vocabulary=vocabulary):
                count = self.write(vocabulary, "the cat sat on the mat. " * 4)
                words = [os.environ["FSDP_TRAIN_PROGRAM"], "--model.preset=nano",
                         "--training.steps=1", "--training.local_batch_size=1",
                         f"--data.path={self.output}", "--data.format=tokens"]
                done = subprocess.run([*words, f"--model.vocab_size={vocabulary}"],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"{self.output} ({count} tokens)", done.stdout)
                done = subprocess.run([*words, f"--model.vocab_size={vocabulary - 1}"],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"token {vocabulary - 1} at position {count - 1} is outside",
                              done.stderr)

    def test_only_its_own_files_are_replaced(self):
        self.write(300, "a")
        self.write(300, "b")  # its own
        self.output.write_bytes(b"")
        self.write(300, "b")  # an empty one
        before = self.output.read_bytes()
        for name in ("tokens.bin", "tokens.bin.tmp"):
            other = self.put(name, "a thesis")
            with self.assertRaisesRegex(tokenize_text.InputError, f"{name}: exists, and this "
                                        "script did not write it; give another name"):
                self.write(300, "c")
            self.assertEqual(other.read_text(), "a thesis")
            self.output.write_bytes(before)
        # llm.c's own files have no mark.
        self.output.write_bytes(before[:1000] + bytes(24) + before[1024:])
        with self.assertRaises(tokenize_text.InputError):
            self.write(300, "c")

    def test_what_fails_leaves_the_file_as_it_was(self):
        self.write(300, "a")
        before = self.output.read_bytes()
        good, bad = self.put("good.txt", "b"), self.folder / "bad.txt"
        bad.write_bytes(b"ab\xff")
        for path, part in ((bad, "bad.txt: is not UTF-8 at byte 2; convert it"),
                           (self.folder / "none.txt", "none.txt: No such file or directory; give"),
                           (self.folder, "Is a directory; give a text file")):
            with self.assertRaisesRegex(tokenize_text.InputError, part):
                tokenize_text.write_tokens(self.output, fake(300), [good, path])
            self.assertEqual(self.output.read_bytes(), before)
        self.assertEqual(list(self.folder.glob("*.tmp")), [])
        with mock.patch.object(tokenize_text, "MOST_TOKENS", 3), \
                self.assertRaisesRegex(tokenize_text.InputError, "more than 3 tokens"):
            self.write(300, "abc")
        for place in (self.folder, self.folder / "none" / "tokens.bin", Path("."), Path("/")):
            with self.assertRaisesRegex(tokenize_text.InputError, "--output: "):
                tokenize_text.write_tokens(place, fake(300), [good])

    def test_a_missing_package_is_named_with_the_remedy(self):
        text = self.put("text.txt", "a")
        for package, name in (("tokenizers", "tokenizer.json"),
                              ("transformers", "tokenizer.model")):
            folder = self.folder / package
            folder.mkdir()
            (folder / name).write_text("{}")
            with mock.patch.dict(sys.modules, {package: None}):
                code, said = self.run_main("--tokenizer", folder, "--output", self.output, text)
            self.assertEqual(code, 2)
            self.assertIn(f"the Python package {package} is not installed", said)
            self.assertIn(f"-m pip install {package}", said)
        code, said = self.run_main("--tokenizer", self.folder / "no", "--output", self.output, text)
        self.assertEqual(code, 2)
        self.assertIn("no: no such file or folder", said)
        self.assertFalse(self.output.exists())

    def test_the_end_of_text_is_the_one_that_is_named(self):
        vocabulary = {"a": 0, "</s>": 1, "<|endoftext|>": 2, "end": 3}
        where = Path("tokenizer.json")
        choose = tokenize_text.choose_end
        self.assertEqual(choose(vocabulary, "end", "</s>", where), 3)
        self.assertEqual(choose(vocabulary, None, "</s>", where), 1)
        self.assertEqual(choose(vocabulary, None, None, where), 2)
        for wanted, part in (("no", "has no token 'no'"), (None, "does not name its end-of-text")):
            with self.assertRaisesRegex(tokenize_text.InputError, part):
                choose({"a": 0}, wanted, None, where)
        config = self.folder / "tokenizer_config.json"
        self.assertIsNone(tokenize_text.end_of(config))
        for named in ("</s>", {"content": "</s>", "special": True}):
            config.write_text(json.dumps({"eos_token": named}))
            self.assertEqual(tokenize_text.end_of(config), "</s>")
        config.write_text("[")
        with self.assertRaisesRegex(tokenize_text.InputError, "tokenizer_config.json: cannot be"):
            tokenize_text.end_of(config)

    def test_the_script_runs_from_any_folder(self):
        """Its folder comes first in Python's path: no file there may hide a module of Python's."""
        names = {path.stem for path in SCRIPT.parent.glob("*.py")}
        self.assertEqual(names & sys.stdlib_module_names, set())
        done = subprocess.run([sys.executable, str(SCRIPT), "--help"], cwd=self.folder,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--end-of-text", done.stdout)


@unittest.skipUnless(importlib.util.find_spec("tokenizers"),
                     "the Python package tokenizers is not installed")
class WithPackage(TokenFiles):
    def make_tokenizer(self, words: int) -> None:
        import tokenizers
        vocabulary = {"the": 0, "cat": 1, "?": 2}
        vocabulary |= {f"word{i}": i for i in range(len(vocabulary), words)}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        made.add_special_tokens(["<begin>", "<end>"])
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<begin> $A", special_tokens=[("<begin>", words)])
        made.enable_truncation(3)
        made.save(str(self.folder / "tokenizer.json"))

    def test_a_tokenizer_of_each_size(self):
        text = self.put("text.txt", "the cat the dog word7 the")
        (self.folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
        for words, magic, nbytes in ((100, 20240520, 2), (65535, 20240801, 4)):
            self.make_tokenizer(words)
            for tokenizer in (self.folder, self.folder / "tokenizer.json"):
                code, said = self.run_main("--tokenizer", tokenizer, "--output", self.output, text,
                                           text)
                self.assertEqual(code, 0, said)
                self.assertIn(f"14 tokens of {nbytes} bytes from 2 document(s)", said)
                self.assertIn(f"a vocabulary of {words + 2}\n", said)
                header, tokens = self.read()
                self.assertEqual(header[0], magic)
                # No begin and no truncation: both are for other uses.
                self.assertEqual(tokens, 2 * (0, 1, 0, 2, 7, 0, words + 1))

    def test_the_end_of_text_can_be_given(self):
        self.make_tokenizer(50)
        words = ["--tokenizer", self.folder, "--output", self.output, self.put("text.txt", "cat")]
        code, said = self.run_main(*words)
        self.assertEqual(code, 2)
        self.assertIn("tokenizer.json: does not name its end-of-text token; give", said)
        self.assertEqual(self.run_main(*words, "--end-of-text", "the")[0], 0)
        self.assertEqual(self.read()[1], (1, 0))

    def test_what_is_no_tokenizer_is_refused(self):
        self.put("tokenizer.json", "{}")
        code, said = self.run_main("--tokenizer", self.folder, "--output", self.output,
                                   self.put("text.txt", "cat"))
        self.assertEqual(code, 2)
        self.assertIn("tokenizer.json: is no tokenizer.json (", said)


if __name__ == "__main__":
    unittest.main()
