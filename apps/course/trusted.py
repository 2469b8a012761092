"""What a student's object may be compared with: the interface of its task, who defines what.

Where the reference is (the full tree), all of it is read off the reference's object. A student kit
has no reference: there it is read from apps/course/interface.json, which make student-kit writes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import object_file
import stamp
import whole_file
from object_file import ObjectFile

ROOT = Path(__file__).resolve().parents[2]
INTERFACE = ROOT / "apps" / "course" / "interface.json"


class TrustedError(Exception):
    """Something that the audit compares with is not built."""


@dataclass(frozen=True)
class Reference:
    """Of one task, over all its files."""

    strong: frozenset[str]  # what the task defines, and nothing but it
    weak: frozenset[str]  # what headers make it define besides
    used: frozenset[str]  # what it takes from elsewhere

    def to_json(self) -> dict[str, list[str]]:
        return {"strong": sorted(self.strong), "weak": sorted(self.weak),
                "used": sorted(self.used)}

    @staticmethod
    def from_json(document: dict[str, list[str]]) -> Reference:
        return Reference(*(frozenset(document[name]) for name in ("strong", "weak", "used")))

    @staticmethod
    def of(objects: list[ObjectFile]) -> Reference:
        symbols = [symbol for each in objects for symbol in each.symbols]
        strong = frozenset(s.name for s in symbols if s.strong)
        return Reference(
            strong, frozenset(s.name for s in symbols if s.exported) - strong,
            frozenset(s.name for s in symbols if s.name and not s.defined) - strong)


@dataclass(frozen=True)
class Provided:
    """A symbol of the library or of an earlier task."""

    member: str  # "comm/thread_world", "task2/flat_parameter"
    strong: bool


@dataclass(frozen=True)
class Trusted:
    """All that the audit of one task's objects compares with."""

    task: int
    reference: Reference
    provided: dict[str, Provided]
    system: frozenset[str]  # what libc, libm and libstdc++ export

    @staticmethod
    def for_task(task: object, build: Path) -> Trusted:
        """`task` of the manifest, whose libraries are built in `build`."""
        number = task.number  # type: ignore[attr-defined]
        return Trusted(number, reference_of(task, build), provided_before(number, build),
                       system_symbols(build))


def reference_of(task: object, build: Path) -> Reference:
    number, folder = task.number, task.folder  # type: ignore[attr-defined]
    if not (ROOT / "solutions" / folder).is_dir():
        if not INTERFACE.is_file():
            raise TrustedError(f"{INTERFACE.relative_to(ROOT)} is missing; unpack the kit anew")
        document = json.loads(INTERFACE.read_text(encoding="utf-8"))
        return Reference.from_json(document[str(number)])
    library = build / "tasks" / f"libfsdp_task{number}.a"
    if library.is_file():
        return Reference.of([ObjectFile(data, name)
                             for name, data in object_file.members(library)])
    objects = [path for name in task.files  # type: ignore[attr-defined]
               for path in (build / "tests" / "graded" / "CMakeFiles" /
                            f"runner_task{number}_solution.dir").rglob(
                                f"solutions/{folder}/{name}.o")]
    if len(objects) != len(task.files):  # type: ignore[attr-defined]
        raise TrustedError(f"{library} is missing; build the target fsdp_task{number} first")
    return Reference.of([ObjectFile(path.read_bytes(), path.name) for path in objects])


def provided_before(number: int, build: Path) -> dict[str, Provided]:
    """Everything the library and the tasks before `number` define, by symbol."""
    provided: dict[str, Provided] = {}
    libraries = [(path.parent.name, path)
                 for path in sorted((build / "common").glob("*/libfsdp_*.a"))]
    if not libraries:
        raise TrustedError(f"{build}/common holds no library; build first (make test-task{number})")
    for before in range(1, number):
        path = build / "tasks" / f"libfsdp_task{before}.a"
        if path.is_file():
            libraries.append((f"task{before}", path))
    for folder, path in libraries:
        for name, (stem, strong) in _archive_symbols(path, build).items():
            if name not in provided or strong:
                provided[name] = Provided(f"{folder}/{stem}", bool(strong))
    return provided


def _archive_symbols(path: Path, build: Path) -> dict[str, tuple[str, bool]]:
    def read() -> dict[str, tuple[str, bool]]:
        found: dict[str, tuple[str, bool]] = {}
        for member, data in object_file.members(path):
            if member.startswith("unity_"):
                raise TrustedError(f"{path}: its files were compiled together; the audit needs "
                                   "their names. Turn CMAKE_UNITY_BUILD off in this build")
            stem = re.sub(r"(\.cpp)?\.o(bj)?$", "", member)
            for symbol in ObjectFile(data, member).symbols:
                if symbol.exported and symbol.name:
                    known = found.get(symbol.name)
                    if known is None or symbol.strong and not known[1]:
                        found[symbol.name] = (stem, symbol.strong)
        return found
    return _cached(build, path, read)


def system_symbols(build: Path) -> frozenset[str]:
    """What the shared libraries of the system export, and a definition of ours would replace."""
    names: set[str] = set()
    for library in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        asked = subprocess.run(["g++", f"-print-file-name={library}"], capture_output=True,
                               text=True, check=False).stdout.strip()
        path = Path(os.path.realpath(asked))
        if path.is_file():
            names.update(_cached(build, path, lambda path=path: [
                symbol.name for symbol in ObjectFile(path.read_bytes(), library, True).symbols
                if symbol.exported]))
    return frozenset(names)


def _cached(build: Path, path: Path, read: object) -> object:
    """read(), remembered in the build folder until `path` changes."""
    noted = stamp.of([path])
    cache = build / "audit" / (re.sub(r"[^A-Za-z0-9_.+-]", "_", str(path)).strip("_") + ".json")
    try:
        document = json.loads(cache.read_text(encoding="utf-8"))
        if stamp.holds(document["of"], [path]):
            return document["symbols"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    symbols = read()  # type: ignore[operator]
    try:
        whole_file.write(cache, json.dumps({"of": noted, "symbols": symbols}))
    except OSError:
        pass  # a build folder that cannot be written is read again next time
    return symbols


def write_interface(tasks: list[object], build: Path, path: Path) -> None:
    """What a student kit needs in place of the references."""
    document = {str(task.number): reference_of(task, build).to_json()  # type: ignore[attr-defined]
                for task in tasks}
    whole_file.write(path, json.dumps(document, indent=0) + "\n")
