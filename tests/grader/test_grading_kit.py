"""Tests of what is in a student kit and in the autograder's zip, and of how a runner is linked."""

import io
import re
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import gradescope
import kit
import linking
import manifest
import skeletons

COURSE = manifest.load()
FULL_TREE = (manifest.ROOT / "solutions" / COURSE.task(1).folder).is_dir()


class Kit(unittest.TestCase):
    def test_nothing_secret_is_for_students(self):
        for name in ("solutions/task3_forward/forward.cpp", "solutions/task3_forward/NOTES.md",
                     "tests/task3/hidden_cases.cpp", "tests/mutants/3.2.toml",
                     "tests/solutions/gradients.cpp", "tests/grader/hostile/output.cpp",
                     "apps/course/questions/reference_task3.py", "tests/grader/mutants.py",
                     "apps/course/grade.py", "docs/instructors.md", "docs/syllabus.md",
                     "docs/board/task3.md", ".ci/run", ".gitmodules",
                     ".github/workflows/tests.yml", ".github/workflows/pages.yml",
                     "tests/cuda_stand_in/collectives_test.cpp", "tests/cuda/copy_test.cpp",
                     "tasks/task3_forward/forward.cpp.kept-1", "build/submission.tar.gz"):
            self.assertFalse(kit.belongs(name, set(), False), name)

    def test_what_the_loop_needs_is(self):
        for name in ("Makefile", "CMakeLists.txt", ".gitignore", "common/base/check.h",
                     ".gitattributes", ".devcontainer/devcontainer.json", "Dockerfile",
                     ".dockerignore", "common/scripts/install.sh",
                     "tests/task3/cases.h", "tests/task3/public_cases.cpp", "apps/course/audit.py",
                     "apps/course/course.py", "apps/course/points.toml", "writeup/README.md",
                     "apps/course/showing.py", "apps/show/show_task3.cpp",
                     "apps/course/questions/task3.toml", "tasks/task3_forward/README.md",
                     "tasks/task3_forward/forward.h", "tests/graded/runner.cpp",
                     "tests/support/cuda_on_host/fiber.cpp", "docs/cuda_stand_in.md"):
            self.assertTrue(kit.belongs(name, set(), True), name)

    @unittest.skipUnless(FULL_TREE, "a kit has them in their places")
    def test_a_kit_has_the_workflows_of_a_students_repository_and_no_others(self):
        names = [name for name in kit.files_of_tree(manifest.ROOT)
                 if kit.belongs(name, set(), True)]
        placed = [kit.place(name) for name in names]
        self.assertEqual([name for name in placed if name.startswith(".github")],
                         [".github/workflows/tasks.yml"])
        moved = [name for name, there in zip(names, placed) if name != there]
        self.assertEqual(moved, ["apps/course/github/tasks.yml", "apps/course/vscode/launch.json",
                                 "apps/course/vscode/tasks.json"])
        self.assertIn(".vscode/launch.json", placed)
        self.assertEqual(len(set(placed)), len(names))

    @unittest.skipUnless(FULL_TREE, "a kit is what is left of it")
    def test_what_a_kit_compiles_is_there(self):
        files = {name for name in kit.files_of_tree(manifest.ROOT) if Path(name).suffix in
                 (".h", ".cpp", ".cu")}
        held = {name for name in files if kit.belongs(name, set(range(1, 9)), False)}
        roots = [*{name.split("/")[0] for name in files}, "tests/support/cuda_on_host/include"]
        left_out = []
        for name in sorted(held):
            text = (manifest.ROOT / name).read_text(encoding="utf-8")
            for header in re.findall(r'(?m)^#include "([^"]+)"', text):
                places = {f"{root}/{header}" for root in roots}
                if places & files and not places & held:
                    left_out.append(f"{name} includes {header}")
        self.assertEqual(left_out, [])

    @unittest.skipUnless(FULL_TREE, "a kit is what is left of it")
    def test_what_a_kits_programs_import_is_there(self):
        names = [name for name in kit.files_of_tree(manifest.ROOT)
                 if re.fullmatch(r"apps/course/\w+\.py", name)]
        held = {Path(name).stem for name in names if kit.belongs(name, set(), False)}
        left_out = {Path(name).stem for name in names} - held
        self.assertIn("course", held)
        for name in sorted(held):
            text = (manifest.ROOT / "apps" / "course" / f"{name}.py").read_text(encoding="utf-8")
            found = set(re.findall(r"(?m)^(?:import|from) (\w+)", text))
            self.assertEqual(found & left_out, set(), f"imported by {name}.py")

    def test_an_update_never_holds_a_students_files(self):
        answers = "tasks/task3_forward/answers.toml"
        self.assertTrue(kit.belongs(answers, set(), False))
        self.assertFalse(kit.belongs(answers, set(), True))
        self.assertFalse(kit.belongs("tasks/task3_forward/forward.cpp", set(), True))

    @unittest.skipUnless(FULL_TREE, "a kit's front page is already that of students")
    def test_a_students_front_page_begins_with_the_course(self):
        def commands(text: str) -> list[str]:
            blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", text)
            return re.findall(r"(?m)^make (\S+)", "".join(blocks))

        full = (manifest.ROOT / "README.md").read_text(encoding="utf-8")
        self.assertEqual(commands(full)[0], "demo")
        text = kit.for_students(full)
        self.assertEqual(commands(text)[:2], ["warm-up", "test-task1"])
        self.assertLess(text.index("make test-task1"), text.index("make demo"))
        self.assertEqual(re.findall(r"(?m)^## .*", text)[0], "## Take the course")
        for name in re.findall(r"\]\(([\w./-]+)\)", text):  # nothing that a kit does not hold
            self.assertTrue(kit.belongs(name, set(), False), name)

    @unittest.skipUnless(FULL_TREE, "a kit's front page is already that of students")
    def test_the_front_page_says_which_references_are_in_the_kit(self):
        plain = kit.for_students((manifest.ROOT / "README.md").read_text(encoding="utf-8"))
        self.assertNotIn("solutions/", plain)
        page = kit.with_given(plain, {1, 2, 4})
        self.assertIn("references of task 1, task 2 and task 4, in `solutions/`", page)
        self.assertIn("\nsolutions/    the references", page)
        self.assertIn("`make test-task1 IMPL=solution`", " ".join(page.split()))
        self.assertIn("references of task 3, in", kit.with_given(plain, {3}))
        with self.assertRaises(kit.KitError):
            kit.with_given("another page", {1})

    @unittest.skipUnless(FULL_TREE, "a kit has no solutions to make it from")
    def test_the_warm_up_is_handed_out_unsolved(self):
        name = "tasks/warm_up/shard_range.cpp"
        self.assertIn("throw NotWritten", skeletons.generate(manifest.ROOT, COURSE)[name])
        for own, update, there in ((name, False, False), ("tasks/warm_up/README.md", True, True),
                                   ("tasks/warm_up/shard_range.h", True, True),
                                   ("tests/warm_up/check.cpp", True, True),
                                   ("solutions/warm_up/shard_range.cpp", False, False)):
            self.assertEqual(kit.belongs(own, set(), update), there, own)

    def test_the_race_is_handed_out_without_its_references(self):
        for own, update, there in (("tasks/race/policy.cpp", False, True),
                                   ("tasks/race/policy.cpp", True, False),
                                   ("tasks/race/policy.h", True, True),
                                   ("tasks/race/README.md", True, True),
                                   ("apps/race/judge.cpp", True, True),
                                   ("apps/course/race.py", True, True),
                                   ("apps/course/race_board.py", True, False),
                                   ("tests/race/walk_test.cpp", True, True),
                                   ("tests/race/hostile/endless.cpp", True, False),
                                   ("solutions/race/search.cpp", False, False)):
            self.assertEqual(kit.belongs(own, set(), update), there, own)

    def test_given_references(self):
        self.assertEqual(kit.given_tasks("1-2", COURSE), {1, 2})
        self.assertEqual(kit.given_tasks("1, 4-5", COURSE), {1, 4, 5})
        self.assertEqual(kit.given_tasks("", COURSE), set())
        for text in ("x", "1-", "9", "-2"):
            with self.assertRaises((kit.KitError, manifest.ManifestError)):
                kit.given_tasks(text, COURSE)
        self.assertTrue(kit.belongs("solutions/task2_flat_parameter/flat_parameter.cpp", {1, 2},
                                    False))
        self.assertFalse(kit.belongs("solutions/task2_flat_parameter/NOTES.md", {1, 2}, False))
        self.assertFalse(kit.belongs("solutions/task3_forward/forward.cpp", {1, 2}, False))

    @unittest.skipUnless(FULL_TREE, "only the full tree has what is left out")
    def test_all_files_of_the_tree(self):
        names = [name for name in kit.files_of_tree(manifest.ROOT)
                 if kit.belongs(name, set(), False)]
        self.assertGreater(len(names), 200)
        for name in names:
            self.assertIsNone(re.search(r"hidden_cases|^solutions|mutants|reference_(?!card)", name), name)
        for name in names:  # a reference that is kept anywhere else would show its marks
            if name.endswith((".cpp", ".h")):
                text = (manifest.ROOT / name).read_text(encoding="utf-8")
                self.assertNotIn("// END SOLUTION", text, name)

    @unittest.skipUnless(FULL_TREE, "only the full tree has what is left out")
    def test_no_text_sends_a_student_to_what_a_kit_lacks(self):
        lacking = (r"(?:solutions/|tests/solutions|tests/mutants|docs/(?:instructors|syllabus|board)"
                   r"|NOTES\.md|\.ci/)\S*")
        for name in kit.files_of_tree(manifest.ROOT):
            if not kit.belongs(name, set(), False) or not name.endswith((".md", ".toml")):
                continue
            text = (manifest.ROOT / name).read_text(encoding="utf-8")
            if name in ("README.md", "writeup/README.md"):
                text = kit.for_students(text)
            named = re.findall(lacking, text)
            if named and "A student kit has no" not in text:
                self.fail(f"{name} names {', '.join(named)}: a kit has none; say so, or leave it out")

    @unittest.skipUnless(FULL_TREE, "a kit's Makefile has no such targets")
    def test_the_makefile_keeps_what_students_use(self):
        text = kit.without_instructor((manifest.ROOT / "Makefile").read_text(encoding="utf-8"))
        targets = set(re.findall(r"(?m)^([a-z%-]+):", text))
        self.assertLessEqual({"help", "test-task%", "progress", "submit", "clean", "doctor"},
                             targets)
        self.assertFalse({"grade", "grade-all", "gradescope", "student-kit", "skeletons",
                          "check-grader"} & targets)
        self.assertNotRegex(text, r"\bgrade\b")

    @unittest.skipUnless(FULL_TREE, "this is a kit")
    def test_the_makefile_says_that_a_kit_has_no_tests_of_cuda(self):
        text = kit.without_instructor((manifest.ROOT / "Makefile").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "Makefile").write_text(text, encoding="utf-8")
            for words in (["test-cuda"], ["test", "DEVICE=cuda"]):
                done = subprocess.run(["make", "-n", *words], cwd=folder, capture_output=True,
                                      text=True, check=False, timeout=60)
                self.assertEqual(done.returncode, 2)
                self.assertIn("A student kit has no tests of CUDA", done.stderr)

    def test_an_archive_is_the_same_every_time(self):
        files = {"b": b"2", "a": b"1"}
        data = kit.pack(files, Path("/nonexistent"))
        self.assertEqual(data, kit.pack(files, Path("/nonexistent")))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            self.assertEqual(archive.getnames(), ["unshard-kit/a", "unshard-kit/b"])


