"""What a student's source may include and say. Read before it is compiled, and once more after the
preprocessor: macros hide nothing then.

    source_check.py text         --task 3 --folder task3_forward --where NAME --root ROOT FILE
    source_check.py preprocessed --source SOURCE --where NAME [--allowed FOLDER …] FILE

Includes are headers of the C++ standard library and of the course, by their plain names. There is
no assembler, no attribute and no pragma that reaches around the object audit.

The grader runs it as a program, in the jail: the text is a stranger's. Takes time in proportion to
the text, whatever the text is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

_STANDARD = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
cinttypes climits clocale cmath compare complex concepts condition_variable coroutine cstdarg
cstddef cstdint cstdio cstdlib cstring ctime deque exception execution expected format forward_list
functional initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale
map memory memory_resource mutex new numbers numeric optional ostream print queue random ranges
ratio regex scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept
streambuf string string_view system_error tuple type_traits typeindex typeinfo unordered_map
unordered_set utility valarray variant vector version
assert.h ctype.h errno.h float.h inttypes.h limits.h math.h stddef.h stdint.h stdio.h stdlib.h
string.h
""".split())
_WHY_NOT = {
    "thread": "a rank is one thread", "future": "a rank is one thread",
    "stop_token": "a rank is one thread", "fstream": "a submission reads and writes no files",
    "filesystem": "a submission reads and writes no files",
    "csignal": "a submission installs no signal handlers",
    "csetjmp": "it jumps past destructors", "syncstream": "print with fmt::print or std::cout",
}
_ONLY = "only headers of the C++ standard library and of the course can be included"
_FILESYSTEM_TASKS = {7}  # its interface takes paths
_ATTRIBUTES = re.compile(r"\b_*(constructor|destructor|ifunc|alias|weak|weakref|section|symver|"
                         r"init_priority|naked|no_reorder|copy|target_clones|error|warning)_*\b")
_PRAGMAS = re.compile(r"(once|GCC\s+diagnostic\b.*|GCC\s+(ivdep|unroll\b.*)|clang\s+diagnostic\b.*|"
                      r"(end)?region\b.*|STDC\b.*)")
_PLAIN = {"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "error",
          "warning"}
_MARKER = 'a line marker (# 1 "file") is not for a submission: a line is of the file it stands in'
_ENDS = "a submission does not end the program"
_INSIDE = ("what stdin, stdout and stderr hold is not for a submission; print with printf, "
           "fmt::print or std::cout")
# Members of glibc's FILE by their names; and any member, element, target or cast of the three.
_INSIDE_A_STREAM = re.compile(
    r"\b(?:_IO_\w+|_fileno|_chain|_wide_data|_vtable_offset|_freeres_(?:list|buf)|_shortbuf|"
    r"_codecvt|_old_offset|_markers|_cur_column|_unused2)\b"
    r"|\bstd(?:in|out|err)\b[\s)]*(?:->|\[)|[)*>]\s*(?:\(\s*)*\bstd(?:in|out|err)\b")
_TERMINATE = re.compile(r"\bstd\s*::\s*terminate\b|(?<![\w.>:])terminate\s*\(")
# What a line must hold to be looked at closely.
_SUSPECT = re.compile(r"asm|__attribute__|\[\[|_Pragma|std(in|out|err)|_IO_|terminate|\b_[a-z]")
_RAW = "a raw string over several lines is not for a submission; write one string per line"
_MOST = 100  # findings; nobody reads more
_RELABELED = {"private", "protected", "class", "struct", "public", "const", "final", "friend"}


@dataclass(frozen=True)
class Finding:
    """One thing that is not allowed: which rule, where, and what to do about it."""

    rule: str
    text: str
    where: str = ""  # "tasks/task3_forward/forward.cpp:17", where it can be told

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


@dataclass(frozen=True)
class Checked:
    """`refused` ends the grading of the task; `noted` is told to the instructor."""

    refused: list[Finding]
    noted: list[Finding]


# What a lexer takes as one piece, from the left. Every match consumes all that it looked at (what is
# never closed runs to the end of the line or of the file), so scanning is linear in the text.
_TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)'
    r'|(?P<raw>\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s"]{0,16})\(.*?(?P<end>\)(?P=mark)"|\Z))'
    r'|(?P<text>(?:\b(?:u8|[uUL]))?(?:"(?:[^"\\\n]|\\.)*"?|\'(?:[^\'\\\n]|\\.)*\'?))'
    r"|\.?[0-9](?:[eEpP][+-]|'[0-9a-zA-Z_]|[0-9a-zA-Z_.])*"  # a number, which may have marks in it
    r'|[a-zA-Z_][0-9a-zA-Z_]*', re.S)


_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")


def blanked(text: str) -> str:
    """The text without comments and the insides of raw strings. Lines keep their numbers."""
    def blank(match: re.Match[str]) -> str:
        lines = "\n" * match[0].count("\n")
        if match["comment"] is not None:
            return " " + lines
        if match["raw"] is not None:
            return '""' + lines
        return match[0]  # directives need the names in quotes; words are looked for elsewhere
    return _TOKEN.sub(blank, text)


