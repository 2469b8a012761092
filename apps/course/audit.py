"""The object audit: what a student's object may define, run, keep and call. Runs before linking.

It defines exactly the task's interface; runs nothing before main; keeps no data that can be written
(ranks are threads: a static is shared by all of them); and calls only the standard library, plain
libc, the course's library and earlier tasks, but for what could write the measurements, read files
or reach outside. apps/course/trusted.py says what it is compared with, policy.py what is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import manifest
import object_file
import source_check
import policy
from object_file import ObjectError, ObjectFile, Relocation, Section, Symbol
from source_check import Finding
from trusted import Trusted, TrustedError


@dataclass(frozen=True)
class _Place:
    """Where in an object something is: turned into a line of the source at the end."""

    section: str
    offset: int


class Audit:
    """The audit of one object of one task."""

    def __init__(self, path: Path, trusted: Trusted) -> None:
        self.path, self.trusted = path, trusted
        self.object = ObjectFile(path.read_bytes(), path.name)
        self.relocations = list(self.object.relocations())
        self.names = object_file.demangled([s.name for s in self.object.symbols if s.name])
        self.raw: list[tuple[str, str, _Place | None]] = []

    def run(self) -> list[Finding]:
        for check in (self.check_definitions, self.check_weak, self.check_initializers,
                      self.check_data, self.check_calls, self.check_instructions):
            check()
        places = [(p.section, p.offset) for _, _, p in self.raw if p is not None]
        lines = object_file.lines_of(self.path, places)
        return [Finding(rule, text, _relative(lines.get((place.section, place.offset), ""))
                        if place is not None else "")
                for rule, text, place in self.raw]

    def name(self, symbol: Symbol) -> str:
        return self.names.get(symbol.name, symbol.name)

    def add(self, rule: str, text: str, symbol: Symbol | None = None) -> None:
        self.raw.append((rule, text, None if symbol is None else self.place(symbol)))

    def place(self, symbol: Symbol) -> _Place | None:
        """Of a definition, or of the first use."""
        section = self.object.section_of(symbol)
        if section is not None and symbol.kind == object_file.FUNCTION:
            return _Place(section.name, symbol.value)
        for relocation in self.relocations:
            if relocation.symbol.name == symbol.name:
                return _Place(self.object.sections[relocation.section].name, relocation.offset)
        return None

    # ---------------------------------------------------------------------------- what it defines

    def check_definitions(self) -> None:
        interface, task = self.trusted.reference.strong, self.trusted.task
        reported = set()
        for symbol in self.object.symbols:
            if symbol.kind == object_file.IFUNC:
                self.add("ifunc", f"{self.name(symbol)} is chosen at run time (ifunc); write a "
                         "plain function", symbol)
            if symbol.section == object_file.COMMON_INDEX:
                self.add("data", f"{self.name(symbol)} is a global variable", symbol)
            name = self.name(symbol)
            if symbol.strong and symbol.name not in interface and name not in reported:
                reported.add(name)  # a constructor has several symbols
                provided = self.trusted.provided.get(symbol.name)
                if provided is not None:
                    self.add("takeover", f"{name} is {provided.member}'s; a submission cannot "
                             "replace it", symbol)
                elif symbol.name in self.trusted.system:
                    self.add("takeover", f"{name} is the system's; a submission cannot replace it",
                             symbol)
                else:
                    self.add("interface", f"{name} is not of the interface of task {task}; put "
                             "helpers into an anonymous namespace", symbol)

    def check_weak(self) -> None:
        """Inline functions and templates: any, but none that takes another's place."""
        known = self.trusted.reference.weak | self.trusted.reference.strong
        for symbol in self.object.symbols:
            if symbol.binding not in (object_file.WEAK, object_file.UNIQUE) or not symbol.defined:
                continue
            if symbol.name in known or policy.compilers_own(symbol.name):
                continue
            name = self.name(symbol)
            provided = self.trusted.provided.get(symbol.name)
            if provided is not None and provided.strong:
                self.add("takeover", f"{name} is {provided.member}'s; a submission cannot replace "
                         "it", symbol)
            elif not self.object.in_comdat(symbol):
                self.add("weak", f"{name} is declared weak; write a plain function", symbol)
            elif not symbol.name.startswith("_Z"):
                self.add("takeover", f'{name} is an extern "C" function; put helpers into an '
                         "anonymous namespace", symbol)
            elif symbol.name in self.trusted.system and not policy.is_template(name):
                self.add("takeover", f"{name} is the system's; a submission cannot replace it",
                         symbol)

    # -------------------------------------------------------------------------- what runs by itself

    def check_initializers(self) -> None:
        for section in self.object.sections:
            base = section.name
            if section.size == 0:
                continue
            if re.match(r"\.(preinit_array|fini_array|ctors|dtors|init$|fini$)", base):
                self.raw.append(("initializer", "something is to run before main, or after it "
                                 f"(section {base}); that is not allowed", self._first(section)))
            elif base.startswith(".init_array"):
                self._check_init_array(section)

    def _first(self, section: Section) -> _Place | None:
        for relocation in self.relocations:
            if relocation.section == section.index:
                target = self._target(relocation)
                if target is not None:
                    return self.place(target)
        return None

    def _target(self, relocation: Relocation) -> Symbol | None:
        """The function that an entry of an array points to."""
        symbol = relocation.symbol
        if symbol.kind != object_file.SECTION:
            return symbol
        for each in self.object.symbols:
            if (each.section == symbol.section and each.value == relocation.addend
                    and each.kind == object_file.FUNCTION):
                return each
        return None

    def _check_init_array(self, section: Section) -> None:
        entries = [r for r in self.relocations if r.section == section.index]
        if section.name != ".init_array" or len(entries) != 1 or section.size != 8:
            self.raw.append(("initializer", "something is to run before main; that is not allowed",
                             self._first(section)))
            return
        function = self._target(entries[0])
        if function is None or not function.name.startswith("_GLOBAL__sub_I_"):
            name = self.name(function) if function is not None else "a function"
            self.add("initializer", f"{name} is to run before main; that is not allowed", function)
            return
        self._check_initializer(function, set())

    def _check_initializer(self, function: Symbol, seen: set[str]) -> None:
        """Only what <iostream> brings; followed into what the compiler splits off."""
        seen.add(function.name)
        for relocation in self.relocations:
            inside = (relocation.section == function.section and
                      function.value <= relocation.offset < function.value + function.size)
            target = relocation.symbol
            if not inside or target.name in policy.INITIALISER_USES:
                continue
            if target.kind == object_file.SECTION:
                kind = self.object.sections[target.section]
                if not kind.flags & 4:  # no code: the data has a rule of its own
                    continue
                target = self._target(relocation) or target
            if "__static_initialization_and_destruction" in target.name:
                if target.name not in seen:
                    self._check_initializer(target, seen)
                continue
            section = self.object.sections[relocation.section]
            self.raw.append(("initializer", "a global object is built before main (by "
                             f"{self.name(target) or 'code of its own'}); make it constexpr, or "
                             "local to a function", _Place(section.name, relocation.offset)))
            return

    # -------------------------------------------------------------------------------- what it keeps

    def check_data(self) -> None:
        by_section: dict[int, list[Symbol]] = {}
        for symbol in self.object.symbols:
            if symbol.kind in (object_file.OBJECT, object_file.TLS, object_file.NOTYPE):
                by_section.setdefault(symbol.section, []).append(symbol)
        for section in self.object.sections:
            name = section.name
            if not section.writable or section.size == 0:
                continue
            if name.startswith((".data.rel.ro", ".init_array", ".fini_array", ".preinit_array",
                                ".ctors", ".dtors")):
                continue  # vtables and constants; the others have a rule of their own
            explained = 0
            for symbol in by_section.get(section.index, []):
                if not symbol.size:
                    continue
                explained += symbol.size
                if not self._may_keep(symbol):
                    self._add_kept(symbol, section)
            if explained == 0 and not name.startswith((".data.rel.local.DW.ref", ".data.DW.ref")):
                self.add("data", f"{section.size} bytes of data that can be written, without a "
                         f"name (section {name})")

    def _may_keep(self, symbol: Symbol) -> bool:
        if symbol.name in policy.KEPT or symbol.name.startswith("DW.ref."):
            return True
        # An inline variable of one of our headers, or the standard library's.
        return self.object.in_comdat(symbol) and (
            symbol.name in self.trusted.provided or symbol.name in self.trusted.reference.weak
            or self.name(symbol).startswith(("std::", "__gnu_cxx::", "fmt::")))

    def _add_kept(self, symbol: Symbol, section: Section) -> None:
        kind = "thread_local" if section.flags & object_file.TLS_FLAG else "static or global"
        name = re.sub(r"^guard variable for ", "", self.name(symbol))
        text = (f"{name} is {kind} data that can be written; ranks are threads and would share it. "
                "Keep state in the objects (each has a spare member `extra`), constants constexpr")
        if any(rule == "data" and other == text for rule, other, _ in self.raw):
            return  # a variable and its guard
        self.raw.append(("data", text, self.place(symbol)))

    # -------------------------------------------------------------------------------- what it calls

    def check_calls(self) -> None:
        reference = self.trusted.reference
        for symbol in self.object.symbols:
            if symbol.defined or not symbol.name:
                continue
            if symbol.name in reference.used or symbol.name in reference.strong:
                continue
            name = self.name(symbol)
            provided = self.trusted.provided.get(symbol.name)
            if provided is not None:
                why = policy.why_not_library(name, provided.member, self.trusted.task)
            elif symbol.name.startswith("_Z"):
                why = policy.why_not_standard(name, self.trusted.task)
            else:
                why = policy.why_not_c(symbol.name)
            if why:
                self.add("call", f"{name} cannot be used here: {why}", symbol)


    def check_instructions(self) -> None:
        """No library is asked for what these do, so no name shows it."""
        for section, offset in object_file.system_calls(self.path, self.object):
            self.raw.append(("call", "an instruction that calls the system itself is not for a "
                             "submission", _Place(section, offset)))


