"""Takes a submission apart: a folder, a .zip or a .tar (.gz, .bz2, .xz). Only the course's files.

What is taken: the files points.toml names, under tasks/taskN_x/, and answers.toml beside them. If
they are not there: under taskN_x/ alone, or by their names. Regular files of at most 256 KiB; no
links, no devices, no path that leads out, each file once. Everything else is reported and ignored.
A file that is missing is reported; its task scores 0, and the rest is graded.

A folder that holds nothing of this but one archive stands for that archive.

Archives are opened in the jail: `unpack.py PATH…` reads one from standard input and prints JSON.
"""

from __future__ import annotations

import base64
import io
import json
import os
import stat
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

POLICY = "tasks/race/policy.cpp"  # of the race, which is no task; it need not be there
MOST_BYTES = 256 << 10  # of one file
MOST_ENTRIES = 50_000  # of an archive or a folder; a whole one after make test has 8,000
MOST_TOTAL = 64 << 20  # bytes of an archive, unpacked
MOST_DEPTH = 3  # folders around tasks/
MOST_NOTES = 30
MOST_ANSWERS = 16  # loose answers.toml; all are kept until the end
MOST_STRANGERS = 5  # files that are not the course's, by name
ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")
PACKED = (*ARCHIVES, ".7z", ".rar")  # what is named where nothing else is found
_SILENT = {".DS_Store", "__MACOSX", "Thumbs.db", ".git"}
_STRANGE = "not a file of the course; ignored"
# What lies below one of these is no loose file of the student's, whatever its name.
_OF_THE_COURSE = {"apps", "build", "common", "docs", "solutions", "tasks", "tests", "writeup"}


class UnpackError(Exception):
    """The submission cannot be read at all."""


@dataclass
class Submission:
    """What was found. `refused` says why a file of the course was not taken."""

    files: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)
        elif len(self.notes) == MOST_NOTES:
            self.notes.append("… and more")

    def missing(self, wanted: Iterable[str]) -> list[str]:
        return [path for path in wanted if path not in self.files]


@dataclass(frozen=True)
class Entry:
    """One thing in an archive or folder; `read` is None for what is not a regular file."""

    path: str
    nbytes: int
    kind: str  # "file", "folder", "link", "other"
    read: object = None


def wanted_paths(course: object) -> list[str]:
    """All paths that a submission may hold."""
    return [*(f"tasks/{task.folder}/{name}" for task in course.tasks  # type: ignore[attr-defined]
              for name in (*task.files, "answers.toml")), POLICY]


def shown(path: str) -> str:
    """A stranger's path, fit for a message."""
    plain = path.encode("utf-8", "replace").decode("utf-8")
    return ascii(plain)[1:-1][:120]


def name_of(path: Path) -> str:
    """The name of a submission as text that can be printed and written, also where it is no UTF-8."""
    return os.fsencode(path.name).decode("utf-8", "backslashreplace")


def take(entries: Iterable[Entry], wanted: list[str]) -> Submission:
    """The files of the course among `entries`."""
    found = Submission()
    taken = _Taken(wanted)
    strangers: list[str] = []
    for count, entry in enumerate(entries):
        if count >= MOST_ENTRIES:
            found.note(f"more than {MOST_ENTRIES} entries: the rest is ignored. Leave build/ out")
            break
        path = entry.path.replace("\\", "/")  # some programs for Windows write these
        parts = PurePosixPath(path).parts
        if not parts or entry.kind == "folder" or path.endswith("/") or _SILENT & set(parts):
            continue
        if path.startswith("/") or ".." in parts or ":" in parts[0]:
            found.note(f"{shown(entry.path)}: leads out of the submission; ignored")
        elif not taken.add(parts, entry):
            strangers.append(shown(entry.path))
    taken.move_to(found, strangers)
    if not found.files and not found.refused:
        for path in filter(lambda path: path.lower().endswith(PACKED), strangers):
            found.note(f"{path}: an archive in the submission, which is not opened; submit the "
                       "files that are in it")
    for path in strangers[:MOST_STRANGERS]:
        found.note(f"{path}: {_STRANGE}")
    if len(strangers) > MOST_STRANGERS:
        found.note(f"{len(strangers) - MOST_STRANGERS} more: {_STRANGE}")
    return found


@dataclass
class _Found:
    """A file that may be one of the course's, read where an archive can be read only once."""

    shown: str
    data: bytes = b""
    why_not: str = ""


