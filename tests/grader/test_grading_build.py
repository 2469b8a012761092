"""Tests of build_submission.py: with which flags, in which tree, and with which seeds."""

import json
import os
import shutil
import tempfile
import types
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import build_submission
import jail
import manifest

GXX = shutil.which("g++")
TASK = manifest.load().task(3)
NAME = TASK.files[0]


class Seeds(unittest.TestCase):
    def test_they_follow_from_what_is_submitted(self):
        salt = build_submission.salt_of(TASK, {NAME: b"int x;"})
        self.assertEqual(salt, build_submission.salt_of(TASK, {NAME: b"int x;"}))
        others = [build_submission.salt_of(TASK, {NAME: b"int y;"}),
                  build_submission.salt_of(manifest.load().task(4), {NAME: b"int x;"})]
        self.assertEqual(len({salt, *others}), 3)
        self.assertTrue(all(0 <= each < 1 << 30 for each in (salt, *others)))

    def test_the_judge_is_told(self):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "CMakeCache.txt").write_text("", encoding="utf-8")
            (Path(name) / "state").mkdir()
            staging = build_submission.Staging(Path(name), {3: 41})
            told = [staging.judge_environment(Path(name), 1, "1G", task) for task in (3, 4)]
        self.assertEqual([each["FSDP_SALT"] for each in told], ["41", "0"])
        self.assertIn(name, told[0]["FSDP_JAIL"].split("\n"))


class Trees(unittest.TestCase):
    """A tree is graded wherever it lies, and by whatever path it is reached."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a b#\u00e9'")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o711)

    def tools(self, tree):
        """Of a build that was configured in `tree`."""
        build = self.folder / "build"
        build.mkdir(exist_ok=True)
        command = [GXX, "-Werror", "-std=c++20",
                   *(f"-I{tree / top}" for top in ("common", "tasks", "tests")),
                   "-o", "x.o", "-c", "x"]
        (build / "compile_commands.json").write_text(json.dumps([{
            "file": str(tree / "solutions" / TASK.folder / NAME), "directory": str(build),
            "command": " ".join("'" + word.replace("'", "'\"'\"'") + "'" for word in command)}]),
            encoding="utf-8")
        staging = build_submission.Staging.make(manifest.load())
        self.addCleanup(staging.remove)
        return build_submission.SubmissionBuilder(build, staging)

    @unittest.skipUnless(GXX, "needs g++")
    def test_a_tree_reached_through_a_link(self):
        link = self.folder / "link # \u00e9"
        link.symlink_to(manifest.ROOT)
        for tree in (manifest.ROOT, link):
            tools = self.tools(tree)
            source = tools.staging.root / "source"
            flags = tools._flags(TASK, NAME)
            self.assertEqual([word for word in flags if word.startswith("-I")],
                             [f"-I{source}/common", f"-I{source}/tasks"])
            path = source / "tasks" / TASK.folder / NAME
            path.write_text('#include "base/types.h"\n#include <cstddef>\nint x;\n',
                            encoding="utf-8")
            work = tools.staging.root / "work" / "task3"
            work.mkdir()
            uid = jail.fresh_uid() if jail.is_root() else None
            if uid is not None:
                os.chown(work, uid, uid)
            self.assertEqual(tools._compile_one(TASK, path, work, uid), ("", []))

    @unittest.skipUnless(GXX, "needs g++")
    def test_a_folder_for_temporary_files_of_that_kind(self):
        before = tempfile.tempdir
        tempfile.tempdir = str(self.folder)
        try:
            tools = self.tools(manifest.ROOT)
        finally:
            tempfile.tempdir = before
        path = tools.staging.root / "source" / "tasks" / TASK.folder / NAME
        task = types.SimpleNamespace(number=3, folder=TASK.folder, files=(NAME,))
        path.write_text('#include "base/types.h"\n#define P(a, b) a##b\nP(as, m)("");\n',
                        encoding="utf-8")
        work = tools.staging.root / "work" / "task3"
        work.mkdir()
        uid = jail.fresh_uid() if jail.is_root() else None
        if uid is not None:
            os.chown(work, uid, uid)
        problem, findings = tools._compile_one(task, path, work, uid)
        self.assertEqual((problem, [str(each) for each in findings]),
                         ("", [f"tasks/{TASK.folder}/{NAME}:3: assembler is not for a submission"]))


if __name__ == "__main__":
    unittest.main()