def _relative(line: str) -> str:
    """tasks/task3_forward/forward.cpp:17, wherever the file was compiled."""
    match = re.search(r"((tasks|solutions|common)/[^:]*:[0-9]+)$", line)
    return match[1] if match else line


def audit_object(path: Path, task: object, build: Path | None = None,
                 trusted: Trusted | None = None) -> list[Finding]:
    """What is not allowed in the object `path` of `task` (of the manifest); empty: all is well."""
    if trusted is None:
        trusted = Trusted.for_task(task, build or manifest.ROOT / "build" / "grade")
    try:
        return Audit(path, trusted).run()
    except (ObjectError, OSError) as error:
        return [Finding("object", f"the object file cannot be read: {error}")]


def missing_definitions(paths: list[Path], trusted: Trusted) -> list[Finding]:
    """What the objects of a task, together, should define and do not."""
    defined = {symbol.name for path in paths
               for symbol in ObjectFile(path.read_bytes(), path.name).symbols if symbol.exported}
    absent = sorted(trusted.reference.strong - defined)
    names = object_file.demangled(absent)
    texts = dict.fromkeys(names[each] for each in absent)  # a constructor has several symbols
    return [Finding("interface", f"{text} is declared by task {trusted.task} and defined nowhere")
            for text in texts if not text.startswith(("vtable for", "typeinfo"))]


