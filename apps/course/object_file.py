"""Reads what the audit needs of ELF files and archives: sections, symbols, relocations, groups.

64-bit little-endian ELF, as on x86-64 and arm64. Binutils are asked only for names and lines.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10  # bindings
NOTYPE, OBJECT, FUNCTION, SECTION, COMMON, TLS, IFUNC = 0, 1, 2, 3, 5, 6, 10  # kinds of symbols
WRITE, ALLOC, EXECUTE, TLS_FLAG = 1, 2, 4, 1 << 10  # flags of sections
_X86_64, _ARM64 = 62, 183  # machines
_SYMTAB, _RELA, _NOBITS, _REL, _DYNSYM, _GROUP = 2, 4, 8, 9, 11, 17
_COMDAT = 1
UNDEFINED, COMMON_INDEX, _RESERVED = 0, 0xFFF2, 0xFF00


class ObjectError(Exception):
    """The bytes are not an object file of this kind."""


@dataclass(frozen=True)
class Section:
    index: int
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry: int

    @property
    def writable(self) -> bool:
        return self.flags & (WRITE | ALLOC) == WRITE | ALLOC


@dataclass(frozen=True)
class Symbol:
    name: str
    binding: int
    kind: int
    section: int
    value: int
    size: int

    @property
    def defined(self) -> bool:
        return self.section != UNDEFINED

    @property
    def strong(self) -> bool:
        return self.binding == GLOBAL and self.defined

    @property
    def exported(self) -> bool:
        return self.binding != LOCAL and self.defined


@dataclass(frozen=True)
class Relocation:
    section: int  # in which it is
    offset: int
    symbol: Symbol
    addend: int


class ObjectFile:
    """One ELF file, in memory. `relocations` only those of sections that are loaded."""

    def __init__(self, data: bytes, name: str = "object", dynamic: bool = False) -> None:
        self.name = name
        self._data = data
        try:
            self._read(dynamic)
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
            raise ObjectError(f"{name}: a broken object file ({error})") from error

    def _read(self, dynamic: bool) -> None:
        data = self._data
        if data[:6] != b"\x7fELF\x02\x01":
            raise ObjectError(f"{self.name}: not a 64-bit little-endian object file")
        table, = struct.unpack_from("<Q", data, 40)
        entry, count, names = struct.unpack_from("<HHH", data, 58)
        if count == 0 and table:
            count, = struct.unpack_from("<Q", data, table + 32)
        if names == 0xFFFF:
            names, = struct.unpack_from("<I", data, table + 40)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry) for i in range(count)]
        if not raw:
            raise ObjectError(f"{self.name}: no sections")
        text = raw[names]
        self.sections = [Section(i, self._text(text[4], each[0]), each[1], each[2], each[4],
                                 each[5], each[6], each[7], each[9])
                         for i, each in enumerate(raw)]
        wanted = _DYNSYM if dynamic else _SYMTAB
        self.symbols: list[Symbol] = []
        for section in self.sections:
            if section.kind == wanted:
                self.symbols = list(self._symbols(section))
        self.comdat = {member for section in self.sections if section.kind == _GROUP
                       for member in self._group(section)}

    def _text(self, table: int, offset: int) -> str:
        begin = table + offset
        return self._data[begin:self._data.index(b"\0", begin)].decode()

    def _symbols(self, section: Section) -> Iterator[Symbol]:
        names = self.sections[section.link].offset
        for name, info, _, index, value, size in struct.iter_unpack(
                "<IBBHQQ", self._data[section.offset:section.offset + section.size]):
            if index == 0xFFFF:
                raise ObjectError(f"{self.name}: more sections than are expected")
            yield Symbol(self._text(names, name), info >> 4, info & 15, index, value, size)

    def _group(self, section: Section) -> Iterator[int]:
        words = struct.unpack_from(f"<{section.size // 4}I", self._data, section.offset)
        return iter(words[1:] if words and words[0] & _COMDAT else ())

    def relocations(self) -> Iterator[Relocation]:
        for section in self.sections:
            if section.kind == _REL:
                raise ObjectError(f"{self.name}: a kind of relocation that is not expected")
            if section.kind != _RELA or not self.sections[section.info].flags & ALLOC:
                continue
            for offset, info, addend in struct.iter_unpack(
                    "<QQq", self._data[section.offset:section.offset + section.size]):
                yield Relocation(section.info, offset, self.symbols[info >> 32], addend)

    def section_of(self, symbol: Symbol) -> Section | None:
        if symbol.section in (UNDEFINED,) or symbol.section >= _RESERVED:
            return None
        return self.sections[symbol.section]

    def code(self) -> Iterator[tuple[Section, bytes]]:
        """The sections that hold instructions, and their bytes."""
        for section in self.sections:
            if section.flags & EXECUTE and section.kind != _NOBITS:
                yield section, self._data[section.offset:section.offset + section.size]

    @property
    def machine(self) -> int:
        return struct.unpack_from("<H", self._data, 18)[0]

    def in_comdat(self, symbol: Symbol) -> bool:
        return symbol.section in self.comdat


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of the object files in an archive (as ar writes it)."""
    data = path.read_bytes()
    if not data.startswith(b"!<arch>\n"):
        raise ObjectError(f"{path}: not an archive")
    at, long_names = 8, b""
    while at + 60 <= len(data):
        name, size = data[at:at + 16].rstrip().decode(), int(data[at + 48:at + 58])
        body = data[at + 60:at + 60 + size]
        at += 60 + size + size % 2
        if name == "//":
            long_names = body
        elif name not in ("/", "/SYM64/"):
            if re.fullmatch(r"/[0-9]+", name):
                begin = int(name[1:])
                name = long_names[begin:long_names.index(b"\n", begin)].decode()
            yield name.rstrip("/"), body