class _Taken:
    """Candidates for the files of the course: the more of its path a file has, the sooner."""

    def __init__(self, wanted: list[str]) -> None:
        self._wanted = wanted
        self._by_rank: list[dict[str, _Found]] = [{}, {}, {}]
        self._answers: dict[tuple[str, ...], _Found] = {}  # by folder
        self._tasks: dict[tuple[str, ...], set[str]] = {}  # whose files are loose in a folder

    def add(self, parts: tuple[str, ...], entry: Entry) -> bool:
        """False if it is none of them."""
        folder, name = parts[:-1], parts[-1]
        for begin in range(min(len(folder), MOST_DEPTH + 1)):
            if "/".join(parts[begin:]) in self._wanted:
                is_copy = bool(_OF_THE_COURSE & set(parts[:begin]))  # build/grade/submit/tasks
                return self._put(1 if is_copy else 0, "/".join(parts[begin:]), entry)
        if len(folder) > MOST_DEPTH or _OF_THE_COURSE & set(folder):
            return False
        if (path := "/".join(("tasks", *parts[-2:]))) in self._wanted:
            return self._put(1, path, entry)
        named = [path for path in self._wanted if PurePosixPath(path).name == name]
        if len(named) == 1:
            self._tasks.setdefault(folder, set()).add(str(PurePosixPath(named[0]).parent))
            return self._put(2, named[0], entry)
        # answers.toml: of the task whose file lies there
        if not named or folder in self._answers or len(self._answers) == MOST_ANSWERS:
            return False
        self._answers[folder] = _read(entry)
        return True

    def _put(self, rank: int, target: str, entry: Entry) -> bool:
        candidates = self._by_rank[rank]
        if target in candidates:
            candidates[target] = _Found(shown(entry.path), why_not="it is there more than once")
        else:
            candidates[target] = _read(entry)
        return True

    def move_to(self, found: Submission, strangers: list[str]) -> None:
        for folder, answers in self._answers.items():
            tasks = self._tasks.get(folder, set())
            if len(tasks) == 1:
                self._by_rank[2].setdefault(f"{next(iter(tasks))}/answers.toml", answers)
            else:
                strangers.append(answers.shown)
        for rank, candidates in enumerate(self._by_rank):
            for target, each in candidates.items():
                if target in found.files or target in found.refused:
                    found.note(f"{each.shown}: ignored, since {target} is there too")
                    continue
                if rank > 0:
                    found.note(f"{each.shown}: taken for {target}")
                if each.why_not:
                    found.refused[target] = each.why_not
                else:
                    found.files[target] = each.data


def _read(entry: Entry) -> _Found:
    found = _Found(shown(entry.path))
    if entry.kind != "file":
        found.why_not = ("it is a link; submit the file itself" if entry.kind == "link"
                         else "it is not a regular file")
        return found
    data = b"" if entry.nbytes > MOST_BYTES else entry.read()  # type: ignore[operator]
    if max(entry.nbytes, len(data)) > MOST_BYTES:
        found.why_not = f"it is larger than {MOST_BYTES >> 10} KiB"
    else:
        found.data = data
    return found


# ------------------------------------------------------------------------------ where entries are


def entries_of_folder(folder: Path) -> Iterator[Entry]:
    """Never follows a link, not even one that is put in place meanwhile."""
    for current, folders, files in os.walk(folder, followlinks=False):
        here = Path(current)
        if len(here.relative_to(folder).parts) > MOST_DEPTH + 2:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in _SILENT)
        for name in sorted(folders):
            if (here / name).is_symlink():
                yield Entry(str((here / name).relative_to(folder)), 0, "link")
        for name in sorted(files):
            path = here / name
            info = path.lstat()
            kind = ("file" if stat.S_ISREG(info.st_mode) else
                    "link" if stat.S_ISLNK(info.st_mode) else "other")
            yield Entry(str(path.relative_to(folder)), info.st_size, kind,
                        lambda path=path: _read_regular(path))


