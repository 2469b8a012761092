#!/usr/bin/env python3
"""Opens the page that unshard-report writes in headless Chromium, from a file, and looks at it.

Checked: the page draws itself without an error and without the network; a click on a unit, and a
unit named in the address, show that unit's life, with the very events of the trace; the picture can
be taken. Exit code 77 (skipped) when no Chromium is installed.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

SKIPPED = 77
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
UNIT = "model.layers.0"
CLICK = """<script>
window.addEventListener('load', () => document.querySelector(
  '.rank:nth-child(2) rect.gather[data-unit="%s"]').dispatchEvent(new MouseEvent('click')));
</script>"""

# Looks closer at the middle, moves the pointer over memory, and leaves what it saw on the page.
MOVE = """<script>
window.addEventListener('load', () => {
  const svg = document.querySelector('.rank svg');
  const box = svg.getBoundingClientRect();
  const at = (part) => ({ clientX: box.left + box.width / 2,
    clientY: box.top + box.height * part });
  const labels = () => [...svg.querySelectorAll('text')].map((each) => each.textContent).join('|');
  const before = labels();
  svg.dispatchEvent(new WheelEvent('wheel', { deltaY: -1, cancelable: true, ...at(0.2) }));
  const closer = labels();
  svg.dispatchEvent(new PointerEvent('pointerdown', { buttons: 1, ...at(0.2) }));
  svg.dispatchEvent(new PointerEvent('pointermove',
    { buttons: 1, clientX: box.left + box.width / 3, clientY: box.top + 40 }));
  const moved = labels();
  svg.dispatchEvent(new PointerEvent('pointermove', at(0.75)));
  document.body.dataset.tip = document.getElementById('tip').textContent;
  document.getElementById('whole').click();
  document.body.dataset.views = [before !== closer, closer !== moved, before === labels()].join();
});
</script>"""


class Failure(Exception):
    """What was expected of the page, and what it did."""


class Page(HTMLParser):
    """A dumped page: its elements as (tag, attributes), and the text of its side panel."""

    def __init__(self, dump: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.life: list[str] = []
        self.inside = False
        self.feed(dump)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.elements.append((tag, values))
        self.inside = self.inside or values.get("id") == "life"

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "aside"

    def handle_data(self, data: str) -> None:
        if self.inside and data.strip():
            self.life.append(data.strip())

    def count(self, tag: str, words: str = "", **attributes: str) -> int:
        """Elements with these attributes and all of these classes."""
        found = 0
        for name, values in self.elements:
            classes = set(values.get("class", "").split())
            same = all(values.get(key.replace("_", "-")) == each
                       for key, each in attributes.items())
            found += name == tag and same and set(words.split()) <= classes
        return found


class Browser:
    """Headless Chromium without a network; what it says on its console is kept."""

    def __init__(self, program: str, profile: Path) -> None:
        self.command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--enable-logging=stderr", "--virtual-time-budget=4000",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
        ]

    def run(self, *arguments: str) -> str:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True,
                              timeout=120, check=False)
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        if said:
            raise Failure("the page wrote to the console:\n  " + "\n  ".join(said))
        if done.returncode != 0:
            raise Failure(f"the browser ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def dump(self, address: str) -> Page:
        page = Page(self.run("--dump-dom", address))
        body = next(values for tag, values in page.elements if tag == "body")
        if "data-error" in body or body.get("data-ready") != "yes":
            raise Failure(f"{address} did not draw itself: {body}")
        return page

    def shoot(self, address: str, file: Path, size: str = "1400,1150") -> None:
        self.run(f"--screenshot={file}", f"--window-size={size}", address)
        if not file.is_file() or file.stat().st_size < 20_000:
            raise Failure(f"no picture, or an empty one: {file}")


def expect(holds: bool, what: str) -> None:
    """Says what holds; fails with the same words if it does not."""
    if not holds:
        raise Failure(what)
    print(f"  {what}")


def gathers_of(trace: Path, unit: str) -> int:
    """How often the Chrome trace says rank 1 gathered a unit."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    return sum(event["ph"] == "X" and event["pid"] == 1 and event["name"] == f"all_gather {unit}"
               for event in events)


