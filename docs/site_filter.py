"""Doxygen's view of a Markdown file (FILTER_PATTERNS in docs/Doxyfile); `make docs` runs it.

The texts are written for a plain Git host: links are relative paths. The site wants names. So each
text gets a label made of its path, and each of its sections one more. Links to texts, sections and
headers become references to those labels, a link to any other file becomes its name, and the tables
of contents say what lies below them.
No line moves: Doxygen's messages still name the right one.
"""

import functools
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/", "writeup/", "tasks/", "solutions/")
HEADERS = ("common/", "tasks/", "apps/")
COPIED = "docs/playground/"  # into the site, and what it asks is compiled there
# What a table of these texts links to lies below it in the site's tree, in the table's order.
CONTENTS = {"writeup/README.md": ("writeup/", "tasks/"),
            "docs/instructors.md": ("solutions/", "docs/board/")}

FENCED = re.compile(r"^(```.*?^```$)", re.M | re.S)
SECTION = re.compile(r"^(##+) (.*)$", re.M)
LINK = re.compile(r"(!?)\[([^\[\]]+)\]\(([^()\s#]*)(#[^()\s]*)?\)")
HEADING = re.compile(r"\A# (?:(\d+)\. )?(.*)$(\n\n)?", re.M)
BOLD = re.compile(r"\*\*(`[^*]+)\*\*")  # Doxygen sees no emphasis that code begins
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PLAIN = str.maketrans({"\n": " ", "`": None})
SPAN = re.compile(r"(?<![\[`])`([\w./-]+\.(?:h|md))`(?![\]`])")


def label(path: str) -> str:
    """The site's name of a text: tasks/task3_forward/README.md is tasks_task3_forward."""
    if path == "README.md":
        return "index"
    return path.removesuffix(".md").removesuffix("/README").replace("/", "_")


def anchor(heading: str) -> str:
    """What a Git host calls a heading: "2.1 The layout" is 21-the-layout."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def section(path: str, name: str) -> str:
    """The site's name of a section: 21-the-layout of a chapter is writeup_2_…_21_the_layout."""
    return f"{label(path)}_{name.replace('-', '_')}"


def reference(path: str) -> str | None:
    """What @ref calls the file at `path`; None if the site has no page of it."""
    if not (ROOT / path).is_file():
        return None
    if path.endswith(".md") and path.startswith(PAGES):
        return label(path)
    if path.endswith(".h") and path.startswith(HEADERS):
        return path.split("/", 1)[1]  # as it is included (STRIP_FROM_INC_PATH)
    return None


@functools.cache
def first_heading(path: str) -> str:
    """What a Git host calls the title of a text, whose label on the site is the page's."""
    return anchor(re.match(r"# (.*)", (ROOT / path).read_text(encoding="utf-8"))[1])


@functools.cache
def shared(header: str) -> bool:
    """Whether several headers have this name."""
    return sum(len(list((ROOT / folder).rglob(header))) for folder in HEADERS) > 1


def filtered(text: str, path: str) -> str:
    """The text of the file at `path`, a path from the root, as Doxygen is to read it."""

    def link(match: re.Match[str]) -> str:
        image, words, target, place = match.groups()
        if image or not target or "://" in target or target.startswith(("@", "mailto:")):
            return match[0]
        there = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if there.startswith(COPIED):
            return f"[{words}]({there.removeprefix('docs/')})"
        name = reference(there)
        if name is None:
            return words if words.startswith("`") else f"`{words}`"
        row = match.string[match.string.rfind("\n", 0, match.start()) + 1:].startswith("|")
        if row and there.endswith(".md") and there.startswith(CONTENTS.get(path, ("/",))):
            return f'@subpage {name} "{words}"'
        if place and there.endswith(".md") and place[1:] != first_heading(there):
            name = section(there, place[1:])
        # A reference ends with its line, and shows backticks as they are.
        before = "\n" * words.count("\n")
        return f"{before}[{words.translate(PLAIN)}](@ref {name})"

    def span(match: re.Match[str]) -> str:
        # Doxygen links the name of a header by itself, unless another folder has that name, too.
        name = reference(match[1])
        if name is None or match[1].endswith(".h") and not shared(match[1].split("/")[-1]):
            return match[0]
        return f"[{match[1]}](@ref {name})"

    def code(match: re.Match[str]) -> str:
        # Code ends at a ' for Doxygen, unless two backticks enclose it.
        return f"`{match[0]}`" if "'" in match[1] else match[0]

    def heading(match: re.Match[str]) -> str:
        # "3. Forward" would begin a list.
        number = f"Chapter {match[1]}. " if match[1] else ""
        # The blank line below it becomes the table of contents, of a text that is worth one.
        below = "\n[TOC]\n" if match[3] and len(re.findall(r"^## ", match.string, re.M)) > 2 else match[3]
        return f"# {number}{match[2]} {{#{label(path)}}}{below or ''}"

    def named(match: re.Match[str]) -> str:
        return f"{match[0]} {{#{section(path, anchor(match[2]))}}}"

    pieces = FENCED.split(text)
    for i, piece in enumerate(pieces[::2]):
        piece = SPAN.sub(span, LINK.sub(link, SECTION.sub(named, piece)))
        pieces[2 * i] = CODE.sub(code, BOLD.sub(r"<b>\1</b>", piece))
    text = "".join(pieces)
    return text if path == "README.md" else HEADING.sub(heading, text, count=1)


if __name__ == "__main__":
    file = Path(sys.argv[1]).resolve()
    sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(filtered(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()))
