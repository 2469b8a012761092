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
import precompiled
import stamp
from object_file import ObjectFile

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
        self.assertIn(name, told[0]["FSDP_RESIDENT_JAIL"].split("\n"))


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
        command = [GXX, "-O1", "-Werror", "-std=c++20",
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

    @unittest.skipUnless(GXX, "needs g++")
    def test_a_header_that_is_included_anyhow_is_read_compiled(self):
        tools = self.tools(manifest.ROOT)
        precompiled.make(tools.build, build_submission.compile_commands(
            tools.build)[f"{TASK.folder}/{NAME}"])
        path = tools.staging.root / "source" / "tasks" / TASK.folder / NAME
        path.write_bytes((manifest.ROOT / "solutions" / TASK.folder / NAME).read_bytes())
        work = tools.staging.root / "work" / "task3"
        work.mkdir()
        uid = jail.fresh_uid() if jail.is_root() else None
        if uid is not None:
            os.chown(work, uid, uid)
        objects = []
        for flags in (tools._flags(TASK, NAME), tools._flags(TASK, NAME, path)):
            ended = tools._compile_object([*flags, "-H"], path, work, uid)
            self.assertEqual(ended.code, 0, ended.err)
            used = [line for line in ended.err.decode().splitlines() if line.startswith("! ")]
            symbols = ObjectFile((work / f"{NAME}.o").read_bytes(), NAME).symbols
            objects.append((len(used), sorted((each.name, each.strong) for each in symbols)))
        (uses, symbols), (uses_it, same_symbols) = objects
        self.assertEqual((uses, uses_it), (0, 1))
        self.assertEqual(same_symbols, symbols)
        # Nothing that comes before it loses its meaning.
        path.write_text(f'#include <vector>\n#define private public\n#include "{precompiled.HEADER}"'
                        '\nint x(fsdp::nn::Module& m) { return m.parameters_.size(); }\n',
                        encoding="utf-8")
        self.assertNotIn("-include", tools._flags(TASK, NAME, path))


class Stamps(unittest.TestCase):
    def test_they_hold_until_a_file_changes(self):
        with tempfile.TemporaryDirectory() as name:
            one, other = Path(name) / "one", Path(name) / "a b"
            for path in (one, other):
                path.write_text("x", encoding="utf-8")
                os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
            files = [one, other]
            noted = stamp.of(files)
            self.assertEqual(stamp.names(noted), [str(path) for path in files])
            self.assertTrue(stamp.holds(noted, files))
            self.assertFalse(stamp.holds(noted, files[:1]))
            self.assertFalse(stamp.holds(noted, files[::-1]))
            for time, holds in ((1_700_000_000_000_000_000, True), (1_700_000_000_123_456_790, False),
                                (1_700_000_001_000_000_000, False), (1, False)):
                os.utime(one, ns=(time, time))
                self.assertEqual(stamp.holds(noted, files), holds, time)
            os.utime(one, ns=(1_700_000_000_000_000_000,) * 2)
            other.unlink()
            self.assertFalse(stamp.holds(noted, files))
            for foreign in ("of an earlier form", "/a/header.h 1700000000000000000", "x", ""):
                names = stamp.names(f"{foreign}\n" * 2)
                self.assertFalse(stamp.holds(f"{foreign}\n" * 2, names), foreign)
                self.assertFalse(stamp.holds(f"{foreign}\n" * 2, files), foreign)


class Precompiled(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for path, text in (("common/" + precompiled.HEADER, "#pragma once\n"),
                           ("common/a.h", f'#include "{precompiled.HEADER}"\n#include "a.h"\n'),
                           ("tasks/b.h", "# include\t\"a.h\"\n"), ("tasks/c.h", "")):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")

    def test_only_who_begins_by_including_it_gets_it(self):
        own = f'#include "{precompiled.HEADER}"\n'
        for text, is_included in (
                (own, True), ('// x\n\n/* y\n*/#include <vector>\n# include "b.h"\nint z;', True),
                ('#include "c.h"\n#include <vector>\n', False),
                ('#include "nowhere.h"\n// nn/module.h\n', False),
                ("#define private public\n" + own, False), ("#if 0\n" + own + "#endif\n", False),
                ("/*\n" + own + "*/\nint x;", False), ("// x \\\n" + own, False),
                ("#include <vector>\nint x;\n" + own, False), ("\n" * (256 << 10) + "x", False),
                ("/*" * (128 << 10), False)):
            source = self.root / "tasks" / "x.cpp"
            source.write_text(text, encoding="utf-8")
            self.assertEqual(precompiled.is_included(source, self.root), is_included, text[:80])

    @unittest.skipUnless(GXX, "needs g++")
    def test_it_is_compiled_anew_when_a_file_or_an_option_changed(self):
        header = self.root / "common" / precompiled.HEADER
        header.write_text('#pragma once\n#include "a b.h"\n', encoding="utf-8")
        other = self.root / "common" / "a b.h"
        other.write_text("", encoding="utf-8")
        flags = [GXX, f"-I{self.root / 'common'}"]
        self.assertIsNone(precompiled.find(self.root, flags))
        made = []
        for change in (lambda: None, lambda: os.utime(other, (1, 1)), other.unlink):
            change()
            self.assertIsNone(precompiled.find(self.root, flags))
            header.write_text("#pragma once\n" + '#include "a b.h"\n' * other.exists(),
                              encoding="utf-8")
            precompiled.make(self.root, flags)
            made.append(precompiled.find(self.root, flags).stat().st_mtime_ns)
            precompiled.make(self.root, flags)
            self.assertEqual(precompiled.find(self.root, flags).stat().st_mtime_ns, made[-1])
        self.assertEqual(len(set(made)), 3)
        self.assertIsNone(precompiled.find(self.root, [*flags, "-O1"]))
        with self.assertRaisesRegex(build_submission.BuildError, "nn/module.h does not compile"):
            precompiled.make(self.root, [GXX])
        self.assertEqual(sorted(path.name for path in (self.root / "precompiled").iterdir()
                                if not path.name.startswith(".")),
                         ["precompiled.h", "precompiled.h.gch", "precompiled.h.of"])


if __name__ == "__main__":
    unittest.main()