def check_whole(page: Page) -> None:
    """The page as it opens."""
    expect(page.count("section", "rank") == 2, "two ranks are drawn")
    for what, at_least in (("forward", 2), ("backward", 2), ("gather", 2), ("reduce", 2)):
        number = page.count("rect", f"hit {what}", data_unit=UNIT)
        expect(number >= at_least, f"{UNIT} has {number} bars of {what}")
    for kind in ("sharded_param", "unsharded_param", "activation", "optimizer"):
        expect(page.count("path", kind) == 2, f"memory shows {kind} on both ranks")
    expect("The life of a unit" in page.life, "the panel says what a click does")


def check_life(page: Page, gathers: int) -> None:
    """The page when a unit is chosen on rank 1."""
    text = "\n".join(page.life)
    expect(page.life[1] == UNIT, f"the panel is about {UNIT}")
    expect("its life on rank 1" in text, "on rank 1")
    expect(gathers == 2 and text.count("all-gather issued") == gathers,
           f"every gather of the trace is told ({gathers})")
    expect(text.count("full parameters get their memory") == gathers, "memory comes as often")
    expect(text.count("full parameters are freed") == gathers, "and goes as often")
    for moment in ("forward begins", "forward ends", "backward begins", "backward ends",
                   "reduce-scatter issued for gradient", "full gradients are freed",
                   "reduction results become gradient shards"):
        expect(text.count(moment) == 1, moment)
    expect(page.count("rect", "bar-of-picked", data_unit=UNIT) > 0, "its bars are marked")
    expect(page.count("rect", "faded", data_unit=UNIT) == 0, "and not faded")
    expect(page.count("rect", "faded", data_unit="model.layers.1") > 0, "others are")


def check_moves(page: Page) -> None:
    """The page after MOVE."""
    body = next(values for tag, values in page.elements if tag == "body")
    expect(body.get("data-views") == "true,true,true",
           "the wheel looks closer, dragging moves, and a button shows the whole run again")
    tip = body.get("data-tip", "")
    expect("parameter shards" in tip and tip.count(" B") >= 3,
           "the pointer over memory says what is held")


def with_script(page: Path, script: str, copy: Path) -> Path:
    """A copy of the page on which a script acts as its reader would."""
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</body>", script + "</body>"), encoding="utf-8")
    return copy


def check_figures(folder: Path) -> None:
    """Figures are well-formed, and name no other file."""
    for file in sorted(folder.glob("*.svg")):
        text = file.read_text(encoding="utf-8")
        xml.etree.ElementTree.fromstring(text)
        links = re.findall(r'(?:href|src)="[^"]*"', text)
        expect(not links, f"{file.name} is well-formed and stands alone")


def check(program: Path, browser_program: str, out: Path) -> None:
    """Everything, in a folder."""
    subprocess.run([program, "--fake", "--svg", "--out", out], check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    browser = Browser(browser_program, out / "profile")
    page = out / "timeline.html"
    address = page.as_uri()
    gathers = gathers_of(out / "trace.json", UNIT)
    print("the page:")
    check_whole(browser.dump(address))
    print("a unit in the address:")
    check_life(browser.dump(f"{address}#unit={UNIT}&rank=1"), gathers)
    print("a click:")
    clicked = with_script(page, CLICK % UNIT, out / "clicked.html")
    check_life(browser.dump(clicked.as_uri()), gathers)
    print("moving about:")
    check_moves(browser.dump(with_script(page, MOVE, out / "moved.html").as_uri()))
    print("pictures:")
    browser.shoot(address, out / "page.png")
    browser.shoot(f"{address}#unit={UNIT}", out / "life.png")
    browser.shoot(address, out / "narrow.png", "700,1400")
    expect(True, "whole, with a life, and narrow")
    check_figures(out)


def run(check_pages: Callable[[Path, str, Path], None], description: str, program: str) -> int:
    """Checks what `program` makes: with a browser and a folder, kept or not. The exit code."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("program", type=Path, help=program)
    parser.add_argument("--keep", type=Path, help="a folder for the pages and pictures")
    arguments = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("SKIPPED: no Chromium is installed (Debian: apt-get install chromium)")
        return SKIPPED
    try:
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            check_pages(arguments.program.resolve(), browser, arguments.keep.resolve())
        else:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                check_pages(arguments.program.resolve(), browser, Path(folder))
    except Failure as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(check, __doc__, "unshard-report"))