def demangled(names: list[str]) -> dict[str, str]:
    """The names as they are written in C++."""
    plain = sorted(set(names))
    if not plain:
        return {}
    done = subprocess.run(["c++filt"], input="\n".join(plain), capture_output=True, text=True,
                          check=True)
    return dict(zip(plain, done.stdout.splitlines()))


_SYSTEM_CALL = re.compile(r"\s*([0-9a-f]+):\s+(?:syscall|sysenter|int\s+\$0x80)\b")


def system_calls(path: Path, object_: ObjectFile) -> Iterator[tuple[str, int]]:
    """(section, offset) of the instructions in an object that call the system directly."""
    suspects = set()
    for section, code in object_.code():
        if object_.machine == _ARM64:
            for index, (word,) in enumerate(struct.iter_unpack("<I", code[:len(code) // 4 * 4])):
                if word & 0xFFE0001F == 0xD4000001:  # svc
                    yield section.name, 4 * index
        elif object_.machine == _X86_64 and re.search(rb"\x0f[\x05\x34]|\xcd\x80", code):
            suspects.add(section.name)  # or a number that looks so
    if not suspects:
        return
    words = [word for name in sorted(suspects) for word in ("-j", name)]
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *words, str(path)],
                          capture_output=True, text=True, check=True)
    section = ""
    for line in done.stdout.splitlines():
        if line.startswith("Disassembly of section "):
            section = line.removeprefix("Disassembly of section ").rstrip(":")
        elif match := _SYSTEM_CALL.match(line):
            yield section, int(match[1], 16)


def lines_of(path: Path, places: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """(section, offset) → "file:line", where the debug information tells."""
    found: dict[tuple[str, int], str] = {}
    by_section: dict[str, list[int]] = {}
    for section, offset in places:
        by_section.setdefault(section, []).append(offset)
    for section, offsets in by_section.items():
        done = subprocess.run(["addr2line", "-e", str(path), "-j", section,
                               *(hex(each) for each in offsets)],
                              capture_output=True, text=True, check=False)
        for offset, line in zip(offsets, done.stdout.splitlines()):
            match = re.match(r"(.+):([1-9][0-9]*)", line)
            if match:
                found[section, offset] = f"{match[1]}:{match[2]}"
    return found
