"""Unwritten steps are named before anything is built: unwritten.py, and the Makefile of a kit."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import kit
import manifest
import unwritten

COURSE = manifest.load()
MAKEFILE = (manifest.ROOT / "Makefile").read_text(encoding="utf-8")
FULL_TREE = (manifest.ROOT / "solutions" / COURSE.task(1).folder).is_dir()


class InRoot(unittest.TestCase):
    """A root in which every task is written."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for task in COURSE.tasks:
            for name in task.files:
                self.put(f"tasks/{task.folder}/{name}", "void written() {}\n")

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Steps(InRoot):
    def of_task_3(self, text: str) -> list[str]:
        self.put("tasks/task3_forward/forward.cpp", text)
        return [step.id for step in unwritten.steps(self.root, COURSE.task(3))]

    def test_a_step_is_unwritten_while_its_todo_is_called(self):
        self.assertEqual(self.of_task_3('a();\n  todo("3.4", state_);\n todo( "3.2",\n x);'),
                         ["3.2", "3.4"])
        self.assertEqual(self.of_task_3("void f() {}\n"), [])

    def test_one_of_several_regions_is_enough(self):
        self.assertEqual(self.of_task_3('todo("3.5", hooks_); f(); todo("3.5", options_);'),
                         ["3.5"])

    def test_comments_and_other_texts_do_not_count(self):
        self.assertEqual(self.of_task_3('// todo("3.1", x);\n/* todo("3.2"); */ f("// todo");'), [])
        self.assertEqual(self.of_task_3('f("http://x"); todo("3.3", y);'), ["3.3"])

    def test_a_missing_file_is_unwritten(self):
        (self.root / "tasks/task3_forward/forward.cpp").unlink()
        self.assertEqual(len(unwritten.steps(self.root, COURSE.task(3))),
                         len(COURSE.task(3).steps))

    @unittest.skipUnless(FULL_TREE, "needs a skeleton")
    def test_a_skeleton_has_every_step_unwritten(self):
        for task in COURSE.tasks:
            self.assertEqual(unwritten.steps(manifest.ROOT, task), list(task.steps))


class Given(InRoot):
    def test_only_in_a_kit_and_only_until_a_step_is_written(self):
        task, name = COURSE.task(3), "tasks/task3_forward/forward.cpp"
        stubs = "".join(f'todo("{step.id}", x);' for step in task.steps)
        self.put(name, stubs)
        self.put("solutions/task3_forward/forward.cpp", "reference\n")
        self.assertFalse(unwritten.given_and_untouched(self.root, task))
        self.put("apps/course/kit.json", "{}")
        self.assertTrue(unwritten.given_and_untouched(self.root, task))
        self.assertFalse(unwritten.given_and_untouched(self.root, COURSE.task(4)))
        self.put(name, stubs.replace('todo("3.1", x);', "written();"))
        self.assertFalse(unwritten.given_and_untouched(self.root, task))


class BeforeBuilding(InRoot):
    def test_a_task_for_extra_credit_is_never_missing(self):
        (extra,) = COURSE.optional
        self.put(f"tasks/{extra.folder}/{extra.files[0]}", f'todo("{extra.steps[0].id}", x);')
        self.assertEqual(unwritten.steps(self.root, extra), [extra.steps[0]])
        self.assertEqual(unwritten.before_building(self.root, COURSE, "demo"), [])

    def test_the_first_unwritten_step_and_its_command_are_named(self):
        self.put("tasks/task3_forward/forward.cpp", 'todo("3.4", x); todo("3.5", x);')
        self.put("tasks/task4_backward/backward.cpp",
                 "".join(f'todo("4.{k}", x);' for k in range(1, 9)))
        self.assertEqual(unwritten.before_building(self.root, COURSE, "demo"), [
            "make demo needs every task, and these steps are not written yet:", "",
            "  task 3  Forward   3.4, 3.5",
            "  task 4  Backward  all 8 steps", "",
            "Write 3.4, reshard to a subgroup, next. make test-task3 tests it, and make hint-3.4 "
            "gives a hint."])
        self.assertEqual(unwritten.before_building(self.root, COURSE, "race")[-1],
                         "Until then, make race ESTIMATE=yes shows what your plans would take.")

    def test_a_task_with_a_reference_is_not_missing(self):
        self.put("tasks/task3_forward/forward.cpp", 'todo("3.4", x);')
        self.put("solutions/task3_forward/forward.cpp", "reference\n")
        self.assertEqual(unwritten.before_building(self.root, COURSE, "demo"), [])

    @unittest.skipUnless(FULL_TREE, "a kit may have unwritten steps")
    def test_the_full_tree_says_nothing(self):
        self.assertEqual(unwritten.before_building(manifest.ROOT, COURSE, "demo"), [])


class InTheMakefile(InRoot):
    NEED_ALL = ("demo", "test", "bench", "figures", "test-integrated", "test-memory")

    def commands(self, target: str) -> str:
        done = subprocess.run(["make", "-n", "-C", str(self.root), target], check=True,
                              capture_output=True, text=True,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        return done.stdout

    def test_a_kit_asks_before_it_builds(self):
        self.put("Makefile", kit.without_instructor(MAKEFILE))
        self.put("apps/course/kit.json", "{}")
        for target in self.NEED_ALL:
            text = self.commands(target)
            asked = text.find(f"written {target}\n")
            self.assertGreaterEqual(asked, 0, target)
            self.assertLess(asked, max(text.find("cmake"), text.find(" integrated")), target)
        for target in ("test-common", "test-task3", "progress", "submit"):
            self.assertNotIn(" written ", self.commands(target))

    def test_every_target_that_builds_a_release_asks(self):
        """A new target must be listed here."""
        text = kit.without_instructor(MAKEFILE)
        for name, recipe in re.findall(r"(?m)^([a-z%-]+):.*\n((?:\t.*\n)+)", text):
            if "configure,release" in recipe:
                self.assertIn("$(written)", recipe.split("configure,release")[0], name)

    def test_the_full_tree_does_not_ask(self):
        self.put("Makefile", MAKEFILE)
        for target in self.NEED_ALL:
            self.assertNotIn("written", self.commands(target))

    @unittest.skipUnless(FULL_TREE, "a kit's Makefile has no such targets")
    def test_a_kit_has_no_targets_for_work_on_the_project(self):
        text = kit.without_instructor(MAKEFILE)
        left = set(re.findall(r"(?m)^([a-z0-9%-]+):", text))
        self.assertFalse({"check", "format", "tidy", "sanitize", "sanitize-dev", "sanitize-tsan",
                          "check-clang", "check-arm64", "test-cuda", "check-cuda",
                          "compare-pytorch"} & left)
        phony = re.search(r"(?m)^\.PHONY: (.*)$", text)[1].split()
        self.assertLessEqual(set(phony), left)
        self.put("Makefile", text)
        self.assertIn("course.py", self.commands("progress"))


if __name__ == "__main__":
    unittest.main()