def joined(source: str) -> str:
    """The source with spliced lines joined: from there on its lines have other numbers."""
    return _SPLICE.sub("", source)


def _wide_raw_strings(text: str, spliced: bool = False) -> Iterator[int]:
    """The lines on which raw strings begin that do not end there. Inside one, any line could pass
    for a line of code or for a mark of the preprocessor. `spliced`: the text is joined, where a
    compiler puts the ends of lines back into raw strings."""
    if 'R"' not in text:
        return
    line = last = 0
    for match in _TOKEN.finditer(text):
        if match["raw"] is not None and (spliced or "\n" in match[0] or not match["end"]):
            line += text.count("\n", last, match.start())
            last = match.start()
            yield line + 1


def without_literals(text: str) -> str:
    return _TOKEN.sub(lambda match: '""' if match["text"] else match[0], text)


def check_text(source: bytes, where: str, task: object, root: Path) -> Checked:
    """The source as it was written. `where` is the path that messages name."""
    refused: list[Finding] = []
    noted: list[Finding] = []
    text = source.decode("utf-8", "replace")
    if "\0" in text:
        return Checked([Finding("source", "not a text file", where)], [])
    # Compilers differ in whether it ends a line.
    refused += [Finding("source", "a carriage return stands in the middle of this line; end lines "
                        "with a newline", f"{where}:{text.count(chr(10), 0, each.start()) + 1}")
                for each in re.finditer(r"\r(?!\n)", text)][:1]
    whole = text.removeprefix("\ufeff").replace("\r\n", "\n")
    text = joined(whole)
    refused += [Finding("source", _RAW, f"{where}:{line}")
                for line in _wide_raw_strings(text, spliced=text != whole)]
    for number, line in enumerate(blanked(text).split("\n"), 1):
        place = f"{where}:{number}"
        directive = re.match(r"\s*(?:#|%:|\?\?=)\s*([A-Za-z_]*)\s*(.*)", line)
        if directive is None:
            refused += [Finding("source", why, place) for why in _words(without_literals(line))]
        elif directive[1] in ("include", "include_next", "import", "embed"):
            why = why_not_include(directive[1], directive[2].strip(), task, root)
            if why:
                refused.append(Finding("include", why, place))
        elif directive[1] == "pragma":
            if not _PRAGMAS.fullmatch(directive[2].strip()):
                refused.append(Finding("source", f"#pragma {directive[2].strip()[:60]} is not for "
                                       "a submission", place))
        elif directive[1] in ("define", "undef"):
            name = re.match(r"\w*", directive[2])[0]  # type: ignore[index]
            if name in _RELABELED:
                noted.append(Finding("relabeled", f"#{directive[1]} {name}: the headers are read "
                                     "with another meaning", place))
            refused += [Finding("source", why, place)
                        for why in _words(without_literals(directive[2]))]
        elif directive[1] == "" and directive[2] != "":
            refused.append(Finding("source", _MARKER, place))
        elif directive[1] not in ("", *_PLAIN):
            refused.append(Finding("source", f"#{directive[1]} is not for a submission", place))
    return Checked(refused, noted)


def why_not_include(directive: str, what: str, task: object, root: Path) -> str:
    """Why an include is not allowed, or ""."""
    number = task.number  # type: ignore[attr-defined]
    if directive != "include":
        return f"#{directive} is not for a submission; write #include"
    match = re.fullmatch(r'<([^>]*)>|"([^"]*)"', what)
    if match is None:
        return f"#include {what[:60]}: write the header's name itself"
    name = match[1] if match[1] is not None else match[2]
    if name.startswith("/") or ".." in name.split("/") or "\\" in name:
        return f"#include {what[:80]}: a header is named from the root of common/ or tasks/"
    if name in _STANDARD or name.startswith("fmt/") and name.endswith(".h"):
        return "" if name != "fmt/os.h" else "fmt/os.h: a submission reads and writes no files"
    if name == "filesystem" and number in _FILESYSTEM_TASKS:
        return ""
    if name in _WHY_NOT:
        return f"<{name}>: {_WHY_NOT[name]}"
    if not name.endswith(".h"):
        return f"#include {what[:80]}: {_ONLY}"
    own = task.folder  # type: ignore[attr-defined]
    for folder in ("common", "tasks", f"tasks/{own}"):
        if (root / folder / name).is_file():
            return _why_not_header(f"{folder}/{name}", number)
    return f"#include {what[:80]}: {_ONLY}"


def _why_not_header(path: str, number: int) -> str:
    later = re.match(r"tasks/task([1-9])", path)
    if later and int(later[1]) > number:
        return f"{path} is a later task's; a task uses earlier ones only"
    if path.startswith("common/parallel/") and number != 7:
        return f"{path}: the baselines are not an answer"
    return ""


