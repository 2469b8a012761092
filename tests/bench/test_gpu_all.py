"""Tests of tests/bench/gpu_all.py and gpu_all.sh: what a dry run on the stand-in does not reach.

FSDP_STAND_IN_PROGRAMS is a folder cuda-host/bin with unshard-train and bench_cuda_rates.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import gpu_all

SCRIPT = Path(gpu_all.__file__)


class ArchitecturesAndCards(unittest.TestCase):
    def test_machine_code_runs_on_its_own_generation_from_its_level_on(self):
        for capability in ("8.0", "8.6", "9.0", "12.1"):
            self.assertEqual(gpu_all.way_to_run("80-real;90-real;120", capability), "machine code")
        self.assertEqual(gpu_all.way_to_run("86-real", "8.0"), "")
        self.assertEqual(gpu_all.way_to_run("90-real", "10.0"), "")

    def test_ptx_runs_on_all_later_cards(self):
        self.assertEqual(gpu_all.way_to_run("80-real;90", "12.0"), "PTX")
        self.assertEqual(gpu_all.way_to_run("80-virtual", "8.0"), "PTX")
        self.assertEqual(gpu_all.way_to_run("90-virtual", "8.9"), "")

    def test_what_is_for_one_card_alone_is_not_counted(self):
        self.assertEqual(gpu_all.way_to_run("90a;native", "9.0"), "")


class Sanitized(unittest.TestCase):
    def test_initcheck_names_files_of_tests_and_no_training_in_bfloat16(self):
        runs = gpu_all.sanitized("initcheck")
        self.assertNotIn("bfloat16", str(runs))
        files = re.findall(r"\[#(\w+)\]", str(runs))
        self.assertIn("attention_test", files)
        for file in files:
            self.assertTrue((gpu_all.ROOT / "tests" / "cuda" / f"{file}.cpp").is_file(), file)

    def test_the_other_tools_see_tensor_cores_in_a_training(self):
        for tool in ("memcheck", "racecheck", "synccheck"):
            self.assertIn("param=bfloat16", str(gpu_all.sanitized(tool)))


class WhatRunsAtTheEnd(unittest.TestCase):
    """A program that prints, reports that through a pipe, and runs until the test is over."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.pipe = self.folder / "pipe"
        nothing = self.folder / "nothing"  # nobody writes to this one
        for pipe in (self.pipe, nothing):
            os.mkfifo(pipe)
        self.addCleanup(os.close, os.open(nothing, os.O_RDWR))
        self.program = self.folder / "cuda-host" / "bin" / "bench_cuda_rates"
        self.program.parent.mkdir(parents=True)
        self.program.write_text(f'#!/bin/sh\necho half a table\nexec 3> "{self.pipe}"\n'
                                f'echo printed >&3\nexec cat < "{nothing}"\n', encoding="utf-8")
        self.program.chmod(0o755)

    def wait_until_printed(self) -> int:
        """The pipe, whose end comes when the program's does."""
        pipe = os.open(self.pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, pipe)
        self.assert_comes(b"printed\n", pipe)
        return pipe

    def assert_comes(self, what: bytes, pipe: int):
        readable, _, _ = select.select([pipe], [], [], 60)
        self.assertTrue(readable, "nothing comes from the program, not even its end")
        self.assertEqual(os.read(pipe, 100), what)

    def test_a_signal_to_the_script_ends_it(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            script = subprocess.Popen([sys.executable, SCRIPT, self.program.parent,
                                       self.folder / "out", "--parts", "rates"],
                                      stdout=subprocess.DEVNULL)
            self.addCleanup(script.kill)
            pipe = self.wait_until_printed()
            script.send_signal(number)
            self.assertEqual(script.wait(timeout=60), 128 + number)
            self.assert_comes(b"", pipe)

    def test_a_signal_while_it_starts_ends_it(self):
        programs = gpu_all.Programs(self.program.parent, self.folder, limit=0)
        start, processes = subprocess.Popen, []

        def start_and_signal(*words, **options):
            processes.append(start(*words, **options))
            programs.end_all(signal.SIGTERM, None)
            return processes[0]

        with (unittest.mock.patch.object(gpu_all.subprocess, "Popen", start_and_signal),
              unittest.mock.patch.object(gpu_all.os, "_exit", sys.exit),
              self.assertRaises(SystemExit)):
            programs.started([str(self.program)])
        self.addCleanup(processes[0].communicate)
        self.addCleanup(processes[0].kill)
        self.assertEqual(processes[0].wait(timeout=60), -signal.SIGKILL)

    def test_the_end_of_its_time_ends_it_and_keeps_what_it_printed(self):
        programs = gpu_all.Programs(self.program.parent, self.folder, limit=0)
        pipes = []

        def end_of_the_part() -> float:
            pipes.append(self.wait_until_printed())
            return programs.end

        with (unittest.mock.patch.object(gpu_all, "monotonic", end_of_the_part),
              self.assertRaisesRegex(RuntimeError, "it printed is in bench_cuda_rates, ended.txt")):
            programs.output_of("bench_cuda_rates")
        self.assert_comes(b"", pipes[0])
        kept = self.folder / "bench_cuda_rates, ended.txt"
        self.assertEqual(kept.read_text(encoding="utf-8"), "half a table\n")


class Limits(unittest.TestCase):
    def test_a_part_that_runs_out_of_time_has_failed_and_the_others_go_on(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        programs = folder / "cuda-host" / "bin"
        programs.mkdir(parents=True)
        for name in ("unshard-train", "bench_cuda_rates"):
            (programs / name).symlink_to(str(shutil.which("true")))
        done = subprocess.run([sys.executable, SCRIPT, programs, folder / "out", "--limit", "0",
                               "--parts", "rates,CPU,memcheck"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)
        rows = (folder / "out" / "table.md").read_text(encoding="utf-8").splitlines()
        for part, row in zip(("rates", "CPU"), rows[3:5], strict=True):
            self.assertRegex(row, rf"^\| {part} \| ended after the 0 s .* \| NO \|$")
        self.assertRegex(rows[5], "memcheck .* skipped")


class Packs(unittest.TestCase):
    def setUp(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.pack, self.out = folder / "programs.tar.xz", folder / "out"

    def script(self, *words: object) -> subprocess.CompletedProcess[str]:
        quickly = {**os.environ, "XZ_OPT": "-0", "UNPACKED": str(self.out.parent / "unpacked")}
        return subprocess.run([SCRIPT.with_suffix(".sh"), *words], capture_output=True,
                              text=True, env=quickly)

    def make_pack(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.script("--pack", self.pack, "--from", os.environ["FSDP_STAND_IN_PROGRAMS"],
                           *words)

    def test_what_was_packed_runs(self):
        made = self.make_pack()
        self.assertEqual(made.returncode, 0, made.stderr)
        done = self.script("--packed", self.pack, "--parts", "rates", self.out)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        table = (self.out / "table.md").read_text(encoding="utf-8")
        self.assertIn("dry run on the stand-in", table)
        self.assertIn("| products of 24 x 24 in bfloat16 |", table)

    def test_a_pack_of_another_commit_is_an_error(self):
        folder = self.out.parent / "cuda-host"
        (folder / "bin").mkdir(parents=True)
        (folder / "commit").write_text("0123abc\n", encoding="utf-8")
        subprocess.run(["tar", "cJf", self.pack, "-C", folder.parent, folder.name], check=True)
        done = self.script("--packed", self.pack, self.out)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "was packed at commit 0123abc, and this is [0-9a-f]{40}")

    def test_a_pack_that_is_too_large_is_an_error(self):
        made = self.make_pack("--most", "1000")
        self.assertEqual(made.returncode, 1)
        self.assertRegex(made.stderr, r"has \d+ bytes, and 1000 are the most")


if __name__ == "__main__":
    unittest.main()
