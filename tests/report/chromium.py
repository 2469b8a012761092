"""Leads headless Chromium through a page, for the tests that look at one.

It is led by its DevTools Protocol (https://chromedevtools.github.io/devtools-protocol/), so a page
is looked at when it has loaded and a script's promise has settled. No clock decides when.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SKIPPED = 77
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120  # seconds without a word, after which a browser is taken for stuck


class Failure(Exception):
    """What was expected of the page, and what it did."""


class Browser:
    """Headless Chromium without a network. What a page writes on its console is a Failure."""

    def __init__(self, program: str, folder: Path) -> None:
        """`folder` gets its profile and its log."""
        self.log = folder / "chromium.log"
        self.unread = b""
        self.commands = 0
        self.target = self.session = ""
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--no-first-run", "--host-resolver-rules=MAP * ~NOTFOUND",
                   f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
        # It reads commands from descriptor 3 and answers on 4. When 3 is closed, it ends.
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2', "sh", *command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        self.process.kill()
        self.process.stdout.close()

    def open(self, address: str, size: tuple[int, int] = (1400, 1150)) -> None:
        """A page in a window of its own, loaded. `size` is its width and height in pixels."""
        if self.target:
            self._ask("Target.closeTarget", targetId=self.target)
        self.session = ""
        self.target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self._ask("Target.attachToTarget", targetId=self.target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Inspector"):
            self._ask(f"{domain}.enable")
        self._ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1],
                  deviceScaleFactor=1, mobile=False)
        if error := self._ask("Page.navigate", url=address).get("errorText"):
            raise Failure(f"{address}: {error}")
        self.run("new Promise((loaded) => document.readyState === 'complete' ? loaded() : "
                 "addEventListener('load', loaded)).then(() => null)")

    def run(self, script: str) -> Any:
        """The value of an expression on the page; if it is a promise, what it settles to."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True,
                          returnByValue=True)
        if "exceptionDetails" in found:
            raise Failure(f"the script ended with {json.dumps(found['exceptionDetails'])}")
        return found["result"].get("value")

    def shoot(self, file: Path) -> None:
        """A picture of what the window shows."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))
        if file.stat().st_size < 20_000:
            raise Failure(f"an empty picture: {file}")

    def _ask(self, method: str, **parameters: object) -> dict:
        """The result of one command of the protocol."""
        self.commands += 1
        message = {"id": self.commands, "method": method, "params": parameters}
        if self.session and not method.startswith("Target."):
            message["sessionId"] = self.session
        with suppress(BrokenPipeError):  # its log says why, when nothing is heard of it
            self.process.stdin.write(json.dumps(message).encode() + b"\0")
            self.process.stdin.flush()
        while (answer := self._heard()).get("id") != self.commands:
            pass
        if "error" in answer:
            raise Failure(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _heard(self) -> dict:
        """The browser's next message: an answer, or an event."""
        while b"\0" not in self.unread:
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                raise Failure(f"the browser has said nothing for {PATIENCE} s:\n"
                              + self.log.read_text(errors="replace"))
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Failure("the browser ended:\n" + self.log.read_text(errors="replace"))
            self.unread += more
        text, _, self.unread = self.unread.partition(b"\0")
        message = json.loads(text)
        event = message.get("method")
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded",
                     "Inspector.targetCrashed"):
            raise Failure(f"the page, {event}: {json.dumps(message['params'])}")
        return message


def expect(holds: bool, what: str) -> None:
    """Says what holds; fails with the same words if it does not."""
    if not holds:
        raise Failure(what)
    print(f"  {what}")


def run(check_pages: Callable[[Path, Browser, Path], None], description: str,
        program: str) -> int:
    """Checks what `program` makes: with a browser and a folder, kept or not. The exit code."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("program", type=Path, help=program)
    parser.add_argument("--keep", type=Path, help="a folder for the pages and pictures")
    arguments = parser.parse_args()
    browser = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if browser is None:
        print("SKIPPED: no Chromium is installed (Debian: apt-get install chromium)")
        return SKIPPED
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with Browser(browser, Path(temporary)) as opened:
                check_pages(arguments.program.resolve(), opened, folder)
        except Failure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            return 1
    return 0
