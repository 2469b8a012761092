"""make debug-3.2, how an editor starts it, and what docs/debugging.md says of both."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import course
import debugging
import manifest
from outer_make import without_outer_make

ROOT = manifest.ROOT
EDITOR = next(path for path in (ROOT / "apps/course/vscode", ROOT / ".vscode") if path.is_dir())
PAGE = (ROOT / "docs/debugging.md").read_text(encoding="utf-8")

# A judge with three cases of step 3.1, of which FAILS names those that fail. As the real one, it
# lists them, starts a run of a case by FSDP_JAIL, and stops at the first failure.
JUDGE = f"""#!{sys.executable}
import os, re, subprocess, sys
words, runs = sys.argv[1:], os.environ.get("FSDP_JAIL", "").split("\\n")
names = ["Gathers once", "Gathers, in order", "Reshards"]
wanted = [re.sub(r"\\\\(.)", r"\\1", each) for each in re.split(r"(?<!\\\\),", words[-1])]
if words[-1] != "[3.1]~[hidden]":
    names = [name for name in names if name in wanted]
print('<?xml version="1.0"?><Report>')
for name in names:
    if "--list-tests" in words:
        print(f"<TestCase><Name>{{name}}</Name><Tags>[3.1]</Tags></TestCase>")
        continue
    subprocess.run([*runs, os.environ["FSDP_RUNNER"]], input=f"case of {{name}}", text=True)
    failed = name in os.environ["FAILS"].split("; ")
    said = "<Failure>observed: 2</Failure>" if failed else ""
    print(f'<TestCase name="{{name}}" tags="[3.1]">{{said}}'
          f'<OverallResult success="{{"false" if failed else "true"}}"/></TestCase>')
    if failed:
        break
