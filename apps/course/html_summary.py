"""results.json as one page: what an instructor opens. Needs nothing beside itself."""

from __future__ import annotations

import html
from pathlib import Path

import whole_file

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em;
       color: #1b1f24; background: #fff; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.1em; margin: 1.6em 0 .3em; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0; font-size: .85em; }
table { border-collapse: collapse; width: 100%; } td { padding: .25em .6em; vertical-align: top;
       border-top: 1px solid #d8dee4; } td:first-child { width: 38%; }
td.points { text-align: right; white-space: nowrap; width: 4.5em; }
.passed { color: #116329; } .failed { color: #b42318; } .note { color: #57606a; }
.bar { background: #eaeef2; height: .6em; border-radius: .3em; overflow: hidden; }
.bar div { background: #2da44e; height: 100%; } .banner { background: #fff1e5; padding: .6em 1em; }
summary { cursor: pointer; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; }
  td { border-color: #30363d; } .passed { color: #56d364; } .failed { color: #ff7b72; }
  .note { color: #9da7b3; } .bar { background: #30363d; } .banner { background: #3d2a14; } }
"""


def page(document: dict, title: str) -> str:
    """The page, from what results.json holds."""
    tests = document["tests"]
    required = [test for test in tests if "extra" not in test["tags"]]
    on_top = [test for test in tests if "extra" in test["tags"]]
    most = sum(test["max_score"] for test in required)
    score = document["score"] - sum(test["score"] for test in on_top)
    head = f"{score:g} of {most:g}" + (
        f", extra credit {document['score'] - score:g}" if on_top else "")
    extra = document.get("extra_data", {})
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{_e(title)}</title>"
             f"<meta name=viewport content='width=device-width, initial-scale=1'>"
             f"<style>{_STYLE}</style><h1>{_e(title)}: {head}</h1>",
             _bar(score, most),
             f"<pre class=note>{_e(document.get('output', ''))}</pre>"]
    if not extra.get("isolated", True):
        parts.append("<p class=banner>not isolated: advisory score</p>")
    if extra.get("for_instructor"):
        parts.append("<details open><summary>For the instructor</summary><pre>" +
                     _e("\n".join(extra["for_instructor"])) + "</pre></details>")
    for task in dict.fromkeys(test["tags"][0] for test in tests):
        parts.append(_task(task, [test for test in tests if test["tags"][0] == task]))
    parts.append(f"<p class=note>graded in {document['execution_time']:g} s</p></html>")
    return "\n".join(parts) + "\n"


def _task(task: str, tests: list[dict]) -> str:
    score, most = (sum(test[key] for test in tests) for key in ("score", "max_score"))
    rows = "\n".join(_row(test) for test in tests)
    extra = ", extra credit" if "extra" in tests[0]["tags"] else ""
    return (f"<h2>{_e(task.replace('task', 'Task '))}: {score:g} of {most:g}{extra}</h2>"
            f"{_bar(score, most)}<table>{rows}</table>")


def _row(test: dict) -> str:
    first, _, rest = test["output"].partition("\n")
    said = f"<pre>{_e(first)}</pre>"
    if rest:
        said = f"<details><summary>{_e(first)}</summary><pre>{_e(rest)}</pre></details>"
    seen = test["visibility"]
    unseen = "" if seen == "visible" else f" <span class=note>({_e(seen)})</span>"
    return (f"<tr><td class={test['status']}>{_e(test['name'])}{unseen}</td>"
            f"<td class=points>{test['score']:g} / {test['max_score']:g}</td><td>{said}</td></tr>")


def _bar(score: float, most: float) -> str:
    share = 100 * score / most if most else 0
    return f"<div class=bar><div style='width:{share:.1f}%'></div></div>"


def _e(text: str) -> str:
    return html.escape(text, quote=True)


def write(document: dict, path: Path, title: str) -> None:
    whole_file.write(path, page(document, title))
