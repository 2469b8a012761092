#!/usr/bin/env python3
"""Opens the page that unshard-report writes in headless Chromium, from a file, and looks at it.

Checked: the page draws itself without an error and without the network; a click on a unit, and a
unit named in the address, show that unit's life, with the very events of the trace; the picture can
be taken. Exit code 77 (skipped) when no Chromium is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path

from chromium import Browser, Failure, expect, run

UNIT = "model.layers.0"
CLICK = f"""document.querySelector('.rank:nth-child(2) rect.gather[data-unit="{UNIT}"]')
  .dispatchEvent(new MouseEvent('click'))"""

# Looks closer at the middle, moves the pointer over memory, and leaves what it saw on the page.
MOVE = """{
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
}"""


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


def dump(browser: Browser) -> Page:
    """The page that is open."""
    page = Page(browser.run("document.documentElement.outerHTML"))
    body = next(values for tag, values in page.elements if tag == "body")
    if "data-error" in body or body.get("data-ready") != "yes":
        raise Failure(f"the page did not draw itself: {body}")
    return page


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


def check_figures(folder: Path) -> None:
    """Figures are well-formed, and name no other file."""
    for file in sorted(folder.glob("*.svg")):
        text = file.read_text(encoding="utf-8")
        xml.etree.ElementTree.fromstring(text)
        links = re.findall(r'(?:href|src)="[^"]*"', text)
        expect(not links, f"{file.name} is well-formed and stands alone")


def check(program: Path, browser: Browser, out: Path) -> None:
    """Everything, in a folder."""
    subprocess.run([program, "--fake", "--svg", "--out", out], check=True,
                   stdout=subprocess.DEVNULL, timeout=120)
    page = (out / "timeline.html").as_uri()
    gathers = gathers_of(out / "trace.json", UNIT)
    print("the page:")
    browser.open(page)
    check_whole(dump(browser))
    browser.shoot(out / "page.png")
    print("a click:")
    browser.run(CLICK)
    check_life(dump(browser), gathers)
    print("a unit in the address:")
    browser.open(f"{page}#unit={UNIT}&rank=1")
    check_life(dump(browser), gathers)
    browser.shoot(out / "life.png")
    print("moving about:")
    browser.open(page)
    browser.run(MOVE)
    check_moves(dump(browser))
    print("pictures:")
    browser.open(page, (700, 1400))
    browser.shoot(out / "narrow.png")
    expect(True, "whole, with a life, and narrow")
    check_figures(out)


if __name__ == "__main__":
    sys.exit(run(check, __doc__, "unshard-report"))