def _read_regular(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        return file.read(MOST_BYTES + 1)


def entries_of_zip(archive: zipfile.ZipFile) -> Iterator[Entry]:
    for info in archive.infolist():
        mode = info.external_attr >> 16
        kind = ("folder" if info.is_dir() else "link" if stat.S_ISLNK(mode) else
                "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "other")

        def read(info: zipfile.ZipInfo = info) -> bytes:
            with archive.open(info) as file:
                return file.read(MOST_BYTES + 1)  # whatever the header claims
        yield Entry(info.filename, info.file_size, kind, read)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error once too much has come out of it."""

    def __init__(self, inner: io.BufferedIOBase) -> None:
        self._inner, self._left = inner, MOST_TOTAL

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise UnpackError(f"it unpacks to more than {MOST_TOTAL >> 20} MiB; leave build/ out")
        return data


def entries_of_tar(archive: tarfile.TarFile) -> Iterator[Entry]:
    for info in archive:
        kind = ("file" if info.isreg() else "folder" if info.isdir() else
                "link" if info.issym() or info.islnk() else "other")

        def read(info: tarfile.TarInfo = info) -> bytes:
            file = archive.extractfile(info)
            return file.read(MOST_BYTES + 1) if file is not None else b""
        yield Entry(info.name, info.size, kind, read)


def unpack_archive(data: bytes, wanted: list[str]) -> Submission:
    """The files in an archive of any of the kinds. Reads bounded amounts of it only."""
    stream = io.BytesIO(data)
    try:
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                return take(entries_of_zip(archive), wanted)
        with _opened(data) as inner, tarfile.open(fileobj=_Bounded(inner), mode="r|") as tar:
            return take(entries_of_tar(tar), wanted)
    except UnpackError:
        raise
    except Exception as error:  # a stranger's bytes: every kind of error is possible
        raise UnpackError(f"it is no archive that can be read ({type(error).__name__}: "
                          f"{shown(str(error))}); submit a folder, .zip or .tar.gz") from error


def _opened(data: bytes) -> io.BufferedIOBase:
    if data[:2] == b"\x1f\x8b":
        import gzip
        return gzip.GzipFile(fileobj=io.BytesIO(data))  # type: ignore[return-value]
    if data[:3] == b"BZh":
        import bz2
        return bz2.BZ2File(io.BytesIO(data))  # type: ignore[return-value]
    if data[:6] == b"\xfd7zXZ\x00":
        import lzma
        return lzma.LZMAFile(io.BytesIO(data))  # type: ignore[return-value]
    return io.BytesIO(data)


# ---------------------------------------------------------------------------- in and out of a jail


def to_json(found: Submission) -> str:
    files = {path: base64.b64encode(data).decode() for path, data in found.files.items()}
    return json.dumps({"files": files, "refused": found.refused, "notes": found.notes})


def from_json(text: str, wanted: list[str]) -> Submission:
    """What a jailed unpack printed; checked again, since it came out of a jail."""
    document = json.loads(text)
    files = {path: base64.b64decode(data, validate=True)
             for path, data in document["files"].items()}
    for path, data in files.items():
        if path not in wanted or len(data) > MOST_BYTES:
            raise UnpackError(f"unpacking returned {shown(path)}, which was not asked for")
    refused = {path: str(why)[:200] for path, why in document["refused"].items() if path in wanted}
    return Submission(files, refused, [str(note)[:200] for note in document["notes"]])


def unpack(submission: Path, wanted: list[str], in_jail: object = None) -> Submission:
    """The files of `submission`. `in_jail(arguments, stdin)` runs this file jailed, for archives;
    without it they are opened right here. If nothing of the course is in it, the first note says
    what should be."""
    found = _unpacked(submission, wanted, in_jail)
    if not found.files and not found.refused:
        reasons = [note for note in found.notes if not note.endswith(_STRANGE)]
        why = found.notes.pop(found.notes.index(reasons[0])) if reasons else (
            f"submit {wanted[0]}, or the file alone")
        found.notes.insert(0, f"no file of the course was found: {why}")
    return found


def _unpacked(submission: Path, wanted: list[str], in_jail: object) -> Submission:
    if submission.is_dir():
        found = take(entries_of_folder(submission), wanted)
        inner = None if found.files or found.refused else _only_archive(submission)
        if inner is None:
            return found
        # Gradescope unpacks a .zip only: what make submit writes arrives as one file in a folder.
        inside = _unpacked(inner, wanted, in_jail)
        outside = [note for note in found.notes if not note.startswith(f"{shown(inner.name)}: ")]
        inside.notes[:0] = outside
        return inside
    if not submission.is_file():
        if submission.exists():
            raise UnpackError(f"{submission}: neither a file nor a folder, but a device or a pipe")
        raise UnpackError(f"{submission}: there is no such file or folder")
    if submission.stat().st_size > MOST_TOTAL:
        raise UnpackError(f"{submission}: larger than {MOST_TOTAL >> 20} MiB; leave build/ out")
    if in_jail is None:
        return unpack_archive(submission.read_bytes(), wanted)
    with submission.open("rb") as file:
        return from_json(in_jail(wanted, file), wanted)  # type: ignore[operator]


def _only_archive(folder: Path) -> Path | None:
    found = [path for path in folder.iterdir() if path.name.endswith(ARCHIVES)
             and not path.is_symlink() and path.is_file()]
    return found[0] if len(found) == 1 else None


def main() -> int:
    try:
        print(to_json(unpack_archive(sys.stdin.buffer.read(MOST_TOTAL + 1), sys.argv[1:])))
    except UnpackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