def objections_of_runner(build: Path, task: object) -> list[str]:
    """For make test-taskN: what is wrong with the student's objects in runner_taskN, a line each;
    the sources are read too, for what an object no longer shows."""
    number, folder = task.number, task.folder  # type: ignore[attr-defined]
    try:
        trusted = Trusted.for_task(task, build)
    except TrustedError:  # the full tree, and nobody has built the reference yet
        import builder

        builder.Builder(build=build).make(f"fsdp_task{number}", show=False)
        trusted = Trusted.for_task(task, build)
    found: list[Finding] = []
    for name in task.files:  # type: ignore[attr-defined]
        where = f"tasks/{folder}/{name}"
        source = manifest.ROOT / where
        if source.is_file():
            found += source_check.check_text(source.read_bytes(), where, task,
                                             manifest.ROOT).refused
        for path in sorted((build / "tests" / "graded" / "CMakeFiles" /
                            f"runner_task{number}.dir").rglob(f"tasks/{folder}/{name}.o")):
            found += audit_object(path, task, trusted=trusted)
    return [str(finding) for finding in found]


def shown(findings: list[Finding], most: int = 12) -> str:
    """The findings as a student reads them."""
    lines = [f"  {finding}" for finding in findings[:most]]
    if len(findings) > most:
        lines.append(f"  … and {len(findings) - most} more")
    return "\n".join(lines)
