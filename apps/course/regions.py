"""A solution file as given text and regions: the source of skeletons, ladders and mutants.

    // SOLUTION 3.2: todo(phase, state_)     the skeleton has  todo("3.2", phase, state_);  here
    // SOLUTION 1.1: (void)owner_            any other text is emitted as a statement
    // SOLUTION 2.5:                         nothing is emitted: a helper of the solution alone
    …
    // END SOLUTION

A step may have several regions. Everything else is given, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_BEGIN = re.compile(r"(\s*)// SOLUTION ([0-9]\.[1-9][0-9]?):\s*(.*?)\s*")
_END = re.compile(r"(\s*)// END SOLUTION\s*")
GIVEN = "given"  # as the step of an edit: anywhere in the file
_LOOKS_LIKE_MARK = re.compile(r"//\s*(END\s+)?SOLUTION\b")
_HEADING = re.compile(r"// -+ TODO ([0-9]\.[1-9][0-9]?)\s*")


class RegionError(Exception):
    """A file's marks do not hold together, or an edit does not fit: file, line, remedy."""


@dataclass(frozen=True)
class Region:
    """Lines [begin, end] of a file, marks included (0-based), that belong to one step."""

    step: str
    stub: str
    indent: str
    begin: int
    end: int

    def stub_lines(self) -> list[str]:
        """What the skeleton has instead."""
        if not self.stub:
            return []
        call = re.fullmatch(r"todo\((.*)\)", self.stub)
        if call is None:
            return [f"{self.indent}{self.stub};"]
        names = f", {call[1]}" if call[1] else ""
        return [f'{self.indent}todo("{self.step}"{names});']


@dataclass(frozen=True)
class Source:
    """A parsed solution file. `name` is only used in messages."""

    name: str
    lines: tuple[str, ...]
    regions: tuple[Region, ...]
    headings: tuple[str, ...]

    def steps(self) -> list[str]:
        """The steps that have a region here, in the order of the file."""
        return list(dict.fromkeys(region.step for region in self.regions))

    def of_step(self, step: str) -> list[Region]:
        found = [region for region in self.regions if region.step == step]
        if not found:
            raise RegionError(f"{self.name}: no region of step {step}; there are "
                              f"{', '.join(self.steps())}")
        return found

    def body(self, region: Region) -> str:
        """The text between the marks, without the last line's end."""
        return "\n".join(self.lines[region.begin + 1:region.end])


def parse(text: str, name: str) -> Source:
    """The regions of a solution file."""
    lines = text.split("\n")
    regions: list[Region] = []
    headings: list[str] = []
    begun: tuple[int, re.Match[str]] | None = None
    for i, line in enumerate(lines):
        where = f"{name}:{i + 1}"
        if heading := _HEADING.fullmatch(line):
            headings.append(heading[1])
        if mark := _BEGIN.fullmatch(line):
            if begun is not None:
                raise RegionError(f"{where}: a region begins inside the one of line {begun[0] + 1};"
                                  " close that with // END SOLUTION")
            begun = (i, mark)
        elif _END.fullmatch(line):
            if begun is None:
                raise RegionError(f"{where}: END SOLUTION without a // SOLUTION n.m: before it")
            at, mark = begun
            regions.append(Region(mark[2], mark[3].rstrip(";"), mark[1], at, i))
            begun = None
        elif _LOOKS_LIKE_MARK.search(line):
            raise RegionError(f"{where}: not a mark; write // SOLUTION n.m: todo(names) or "
                              "// END SOLUTION on a line of its own")
    if begun is not None:
        raise RegionError(f"{name}:{begun[0] + 1}: the region is never closed by // END SOLUTION")
    source = Source(name, tuple(lines), tuple(regions), tuple(headings))
    for step in source.steps():
        if step not in headings:
            raise RegionError(f"{name}: step {step} has a region but no '// ---- TODO {step}' "
                              "block")
    for step in headings:
        if step not in source.steps():
            raise RegionError(f"{name}: '// ---- TODO {step}' has no region // SOLUTION {step}:")
    return source


