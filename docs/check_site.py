"""Checks the pages that Doxygen made: every link leads somewhere, every picture is there.

    python3 docs/check_site.py build/docs/html

Looked at are href, src, data and poster of every page and drawing, the pages that the tree at the
side and the search open, and what a reader sees of Markdown that was not understood.
Addresses of other sites are not called; only their form is looked at.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ATTRIBUTES = ("href", "xlink:href", "src", "data", "poster")
VOID = ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
VERBATIM = ("pre", "code", "tt", "script", "style", "title")
RAW = re.compile(r"\[[^\[\]]+\]\([^()\s]+\)|`[^`]*`?|</?(?:tt|code)>|\*\*\S*")
# Doxygen's own: the summary of a class names a section that another page has.
DOXYGENS = ("nested-classes",)
TREE = re.compile(r"""["']((?:\.\./)?[\w.-]+\.html(?:#[\w-]+)?)["']""")


@dataclass
class Page:
    """What one file offers (names) and asks for (links, with the line of each)."""

    names: set[str] = field(default_factory=set)
    links: list[tuple[int, str]] = field(default_factory=list)
    raw: list[tuple[int, str]] = field(default_factory=list)
    pictures: int = 0


class Reader(HTMLParser):
    """Reads one HTML page or SVG drawing."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self.verbatim = 0  # open elements whose text is shown as it is
        self.listing = 0   # those of them that are <div>

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        # Doxygen writes a listing as <div class="fragment">, with a <div> for each line.
        listing = tag == "div" and (self.listing > 0 or ("class", "fragment") in attributes)
        self.listing += listing
        self.verbatim += listing or tag in VERBATIM
        if tag in ("img", "object", "iframe", "embed"):
            self.page.pictures += 1
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.page.names.add(value)
            if name in ATTRIBUTES and value is not None:
                self.page.links.append((self.getpos()[0], value))

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        listing = tag == "div" and self.listing > 0
        self.listing -= listing
        if listing or tag in VERBATIM and self.verbatim > 0:
            self.verbatim -= 1

    def handle_data(self, text: str) -> None:
        if not self.verbatim:
            for match in RAW.finditer(text):
                self.page.raw.append((self.getpos()[0], match[0]))


def read(path: Path) -> Page:
    """The links and names of one file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".js":
        found = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in TREE.finditer(text)]
        return Page(links=found)
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def complaint(link: str, page: Path, pages: dict[Path, Page], folder: Path) -> str | None:
    """Why `link` of `page` leads nowhere; None if it is good."""
    try:
        parts = urlsplit(link)
    except ValueError as error:
        return f"no address: {error}"
    if parts.scheme in ("http", "https"):
        return None if parts.netloc and " " not in link else "an address without a host"
    if parts.scheme or parts.netloc:
        known = ("mailto", "javascript", "data")
        return None if parts.scheme in known else "an address of an unknown kind"
    if not link:
        return "empty"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(folder):
        return "leads out of the site"
    if not target.is_file():
        return "no such file"
    name = unquote(parts.fragment)
    # The tree names members of a namespace on the page of their file: the page is right, and opens.
    if not name or name in DOXYGENS or page.suffix == ".js" or target.suffix != ".html":
        return None
    if name not in pages[target].names:
        return f"{target.name} has no anchor {name}"
    return None


def check(folder: Path) -> tuple[list[str], str]:
    """What is wrong with the site in `folder`, and a line about how much was looked at."""
    folder = folder.resolve()
    files = sorted(p for p in folder.rglob("*") if p.suffix in (".html", ".svg")
                   or p.suffix == ".js" and (p.parent.name == "search" or "html" in p.read_text()))
    pages = {path: read(path) for path in files}
    wrong: list[str] = []
    for path, page in pages.items():
        # What the search and the tree list is opened from beside their files, too.
        where = path.relative_to(folder)
        for line, link in page.links:
            why = complaint(link, path, pages, folder)
            if why:
                wrong.append(f"{where}:{line}: {link}: {why}")
        wrong += [f"{where}:{line}: Markdown that was not understood: {text}"
                  for line, text in page.raw]
    if not any(path.suffix == ".html" for path in files):
        wrong.append(f"{folder}: no page here; `make docs` makes them")
    links = sum(len(page.links) for page in pages.values())
    pictures = sum(page.pictures for page in pages.values())
    return wrong, f"{len(files)} files, {links} links, {pictures} pictures looked at"


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the links of the pages Doxygen made.")
    parser.add_argument("folder", type=Path, help="where index.html lies")
    wrong, seen = check(parser.parse_args().folder)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{seen}: {len(wrong)} broken" if wrong else f"{seen}: none is broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
