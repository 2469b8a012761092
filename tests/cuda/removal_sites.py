"""Finds the waits and barriers of the library's CUDA code, and removes one of them from a text.

A site is one statement: a barrier of a kernel, its wait for copies to shared memory, a wait of a
stream for an event, a wait of the host, the end of a Work or a HostCopy, or an event that is
recorded for one of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# Where streams, kernels and what is under way on them are handled. FSDP itself is in solutions/.
FILES = ("common/*/cuda/*", "common/device/*", "common/tensor/*", "common/parallel/*",
         "common/optim/*", "common/comm/thread_rendezvous.cpp",
         "common/comm/processes/engine_rank.cpp", "solutions/task*/*")

_STREAM = r"(?:compute\(\)|copies\(\)|communication\(\)|stream|collecting)"
_CALL = re.compile(
    r"__syncthreads\(\)|__syncwarp\(\)|\bcp_async_wait\(\)"
    r"|\bcuda(?:StreamSynchronize|EventSynchronize|StreamWaitEvent|EventRecord|DeviceSynchronize)\("
    r"|\b(?:make_wait|wait_on_host|synchronize|finish_copies|drain)\("
    r"|\bwhile \(!is_ready\(\)\)"
    r"|(?:\.|->)wait\(\)"
    rf"|\brecord\((?:[\w.>()-]*[.>])?{_STREAM}\)")
# A value that is used later cannot be taken out alone. What waits for it is a site.
_DECLARATION = re.compile(
    r"(?:virtual |inline |static )*(?:void|auto|const \S+|std::\S+) [\w&:]+ ?[=(]")
# These wait on the host, for ranks and not for what streams do.
_NOT_OF_DEVICES = re.compile(r"\bbarrier\(|changed_\.wait\(")
_CONTROL = re.compile(r"(?:else\b|case [\w:]+:(?!:)|(?:if|for|while)\s*(?=\())\s*")


@dataclass(frozen=True)
class Site:
    """The statement text[begin:end) of a file, its semicolon included."""

    path: str
    line: int
    begin: int
    end: int
    statement: str  # on one line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.statement}"


def without_comments(text: str) -> str:
    """The text with blanks where comments and strings are: every place stays the same."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S)


def _closing(code: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at
    return len(code)


def _begin(code: str, at: int) -> int:
    """Where the statement begins that `at` is in, after `if (…)` and the like."""
    depth = 0
    begin = at
    while begin > 0:
        depth += (code[begin - 1] == ")") - (code[begin - 1] == "(")
        if depth <= 0 and code[begin - 1] in ";{}":
            break
        begin -= 1
    while True:
        begin += len(code[begin:]) - len(code[begin:].lstrip())
        control = _CONTROL.match(code, begin)
        if control is None:
            return begin
        begin = control.end()
        if code[begin] == "(":
            closing = _closing(code, begin)
            if closing >= at:  # the call is in the condition: all of it is one statement
                return control.start()
            begin = closing + 1


def _end(code: str, at: int) -> int | None:
    """After the statement's semicolon; None where a function's body begins instead."""
    depth = 0
    for end in range(at, len(code)):
        depth += (code[end] == "(") - (code[end] == ")")
        if depth <= 0 and code[end] == "{":
            return None
        if depth <= 0 and code[end] == ";":
            return end + 1
    return None


def sites_of(path: str, text: str) -> list[Site]:
    """All sites of one file, in order."""
    code = without_comments(text)
    found: list[Site] = []
    for match in _CALL.finditer(code):
        begin, end = _begin(code, match.start()), _end(code, match.start())
        if end is None or (found and begin < found[-1].end):
            continue
        statement = " ".join(text[begin:end].split())
        if _DECLARATION.match(statement) or _NOT_OF_DEVICES.search(statement):
            continue
        found.append(Site(path, text.count("\n", 0, begin) + 1, begin, end, statement))
    return found


def find(root: Path) -> list[Site]:
    """All sites of the tree, by file."""
    paths = sorted({path for pattern in FILES for path in root.glob(pattern)
                    if path.suffix in (".cpp", ".cu", ".h")})
    return [site for path in paths
            for site in sites_of(str(path.relative_to(root)), path.read_text(encoding="utf-8"))]


def removed(text: str, site: Site) -> str:
    """The text without the statement, with as many lines. What it waits for is still computed."""
    statement = text[site.begin:site.end]
    wait = re.fullmatch(r"(return )?(.*?)(?:\.|->)wait\(\);", statement, flags=re.S)
    if wait is not None:
        left = f"{wait[1] or ''}static_cast<void>({wait[2]});"
    else:
        left = "{}" + "\n" * statement.count("\n")
    return text[:site.begin] + left + text[site.end:]