def read(path: Path, root: Path | None = None) -> Source:
    """Parses the file at `path`; messages name it relative to `root`."""
    name = str(path.relative_to(root)) if root is not None else str(path)
    return parse(path.read_text(encoding="utf-8"), name)


def render(source: Source, is_solved: Callable[[Region], bool],
           replaced: dict[Region, str] | None = None) -> str:
    """The file with the regions that are not solved as stubs, and some bodies replaced."""
    replaced = replaced or {}
    by_line = {region.begin: region for region in source.regions}
    output: list[str] = []
    i = 0
    while i < len(source.lines):
        region = by_line.get(i)
        if region is None:
            output.append(source.lines[i])
            i += 1
            continue
        i = region.end + 1
        if is_solved(region):
            body = replaced.get(region, source.body(region))
            output.append(source.lines[region.begin])
            output.extend(body.split("\n") if body else [])
            output.append(source.lines[region.end])
            continue
        stub = region.stub_lines()
        output.extend(stub)
        # A region that leaves nothing leaves no second blank line either.
        at_blank = i < len(source.lines) and not source.lines[i].strip()
        if not stub and at_blank and output and not output[-1].strip():
            i += 1
    return "\n".join(output)


def skeleton(source: Source) -> str:
    """What the student starts from."""
    return render(source, lambda _: False)


def ladder(source: Source, last: str) -> str:
    """Steps up to `last` solved, later ones of the task stubbed."""
    return render(source, lambda region: step_key(region.step) <= step_key(last))


def with_solved(source: Source, solved: Iterable[str]) -> str:
    """Exactly the named steps solved."""
    steps = set(solved)
    return render(source, lambda region: region.step in steps)


def step_key(step: str) -> tuple[int, int]:
    """Orders steps: 2.9 before 2.10."""
    task, number = step.split(".")
    return int(task), int(number)


@dataclass(frozen=True)
class Edit:
    """A change inside one region of `step`: `find` becomes `replace`, or the whole body `whole`."""

    step: str
    find: str | None = None
    replace: str | None = None
    whole: str | None = None
    nth: int | None = None  # which of the step's regions, from 1; needed only where it is unclear


def apply(source: Source, edits: Sequence[Edit], includes: Iterable[str] = ()) -> str:
    """The solution with `edits` made, and `#include`s added above its first one."""
    replaced: dict[Region, str] = {}
    in_given = [edit for edit in edits if edit.step == GIVEN]
    for edit in edits:
        if edit.step == GIVEN:
            continue
        region = _region_of(source, edit, replaced)
        body = replaced.get(region, source.body(region))
        replaced[region] = edit.whole.strip("\n") if edit.whole is not None else body.replace(
            edit.find.strip("\n"), (edit.replace or "").strip("\n"))
    text = render(source, lambda _: True, replaced)
    for edit in in_given:
        find = (edit.find or "").strip("\n")
        if text.count(find) != 1:
            raise RegionError(f"{source.name}, given code: the text to find occurs "
                              f"{text.count(find)} times, must be once:\n{find}")
        text = text.replace(find, (edit.replace or "").strip("\n"))
    added = "".join(f"#include {each}\n" for each in includes)
    return text.replace("#include", f"{added}#include", 1) if added else text


def _region_of(source: Source, edit: Edit, replaced: dict[Region, str]) -> Region:
    regions = source.of_step(edit.step)
    where = f"{source.name}, step {edit.step}"
    if edit.nth is not None:
        if not 1 <= edit.nth <= len(regions):
            raise RegionError(f"{where}: nth = {edit.nth}, but it has {len(regions)} region(s)")
        regions = [regions[edit.nth - 1]]
    if edit.whole is not None:
        if len(regions) > 1:
            raise RegionError(f"{where}: it has {len(regions)} regions; say which with nth = 1 …")
        return regions[0]
    if not edit.find or not edit.find.strip():
        raise RegionError(f"{where}: an edit needs find and replace, or whole")
    text = edit.find.strip("\n")
    places = [(region, replaced.get(region, source.body(region)).count(text))
              for region in regions]
    count = sum(times for _, times in places)
    if count != 1:
        raise RegionError(f"{where}: the text to find occurs {count} times, must be once:\n{text}")
    return next(region for region, times in places if times)
