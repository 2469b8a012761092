"""Tests of ahead.py: tasks compiled in a process of their own, and what machine.py says of it."""

import os
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

import course_path  # noqa: F401  must come first
import machine
import manifest
from ahead import Ahead
from build_submission import BuildError, Built, salt_of
from trusted import TrustedError

TASKS = manifest.load().tasks[:3]
WANTED = [(task, {"x.cpp": f"int x{task.number};".encode()}) for task in TASKS]


class Tools:
    """In place of a SubmissionBuilder."""

    def __init__(self, call):
        self.call = call
        self.staging = SimpleNamespace(salts={})

    def build_task(self, task, files):
        return self.call(task, files)


def told(task, files):
    return Built(Path(f"/run/{task.number}"), f"{os.getpid()} {files['x.cpp'].decode()}")


class Builds(unittest.TestCase):
    def ahead(self, call):
        made = Ahead(Tools(call), WANTED)
        self.addCleanup(made.end)
        return made

    def test_in_order_elsewhere(self):
        made = self.ahead(told)
        built = [made.build_task(*each) for each in WANTED]
        self.assertEqual([str(each.runner) for each in built], ["/run/1", "/run/2", "/run/3"])
        pid = built[0].problem.split()[0]
        self.assertNotEqual(pid, str(os.getpid()))
        self.assertEqual([each.problem for each in built],
                         [f"{pid} int x{task.number};" for task in TASKS])

    def test_seeds_are_known_here(self):
        tools = Tools(told)
        made = Ahead(tools, WANTED)
        self.addCleanup(made.end)
        made.build_task(*WANTED[0])
        self.assertEqual(tools.staging.salts, {1: salt_of(*WANTED[0])})

    def test_it_does_not_wait_to_be_asked(self):
        with tempfile.TemporaryDirectory() as name:
            os.mkfifo(f"{name}/third")

            def call(task, files):
                if task.number == 3:
                    with open(f"{name}/third", "w", encoding="ascii") as file:
                        file.write("builds 3")
                return told(task, files)

            made = self.ahead(call)
            with open(f"{name}/third", encoding="ascii") as file:
                self.assertEqual(file.read(), "builds 3")
            self.assertEqual(str(made.build_task(*WANTED[0]).runner), "/run/1")

    def test_a_defect_of_the_grader_is_raised_where_it_was_asked_for(self):
        def call(task, files):
            if task.number == 2:
                raise TrustedError("no library")
            return told(task, files)

        made = self.ahead(call)
        made.build_task(*WANTED[0])
        with self.assertRaisesRegex(TrustedError, "no library"):
            made.build_task(*WANTED[1])

    def test_a_process_that_is_killed_is_no_verdict(self):
        made = self.ahead(lambda *_: os._exit(9))
        with self.assertRaisesRegex(BuildError, "ended early"):
            made.build_task(*WANTED[0])

    def test_its_end_does_not_wait_for_what_nobody_asks_for(self):
        made = Ahead(Tools(lambda *_: time.sleep(1000)), WANTED)
        made.end()


class Machine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def put(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text, encoding="ascii")

    def test_processors(self):
        here = len(os.sched_getaffinity(0))
        self.assertEqual(machine.processors(self.root), here)
        self.put("cpu.max", "max 100000\n")
        self.assertEqual(machine.processors(self.root), here)
        self.put("cpu.max", "50000 100000\n")
        self.assertEqual(machine.processors(self.root), 0.5)
        (self.root / "cpu.max").unlink()
        self.put("cpu/cpu.cfs_quota_us", "-1\n")
        self.put("cpu/cpu.cfs_period_us", "100000\n")
        self.assertEqual(machine.processors(self.root), here)
        self.put("cpu/cpu.cfs_quota_us", "25000\n")
        self.assertEqual(machine.processors(self.root), 0.25)

    def test_memory(self):
        self.put("meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
        known = self.root / "meminfo"
        self.assertEqual(machine.memory(self.root, known), 8000 << 10)
        self.put("memory.max", "max\n")
        self.put("memory.current", "100\n")
        self.assertEqual(machine.memory(self.root, known), 8000 << 10)
        self.put("memory.max", "5000\n")
        self.assertEqual(machine.memory(self.root, known), 4900)


if __name__ == "__main__":
    unittest.main()
