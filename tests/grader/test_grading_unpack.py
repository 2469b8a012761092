"""Tests of unpack.py: what is taken from a stranger's archive, and what is not."""

import io
import os
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import course_path  # noqa: F401  must come first
import unpack

FORWARD = "tasks/task3_forward/forward.cpp"
ANSWERS = "tasks/task3_forward/answers.toml"
BACKWARD = "tasks/task4_backward/backward.cpp"
WANTED = [FORWARD, ANSWERS, BACKWARD, "tasks/task4_backward/answers.toml"]


def zipped(files, *, mode=None):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files:
            info = zipfile.ZipInfo(path)
            info.compress_type = zipfile.ZIP_DEFLATED
            if mode is not None:
                info.external_attr = mode << 16
            archive.writestr(info, data)
    return stream.getvalue()


def tarred(fill, mode="w:gz"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        fill(archive)
    return stream.getvalue()


def add(archive, path, data):
    info = tarfile.TarInfo(path)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


class Places(unittest.TestCase):
    def test_what_is_neither_a_file_nor_a_folder(self):
        for path, said in (("/dev/zero", "but a device or a pipe"),
                           ("/dev/zeros", "there is no such file or folder")):
            with self.assertRaisesRegex(unpack.UnpackError, f"{path}: .*{said}"):
                unpack.unpack(Path(path), WANTED)


class Archives(unittest.TestCase):
    def test_takes_the_files_of_the_course_at_any_small_depth(self):
        for prefix in ("", "mine/", "a/b/"):
            found = unpack.unpack_archive(zipped([(prefix + FORWARD, b"x"),
                                                  (prefix + ANSWERS, b"y")]), WANTED)
            self.assertEqual(found.files, {FORWARD: b"x", ANSWERS: b"y"})
            self.assertEqual(found.notes, [])
            self.assertEqual(found.missing([FORWARD, BACKWARD]), [BACKWARD])

    def test_tar_of_every_kind(self):
        for mode in ("w", "w:gz", "w:bz2", "w:xz"):
            data = tarred(lambda archive: add(archive, FORWARD, b"x"), mode)
            self.assertEqual(unpack.unpack_archive(data, WANTED).files, {FORWARD: b"x"})

    def test_a_loose_file_is_taken_by_its_name(self):
        found = unpack.unpack_archive(zipped([("forward.cpp", b"x"), ("answers.toml", b"y")]),
                                      WANTED)
        self.assertEqual(found.files, {FORWARD: b"x", ANSWERS: b"y"})
        self.assertEqual(found.notes, [f"forward.cpp: taken for {FORWARD}",
                                       f"answers.toml: taken for {ANSWERS}"])
        # Whose answers they are, only one file can say.
        found = unpack.unpack_archive(zipped([("forward.cpp", b"x"), ("backward.cpp", b"z"),
                                              ("answers.toml", b"y")]), WANTED)
        self.assertEqual(found.files, {FORWARD: b"x", BACKWARD: b"z"})
        self.assertIn("answers.toml: not a file of the course; ignored", found.notes)

    def test_backslashes_separate_folders(self):
        for prefix in ("", "mine\\"):
            data = zipped([(prefix + FORWARD.replace("/", "\\"), b"x"), ("tasks\\", b"")])
            self.assertEqual(unpack.unpack_archive(data, WANTED).files, {FORWARD: b"x"})

    def test_an_archive_made_inside_tasks(self):
        for prefix in ("", "mine/", "a/b/"):
            found = unpack.unpack_archive(zipped([(prefix + "task3_forward/forward.cpp", b"x"),
                                                  (prefix + "task3_forward/answers.toml", b"y"),
                                                  (prefix + "task4_backward/backward.cpp", b"z")]),
                                          WANTED)
            self.assertEqual(found.files, {FORWARD: b"x", ANSWERS: b"y", BACKWARD: b"z"})
            self.assertIn(f"{prefix}task3_forward/forward.cpp: taken for {FORWARD}", found.notes)

    def test_what_looks_alike_elsewhere_is_not_taken(self):
        strangers = [("solutions/task3_forward/forward.cpp", b"s"), ("build/forward.cpp", b"b"),
                     ("apps/course/skeletons/task3_forward/forward.cpp", b"k"),
                     ("tasks/old/task3_forward/forward.cpp", b"o"),
                     ("mine/old/forward.cpp", b"m"),
                     ("build/grade/submit/" + FORWARD, b"u")]
        for order in (strangers + [(FORWARD, b"x")], [(FORWARD, b"x")] + strangers):
            self.assertEqual(unpack.unpack_archive(zipped(order), WANTED).files, {FORWARD: b"x"})
        found = unpack.unpack_archive(zipped(strangers[:4]), WANTED)
        self.assertEqual(found.files, {})
        twice = [("a/forward.cpp", b"x"), ("b/forward.cpp", b"y")]
        self.assertIn("more than once",
                      unpack.unpack_archive(zipped(twice), WANTED).refused[FORWARD])

    def test_many_answers_cost_little(self):
        files = [(f"{i}/answers.toml", bytes(200 << 10)) for i in range(100)]
        found = unpack.unpack_archive(zipped([*files, (FORWARD, b"x"), ("./", b"")]), WANTED)
        self.assertEqual(found.files, {FORWARD: b"x"})

    def test_a_loose_file_is_taken_from_a_stream(self):
        data = tarred(lambda archive: [add(archive, "forward.cpp", b"x"),
                                       add(archive, "answers.toml", b"y"),
                                       add(archive, "notes.txt", b"z")])
        self.assertEqual(unpack.unpack_archive(data, WANTED).files, {FORWARD: b"x", ANSWERS: b"y"})

    def test_a_whole_folder_after_make_test(self):
        build = [(f"build/grade/file{i}.o", b"") for i in range(8000)]
        found = unpack.unpack_archive(zipped([*build, (FORWARD, b"x"), ("__MACOSX/._x", b"")]),
                                      WANTED)
        self.assertEqual(found.files, {FORWARD: b"x"})
        self.assertEqual(found.notes[-1], "7995 more: not a file of the course; ignored")
        self.assertEqual(len(found.notes), unpack.MOST_STRANGERS + 1)
        many = [(f"x{i}", b"") for i in range(unpack.MOST_ENTRIES)]
        found = unpack.unpack_archive(zipped([*many, (FORWARD, b"x")]), WANTED)
        self.assertEqual(found.files, {})
        self.assertIn("Leave build/ out", found.notes[0])

    def test_an_archive_in_an_archive_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "outer.zip"
            inner = zipped([(FORWARD, b"x")])
            path.write_bytes(zipped([("notes.txt", b""), ("hw/inner.zip", inner)]))
            found = unpack.unpack(path, WANTED)
            self.assertEqual(found.files, {})
            self.assertEqual(found.notes[0], "no file of the course was found: hw/inner.zip: an "
                             "archive in the submission, which is not opened; submit the files "
                             "that are in it")
            path.write_bytes(zipped([("notes.txt", b"")]))
            self.assertEqual(unpack.unpack(path, WANTED).notes, [
                f"no file of the course was found: submit {FORWARD}, or the file alone",
                "notes.txt: not a file of the course; ignored"])

    def test_stray_files_are_reported_and_ignored(self):
        found = unpack.unpack_archive(zipped([(FORWARD, b"x"), ("tests/judge.cpp", b"z"),
                                              ("results.json", b"{}"), (".DS_Store", b"")]),
                                      WANTED)
        self.assertEqual(list(found.files), [FORWARD])
        self.assertEqual(len(found.notes), 2)

    def test_traversal_and_absolute_paths_are_ignored(self):
        for path in ("../" + FORWARD, "/" + FORWARD, "a/../../" + FORWARD, "..\\" + FORWARD):
            found = unpack.unpack_archive(zipped([(path, b"x")]), WANTED)
            self.assertEqual(found.files, {})
            self.assertIn("leads out", found.notes[0])

    def test_links_are_refused_by_name(self):
        found = unpack.unpack_archive(zipped([(FORWARD, b"/etc/passwd")], mode=0o120777), WANTED)
        self.assertEqual(found.files, {})
        self.assertIn("link", found.refused[FORWARD])

        def fill(archive):
            info = tarfile.TarInfo(FORWARD)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
            info = tarfile.TarInfo(BACKWARD)
            info.type = tarfile.FIFOTYPE
            archive.addfile(info)
        found = unpack.unpack_archive(tarred(fill), WANTED)
        self.assertEqual(found.files, {})
        self.assertIn("link", found.refused[FORWARD])
        self.assertIn("regular", found.refused[BACKWARD])

    def test_the_same_file_twice_is_refused(self):
        found = unpack.unpack_archive(zipped([(FORWARD, b"x"), ("a/" + FORWARD, b"y")]), WANTED)
        self.assertEqual(found.files, {})
        self.assertIn("more than once", found.refused[FORWARD])

    def test_a_bomb_costs_little(self):
        found = unpack.unpack_archive(zipped([(FORWARD, bytes(40 << 20)), (ANSWERS, b"y")]), WANTED)
        self.assertEqual(list(found.files), [ANSWERS])
        self.assertIn("256 KiB", found.refused[FORWARD])
        with self.assertRaisesRegex(unpack.UnpackError, "64 MiB"):
            unpack.unpack_archive(tarred(lambda a: [add(a, "big", bytes(80 << 20)),
                                                    add(a, FORWARD, b"x")]), WANTED)

    def test_what_is_no_archive_says_so(self):
        for data in (b"", b"hello", b"\x1f\x8bbroken", b"PK\x03\x04broken"):
            with self.assertRaisesRegex(unpack.UnpackError, "no archive|empty"):
                found = unpack.unpack_archive(data, WANTED)
                if not found.files:
                    raise unpack.UnpackError("empty")

    def test_json_survives_and_is_checked_again(self):
        found = unpack.Submission({FORWARD: b"\x00\xff"}, {BACKWARD: "why"}, ["note"])
        self.assertEqual(unpack.from_json(unpack.to_json(found), WANTED), found)
        stray = unpack.Submission({"etc/passwd": b""}, {}, [])
        with self.assertRaises(unpack.UnpackError):
            unpack.from_json(unpack.to_json(stray), WANTED)


class Folders(unittest.TestCase):
    def test_a_folder(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / FORWARD).parent.mkdir(parents=True)
            (folder / BACKWARD).parent.mkdir(parents=True)
            (folder / FORWARD).write_bytes(b"x")
            (folder / "notes.txt").write_bytes(b"x")
            os.symlink("/etc/passwd", folder / BACKWARD)
            found = unpack.unpack(folder, WANTED)
            self.assertEqual(found.files, {FORWARD: b"x"})
            self.assertIn("link", found.refused[BACKWARD])
            self.assertEqual(found.notes, ["notes.txt: not a file of the course; ignored"])

    def test_a_linked_folder_is_not_entered(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "real").mkdir()
            (folder / "real" / "forward.cpp").write_bytes(b"x")
            (folder / "mine" / "tasks").mkdir(parents=True)
            os.symlink(folder / "real", folder / "mine" / "tasks" / "task3_forward")
            self.assertEqual(unpack.unpack(folder / "mine", WANTED).files, {})

    def test_a_missing_submission(self):
        with self.assertRaisesRegex(unpack.UnpackError, "no such file"):
            unpack.unpack(Path("/nonexistent/submission.zip"), WANTED)


class ArchiveInAFolder(unittest.TestCase):
    """Gradescope unpacks a .zip before the autograder sees it, and nothing else."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.archive = tarred(lambda archive: add(archive, FORWARD, b"x"))

    def test_it_stands_for_the_folder(self):
        (self.folder / "submission.tar.gz").write_bytes(self.archive)
        (self.folder / "notes.txt").write_bytes(b"")
        found = unpack.unpack(self.folder, WANTED)
        self.assertEqual(found.files, {FORWARD: b"x"})
        self.assertEqual(found.notes, ["notes.txt: not a file of the course; ignored"])

    def test_it_is_opened_in_the_jail(self):
        (self.folder / "submission.tar.gz").write_bytes(self.archive)

        def in_jail(wanted, file):
            return unpack.to_json(unpack.unpack_archive(file.read(), wanted))

        self.assertEqual(unpack.unpack(self.folder, WANTED, in_jail).files, {FORWARD: b"x"})
        with self.assertRaises(ZeroDivisionError):
            unpack.unpack(self.folder, WANTED, lambda *_: 1 / 0)

    def test_files_beside_it_come_first(self):
        (self.folder / "submission.tar.gz").write_bytes(self.archive)
        (self.folder / "backward.cpp").write_bytes(b"y")
        found = unpack.unpack(self.folder, WANTED)
        self.assertEqual(found.files, {BACKWARD: b"y"})
        self.assertIn("submission.tar.gz: not a file of the course; ignored", found.notes)

    def test_not_two_of_them_and_not_a_link(self):
        (self.folder / "submission.tar.gz").write_bytes(self.archive)
        (self.folder / "old.tar.gz").write_bytes(self.archive)
        self.assertEqual(unpack.unpack(self.folder, WANTED).files, {})
        (self.folder / "old.tar.gz").unlink()
        (self.folder / "submission.tar.gz").rename(self.folder / "other")
        (self.folder / "submission.tar.gz").symlink_to(self.folder / "other")
        self.assertEqual(unpack.unpack(self.folder, WANTED).files, {})


if __name__ == "__main__":
    unittest.main()