def _words(line: str) -> Iterator[str]:
    """What is wrong with a line of code, literals taken out."""
    if re.search(r"\b(asm|__asm|__asm__)\b", line):
        yield "assembler is not for a submission"
    if re.search(r"__attribute__|\[\[\s*(using\s+)?_*(gnu|clang)_*\b|__declspec", line):
        match = _ATTRIBUTES.search(line)
        if match:
            yield f"the attribute '{match[1]}' is not for a submission"
    if re.search(r"\b(_Pragma|__pragma)\b", line):
        yield "_Pragma is not for a submission"
    if _INSIDE_A_STREAM.search(line):
        yield _INSIDE
    if _TERMINATE.search(line):
        yield _ENDS


def check_preprocessed(output: str, source: Path, where: str, allowed: list[Path]) -> list[Finding]:
    """What the preprocessor made of it: the words again, now without macros, and where all of the
    included text came from."""
    found: list[Finding] = []
    own = str(source)
    files = _Files(own)
    line = 0
    for text in output.split("\n"):
        marker = re.match(r'# ([0-9]+) "((?:[^"\\]|\\.)*)"([ 1-4]*)', text)
        if marker:
            line, name = int(marker[1]), _unescaped(marker[2])
            if not files.follow(name, marker[3].split()):
                found.append(Finding("source", _MARKER, where))
            elif not _is_allowed(name, own, allowed):
                found.append(Finding("include", f"text of {ascii(name)[1:-1]} is included", where))
            continue
        if files.current == own:
            files.see(text)
            place = f"{where}:{line}"
            if any(True for _ in _wide_raw_strings(text)):
                found.append(Finding("source", _RAW, place))
            elif re.match(r"\s*#\s*pragma", text):
                pragma = text.split("pragma", 1)[1].strip()
                if not _PRAGMAS.fullmatch(pragma):
                    found.append(Finding("source", f"#pragma {pragma[:60]} is not for a submission",
                                         place))
            elif _SUSPECT.search(text):
                found += [Finding("source", why, place)
                          for why in _words(without_literals(text))]
        line += 1
    return list(dict.fromkeys(found))


class _Files:
    """Which file the preprocessed text is of. A text can hold marks of its own; a compiler's come
    in pairs, and only behind the #include of which they are (it prints those with -dI)."""

    def __init__(self, own: str) -> None:
        self.own, self.stack, self.before, self.included = own, [], "", ""

    @property
    def current(self) -> str:
        return self.stack[-1] if self.stack else ""

    def see(self, text: str) -> None:
        """A line of the source itself."""
        directive = re.match(r'#include\s*["<]([^">]*)[">]', text)
        if directive or text.strip():
            self.included = directive[1] if directive else ""

    def follow(self, name: str, flags: list[str]) -> bool:
        """False: the mark is not the compiler's, and the text stays that of the file it was of."""
        if not self.stack:  # before the source begins, only the compiler has written
            if name == self.own and self.before.startswith("<"):
                self.stack = [name]
            self.before = name
            return True
        if "1" in flags:
            if self.current == self.own and not (
                    self.included and f"/{name}".endswith(f"/{self.included}")):
                return False
            self.included = ""
            self.stack.append(name)
        elif "2" in flags:
            if len(self.stack) < 2 or self.stack[-2] != name:
                return False
            self.stack.pop()
        else:
            return name == self.current
        return True


def _unescaped(name: str) -> str:
    """A file's name as it stands in a mark."""
    return re.sub(rb"\\([0-7]{3}|.)", lambda each: bytes([int(each[1], 8)]) if len(each[1]) == 3
                  else each[1], name.encode("utf-8")).decode("utf-8", "replace")


def _is_allowed(path: str, own: str, allowed: list[Path]) -> bool:
    if path == own or path.startswith("<") or path.endswith("//"):
        return True  # the last is how -g marks the working directory
    real = Path(os.path.realpath(path))  # neither `..` nor a link decides
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in allowed)


SYSTEM_FOLDERS = [Path(folder) for folder in (
    "/usr/include", "/usr/lib/gcc", "/usr/local/include", "/usr/lib/clang",
    "/usr/lib/linux/uapi",  # where Debian 13 links /usr/include/…/asm to
    *(f"/usr/lib/llvm-{version}" for version in range(14, 21)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("text", "preprocessed"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--where", required=True)
    parser.add_argument("--task", dest="number", type=int, default=0)
    parser.add_argument("--folder", default="")
    parser.add_argument("--root", type=Path, default=Path("/nonexistent"))
    parser.add_argument("--source", type=Path)
    parser.add_argument("--allowed", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    data = options.file.read_bytes()
    if options.what == "text":
        checked = check_text(data, options.where, options, options.root)
    else:
        checked = Checked(check_preprocessed(data.decode("utf-8", "replace"), options.source,
                                             options.where, [*options.allowed, *SYSTEM_FOLDERS]),
                          [])
    print(json.dumps({kind: [asdict(each) for each in getattr(checked, kind)[:_MOST]]
                      for kind in ("refused", "noted")}))
    return 0


def from_json(text: str) -> Checked:
    """What the program printed."""
    document = json.loads(text)
    return Checked(*([Finding(**each) for each in document[kind]]
                     for kind in ("refused", "noted")))


if __name__ == "__main__":
    sys.exit(main())
