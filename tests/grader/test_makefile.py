"""The Makefile can be read, and every target that `make help` lists can be made."""

import re
import subprocess
import unittest
from pathlib import Path

from outer_make import without_outer_make

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
# What takes the place of % in a target's name.
EXAMPLES = {"test-%": "test-common", "test-task%": "test-task3", "show-task%": "show-task3",
            "hint-%": "hint-4.2", "debug-%": "debug-3.2", "reset-task%": "reset-task3"}


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", str(ROOT), "--no-print-directory", *words], check=False,
                          capture_output=True, text=True, env=without_outer_make(), timeout=60)


def documented() -> list[str]:
    return re.findall(r"(?m)^  make (\S+) ", make("help").stdout)


class Makefile(unittest.TestCase):
    def test_help_lists_every_target(self) -> None:
        rules = re.findall(r"(?m)^([A-Za-z0-9_%-]+):(?!=)", TEXT)
        self.assertGreater(len(rules), 20)
        self.assertEqual(documented(), rules)

    def test_every_target_is_phony(self) -> None:
        listed = re.findall(r"(?m)^\.PHONY:((?:.*\\\n)*.*)$", TEXT)
        phony = " ".join(listed).replace("\\\n", " ").split()
        self.assertEqual(sorted(phony), sorted(name for name in documented() if "%" not in name))

    def test_only_a_plan_that_is_run_needs_the_tasks(self) -> None:
        asks = "written=echo asks for every step"
        self.assertIn(asks.partition("=")[2], make("-n", "race", asks).stdout)
        on_paper = make("-n", "race", "ESTIMATE=yes", asks).stdout
        self.assertNotIn(asks.partition("=")[2], on_paper)
        self.assertIn("--estimate", on_paper)

    def test_every_target_can_be_made(self) -> None:
        for name in documented():
            with self.subTest(target=name):
                done = make("-n", EXAMPLES.get(name, name), "SUBMISSION=x", "DIR=x")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertNotEqual(done.stdout.strip(), "")

    def test_a_target_without_processes_refuses_them(self) -> None:
        for name in ("demo", "test", "bench"):
            done = make("-n", name, "BACKEND=mpi")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("build/mpi", done.stdout)
        for name, *words in (("test-task3",), ("grade", "SUBMISSION=x")):
            done = make("-n", name, "BACKEND=mpi", *words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--backend mpi", done.stdout)
        done = make("-n", "progress", "BACKEND=mpi")
        self.assertEqual(done.returncode, 2)
        self.assertIn("progress has ranks that are threads", done.stderr)
        self.assertIn("there are threads and mpi", make("-n", "test", "BACKEND=nccl").stderr)

    def test_the_changelog_begins_with_this_release(self) -> None:
        project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        release = re.search(r"project\(unshard VERSION (\S+)", project)[1]
        changelog = (ROOT / "docs/changelog.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"(?m)^## (\S+?),? ", changelog)[0].rstrip(","), release)

    def test_a_program_of_your_own_is_named(self) -> None:
        for words, said in (((), "name your program"), (("FILE=no.cpp",), "no file 'no.cpp'")):
            done = make("run", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stdout)
        done = make("-n", "run", "FILE=apps/examples/own_model.cpp", "ARGS=2", "BACKEND=mpi", "NP=2")
        self.assertIn(f'-DFSDP_RUN="{ROOT}/apps/examples/own_model.cpp"', done.stdout)
        self.assertRegex(done.stdout, r" 2 build/mpi/bin/unshard-run 2")

    def test_a_part_that_does_not_exist_is_named(self) -> None:
        done = make("test-taks1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("make test-taks1: there is no such part", done.stdout)

    def test_installing_needs_a_folder(self) -> None:
        done = make("install")
        self.assertEqual(done.returncode, 2)
        self.assertIn("make install PREFIX=folder", done.stdout)
        self.assertIn('--prefix "a b"', make("-n", "install", "PREFIX=a b").stdout)

    def test_a_target_that_computes_on_the_cpu_refuses_devices(self) -> None:
        done = make("-n", "test-task3", "DEVICE=cuda")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("--device cuda", done.stdout)
        self.assertNotIn("--device", make("-n", "test-task3").stdout)
        done = make("-n", "progress", "DEVICE=cuda")
        self.assertEqual(done.returncode, 2)
        self.assertIn("progress computes on the CPU", done.stderr)
        self.assertIn("there are cpu and cuda", make("-n", "test", "DEVICE=tpu").stderr)

    def test_make_alone_is_make_help(self) -> None:
        self.assertEqual(make().stdout, make("help").stdout)


if __name__ == "__main__":
    unittest.main()