class Gradescope(unittest.TestCase):
    def test_its_scripts_are_there(self):
        for name in ("setup.sh", "run_autograder"):
            text = (gradescope.HERE / "gradescope_image" / name).read_text(encoding="utf-8")
            self.assertTrue(text.startswith("#!/usr/bin/env bash\n"))

    def test_submitters(self):
        import json
        import tempfile
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            self.assertIsNone(gradescope.submitters(root))
            (root / "submission_metadata.json").write_text(json.dumps(
                {"users": [{"email": "ada@x.edu"}, {"email": "bob@x.edu"}]}), encoding="utf-8")
            self.assertEqual(gradescope.submitters(root), ["ada@x.edu", "bob@x.edu"])


class Link(unittest.TestCase):
    WORDS = ("/usr/bin/c++ -O1 -g tests/a.dir/runner.cpp.o tests/a.dir/__/__/solutions/"
             "task3_forward/forward.cpp.o -o bin/runner_task3_solution -Wl,-rpath,/usr/lib "
             "tasks/libfsdp_task2.a common/libx.a tasks/libfsdp_task2.a /usr/lib/libfmt.so.9 "
             "/usr/lib/libz.a -lm").split()

    def test_the_reference_is_left_out_and_archives_come_once(self):
        parts = linking.taken_apart(self.WORDS, COURSE.task(3))
        self.assertEqual(parts.options, ["/usr/bin/c++", "-O1", "-g"])
        self.assertEqual(parts.objects, ["tests/a.dir/runner.cpp.o"])
        self.assertEqual(parts.archives, ["tasks/libfsdp_task2.a", "common/libx.a"])
        self.assertEqual(parts.system, ["-Wl,-rpath,/usr/lib", "/usr/lib/libfmt.so.9",
                                        "/usr/lib/libz.a", "-lm"])

    def test_a_command_without_archives_is_no_runners(self):
        with self.assertRaises(linking.BuildError):
            linking.taken_apart(["c++", "x.o", "-o", "y"], COURSE.task(3))


if __name__ == "__main__":
    unittest.main()