print("</Report>")
"""
# Writes down how it was started, and whether it hands descriptor 3 on.
DEBUGGER = '#!/bin/sh\nprintf "%s\\n" "$0" "$@" >started\n: >&3 && echo 3 is open >>started\nexit 7\n'


class Debug(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.addCleanup(os.chdir, os.getcwd())
        self.program("build/grade/bin/judge_task3", JUDGE)
        self.program("build/grade/bin/runner_task3", "#!/bin/sh\ncat >/dev/null\n")
        self.task = manifest.load().task(3)

    def program(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def debug(self, fails: str, *words: str, path: str = "") -> tuple[int, str]:
        tools = types.SimpleNamespace(make=lambda *_: None,
                                      program=lambda name: self.root / "build/grade/bin" / name)
        with contextlib.redirect_stdout(io.StringIO()) as said, \
                mock.patch.dict(os.environ, {"FAILS": fails, "PATH": path + os.environ["PATH"]}):
            code = debugging.debug(self.root, self.task, "3.1", tools, *words)
        return code, said.getvalue()

    def case(self) -> str:
        return (self.root / debugging.CASE).read_text(encoding="utf-8")

    def test_the_first_failing_case_is_written_down(self) -> None:
        code, said = self.debug("Gathers, in order; Reshards", "", "none")
        self.assertEqual((code, self.case()), (0, "case of Gathers, in order"))
        self.assertIn('3.1 "Gathers, in order"\n\nobserved: 2\n', said)
        self.assertIn("build/grade/bin/runner_task3 < build/grade/debug/3.1.json 3>/dev/null", said)
        self.assertTrue((self.root / debugging.RUNNER).samefile(
            self.root / "build/grade/bin/runner_task3"))

    def test_a_case_is_chosen_by_a_part_of_its_name(self) -> None:
        for wanted, found in (("RESHARD", "Reshards"), ("gathers", "Gathers, in order"),
                              ("Gathers, in", "Gathers, in order")):
            self.debug("Gathers, in order; Reshards", wanted, "none")
            self.assertEqual(self.case(), f"case of {found}", wanted)

    def test_a_case_that_passes_is_debugged_if_it_is_named(self) -> None:
        code, said = self.debug("Reshards", "Gathers", "none")
        self.assertEqual((code, self.case()), (0, "case of Gathers once"))
        self.assertIn('"Gathers once" passes', said)

    def test_a_name_that_no_case_has_lists_the_cases(self) -> None:
        with self.assertRaises(debugging.DebugError) as thrown:
            self.debug("Reshards", "shuffles", "none")
        self.assertIn("CASE=shuffles", str(thrown.exception))
        for name in ("Gathers once", "Gathers, in order", "Reshards"):
            self.assertIn(f"\n  {name}", str(thrown.exception))

    def test_without_a_failing_case_nothing_old_is_left_to_debug(self) -> None:
        self.debug("Reshards", "", "none")
        code, said = self.debug("", "", "none")
        self.assertEqual(code, 0)
        self.assertIn("nothing to debug. CASE= chooses one", said)
        self.assertFalse((self.root / debugging.CASE).exists())
        self.assertFalse((self.root / debugging.RUNNER).is_symlink())

    def test_each_debugger_is_started_on_the_case(self) -> None:
        expected = {"gdb": "set args < build/grade/debug/3.1.json 3>/dev/null",
                    "lldb": "settings set target.input-path build/grade/debug/3.1.json"}
        for name, setting in expected.items():
            self.program(f"bin/{name}", DEBUGGER)
            code, said = self.debug("Reshards", "", name, path=f"{self.root}/bin:")
            started = (self.root / "started").read_text(encoding="utf-8").splitlines()
            self.assertEqual((code, Path(started[0]).name), (7, name))
            self.assertIn(setting, started)
            self.assertEqual(started[-2:], ["build/grade/bin/runner_task3", "3 is open"])
            self.assertIn(f"In {name}: `run` starts it", said)
            self.assertIn("forward.cpp:LINE", said)

    def test_a_debugger_that_is_missing_is_named_with_the_remedy(self) -> None:
        with mock.patch("shutil.which", return_value=None):
            code, said = self.debug("Reshards", "", "lldb")
        self.assertEqual(code, 1)
        self.assertIn("apt-get install lldb", said)
        with self.assertRaisesRegex(debugging.DebugError, "DEBUGGER=vim: there are gdb, lldb"):
            self.debug("Reshards", "", "vim")

    def test_the_command_line_hands_both_on(self) -> None:
        options = course.parse(["debug", "3.1", "--case", "Gathers, in", "--debugger", "lldb"])
        with mock.patch.object(debugging, "debug", return_value=5) as called:
            self.assertEqual(course.debug(manifest.load(), options), 5)
        self.assertEqual(called.call_args.args[2::2], ("3.1", "Gathers, in"))
        self.assertEqual(called.call_args.args[-1], "lldb")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True,
                          check=False, env=without_outer_make(), timeout=60)


class Editor(unittest.TestCase):
    LAUNCH = json.loads((EDITOR / "launch.json").read_text(encoding="utf-8"))
    TASKS = json.loads((EDITOR / "tasks.json").read_text(encoding="utf-8"))

    def test_a_steps_case_is_where_make_puts_it(self) -> None:
        step = self.LAUNCH["configurations"][0]
        self.assertEqual(step["program"], f"${{workspaceFolder}}/{debugging.RUNNER}")
        self.assertEqual(step["args"], ["<", str(debugging.CASE), "3>/dev/null"])

    def test_a_program_of_your_own_is_where_make_builds_it(self) -> None:
        built = make("run", "FILE=apps/examples/own_model.cpp", "DEBUGGER=none").stdout
        program = self.LAUNCH["configurations"][1]["program"].removeprefix("${workspaceFolder}/")
        self.assertRegex(built, rf"(?m)^: {re.escape(program)} *$")

    def test_every_task_is_a_target(self) -> None:
        values = {"input:step": "3.2", "input:case": "", "input:task": "3",
                  "file": "apps/examples/own_model.cpp"}
        for task in self.TASKS["tasks"]:
            words = [re.sub(r"\$\{(.*?)\}", lambda found: values[found[1]], word)
                     for word in task["args"]]
            done = make(*words)
            self.assertEqual((task["command"], done.returncode, done.stderr), ("make", 0, ""))

    def test_what_is_named_is_defined(self) -> None:
        labels = [task["label"] for task in self.TASKS["tasks"]]
        for configuration in self.LAUNCH["configurations"]:
            self.assertIn(configuration["preLaunchTask"], labels)
        for settings in (self.LAUNCH, self.TASKS):
            used = set(re.findall(r"\$\{input:(\w+)\}", json.dumps(settings)))
            self.assertEqual(used, {each["id"] for each in settings["inputs"]})


class Page(unittest.TestCase):
    def test_its_commands_can_be_made(self) -> None:
        commands = re.findall(r"(?m)^\$ (make [^#\n]*)", PAGE) + re.findall(r"`(make [^`]*)`", PAGE)
        self.assertGreater(len(commands), 4)
        for command in commands:
            words = [quoted or plain for quoted, plain in
                     re.findall(r'(\S+="[^"]*")|(\S+)', command)]
            words = [word.replace('"', "").replace("mine.cpp", "apps/examples/own_model.cpp")
                     for word in words]
            done = make(*words[1:])
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    def test_its_cases_are_those_of_the_steps(self) -> None:
        cases = re.findall(r'make debug-(\d)\.\d CASE="([^"]+)"', PAGE)
        self.assertTrue(cases)
        for task, name in cases:
            text = (ROOT / f"tests/task{task}/public_cases.cpp").read_text(encoding="utf-8")
            names = re.findall(r'TEST_CASE\("([^"]+)"', text)
            self.assertTrue(any(name.casefold() in each.casefold() for each in names), name)


if __name__ == "__main__":
    unittest.main()
