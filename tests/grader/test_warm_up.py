"""The warm-up: `make warm-up` passes the reference, and says what is wrong with anything else."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from outer_make import without_outer_make

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("Makefile", "common/scripts/install.sh", "tests/warm_up/check.cpp",
          "tasks/warm_up/shard_range.h", "tasks/warm_up/shard_range.cpp",
          "solutions/warm_up/shard_range.cpp")
HEAD = ('#include "warm_up/shard_range.h"\n#include <algorithm>\n#include <stdexcept>\n'
        "namespace fsdp {\nShardRange shard_range(std::int64_t N, int W, int r) {\n"
        "  [[maybe_unused]] const std::int64_t q = N / W, rest = N % W, n = q + (rest != 0);\n")

# What the body returns, the first line of what is printed, and a word of the cause below it.
WRONG = {
    "rounds down": (
        "return {r * q, (r + 1) * q};",
        "N = 10, W = 4: rank 0 keeps [0, 3), but shard_range returned [0, 2).", "rounds down"),
    "the last one takes the rest": (
        "return {r * q, r + 1 == W ? N : (r + 1) * q};",
        "N = 10, W = 4: rank 0 keeps [0, 3), but shard_range returned [0, 2).", "last rank takes"),
    "the first ones take one more": (
        "return {r * q + std::min<std::int64_t>(r, rest),"
        " (r + 1) * q + std::min<std::int64_t>(r + 1, rest)};",
        "N = 10, W = 4: rank 2 keeps [6, 9), but shard_range returned [6, 8).", "one element longer"),
    "with the padding": (
        "return {r * n, (r + 1) * n};",
        "N = 10, W = 4: rank 3 keeps [9, 10), but shard_range returned [9, 12).", "padding"),
    "begins behind the end": (
        "return {r * n, std::min((r + 1) * n, N)};",
        "N = 5, W = 4: rank 3 keeps [5, 5), but shard_range returned [6, 5).", "`begin` must not"),
    "the last element": (
        "return {std::min(r * n, N), std::min((r + 1) * n, N) - 1};",
        "N = 12, W = 4: rank 0 keeps [0, 3), but shard_range returned [0, 2).", "not the last one"),
    "a length": (
        "return {std::min(r * n, N), std::min((r + 1) * n, N) - std::min(r * n, N)};",
        "N = 12, W = 4: rank 1 keeps [3, 6), but shard_range returned [3, 3).", "not a length"),
    "32 bits": (
        "const int k = static_cast<int>(static_cast<unsigned>((r + 1) * n));"
        " return {std::min(r * n, N), std::min<std::int64_t>(k, N)};",
        "N = 3000000001, W = 4: rank 2 keeps", "32 bits"),
    "another rank's": (
        "const int s = W - 1 - r; return {std::min(s * n, N), std::min((s + 1) * n, N)};",
        "N = 12, W = 4: rank 0 keeps [0, 3), but shard_range returned [9, 12).",
        "Rank r begins at element r·n"),
    "an exception": ('throw std::runtime_error("no");', "shard_range threw: no", ""),
}


class WarmUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        for name in NEEDED:
            (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, cls.root / name)

    def make(self, *words: str, stderr: int = subprocess.DEVNULL) -> tuple[int, str]:
        done = subprocess.run(["make", "-C", str(self.root), "--no-print-directory", "INSTALL=no",
                               "warm-up", *words], check=False, stdout=subprocess.PIPE,
                              stderr=stderr, text=True, env=without_outer_make(), timeout=120)
        return done.returncode, done.stdout

    def test_the_reference_passes_in_one_line(self) -> None:
        code, said = self.make("IMPL=solution", stderr=subprocess.STDOUT)  # no warning
        self.assertEqual((code, said.count("\n")), (0, 1), said)
        self.assertTrue(said.startswith("passed  Every element has one owner."), said)
        after = said.split()[-1]
        self.assertTrue((ROOT / after).is_file(), after)

    def test_the_skeleton_is_not_written_yet(self) -> None:
        shutil.copy(ROOT / "tasks/warm_up/shard_range.cpp", self.root / "tasks/warm_up")
        code, said = self.make()
        self.assertEqual(code, 2)  # make's own
        handout = (ROOT / "tasks/warm_up/README.md").read_text(encoding="utf-8")
        self.assertIn(said, handout)

    def test_each_mistake_is_named(self) -> None:
        for what, (body, first, cause) in WRONG.items():
            with self.subTest(what):
                text = HEAD + "  " + body + "\n}\n}  // namespace fsdp\n"
                (self.root / "tasks/warm_up/shard_range.cpp").write_text(text, encoding="utf-8")
                code, said = self.make()
                self.assertEqual(code, 2)
                line, _, rest = said.partition("\n")
                self.assertTrue(line.startswith(f"FAILED  {first}"), said)
                self.assertIn(cause, rest)


if __name__ == "__main__":
    unittest.main()
