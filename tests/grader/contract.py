"""The contract of each task, sentence by sentence, and the variants that break it.

    contract.py [--task 3]      lists what does not hold together, as TOML to paste; exit code 1 then

    tests/mutants/contract/task3.toml

    ["forward.h"]                 # a file of the task's folder
    "Waits until the full parameters can be read" = "3.2 not_waited"
    "A no-op unless the unit is sharded" = ["3.1 gathered_again", "3.1 allocated_again"]
    "Allocating all of them first is right too" = "alternative allocated_first"
    explains = ["The two halves are idempotent", …]

A row quotes the first words of a sentence and names the variants that break exactly this sentence:
the step that must lose, and the mutant of that step. `explains` lists the sentences that demand
nothing of a student. Read are the `///` comments of the headers, the comments of the TODOs without
their hints, and of the handout the section "Steps"; elsewhere in the handout, the sentences with a
word that demands.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import mutant_files

FOLDER = mutant_files.FOLDER / "contract"
_DEMANDS = re.compile(r"\b(must|never|only|exactly|at most|at least|each|every|always)\b", re.I)
_END = re.compile(r"""(?<=[.!?])["')\]]*\s+(?=[A-Z"'(\[@])""")
_LEAST_WORDS = 3


class ContractError(Exception):
    """A table is wrong: file, field, remedy."""


@dataclass(frozen=True)
class Contract:
    """A task's table. `broken_by` by sentence, as (file, text); a sentence that explains has none."""

    task: manifest.Task
    broken_by: dict[tuple[str, str], tuple[str, ...]]
    problems: tuple[str, ...]

    def demanded(self) -> int:
        return sum(bool(each) for each in self.broken_by.values())

    def covered(self, missed: set[str]) -> int:
        """How many sentences have variants, none of which is one of `missed`."""
        return sum(bool(each) and not any(name.split()[1] in missed for name in each)
                   for each in self.broken_by.values())

    def summary(self, missed: set[str]) -> str:
        names = {name for each in self.broken_by.values() for name in each}
        return (f"contract: {self.covered(missed)} of {self.demanded()} sentences that demand are "
                f"covered, by {len(names)} variants")


def sentences(text: str) -> list[str]:
    """The sentences of one paragraph, without the marks of Markdown."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*`]", "", text)
    text = re.sub(r"^[1-9]\.[1-9]\s+", "", " ".join(text.split()))
    return [each.strip() for each in _END.split(text) if re.search(r"[a-zA-Z]", each)]


def _paragraphs(lines: Iterable[str]) -> list[str]:
    """Joins the lines of comments. A line that is indented by 2 or 3 is a row of its own, and one
    by 4 or more is a picture or code."""
    found: list[str] = [""]
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent >= 4:
            found.append("")
        elif indent >= 2 or line.startswith(("@", "- ")):
            found.append(line.strip().removeprefix("- "))
        else:
            found[-1] += " " + line.strip()
    return [each for each in found if each.strip()]


def of_header(text: str) -> list[str]:
    """The sentences of a header's contract."""
    lines: list[str] = []
    for line in text.splitlines():
        whole, beside = re.match(r"\s*/// ?(.*)", line), re.search(r"///< ?(.*)", line)
        if beside is not None:
            lines += ["", beside[1], ""]
        elif whole is None:
            lines.append("")
        elif not whole[1].startswith(("@file", "@ingroup")):
            lines.append(re.sub(r"^[1-9]\.[1-9] +", "", whole[1]))
    return [each for one in _paragraphs(lines) for each in sentences(one)]


def of_todos(text: str) -> list[str]:
    """The sentences of the TODOs' comments, without hints."""
    lines: list[str] = []
    in_comment = is_hint = False
    for line in text.splitlines():
        if re.match(r"// -+ TODO ", line):
            in_comment, is_hint = True, False
            continue
        in_comment = in_comment and line.startswith("//")
        if not in_comment:
            lines.append("")
            continue
        words = line.removeprefix("//").removeprefix(" ")
        label = re.match(r"(Keep|Note|Hint): +", words)
        if label is not None:
            is_hint = label[1] == "Hint"
            words = "- " + words[label.end():]
        if not is_hint:
            lines.append(re.sub(r"^ {7}", "", words))
    return [each for one in _paragraphs(lines) for each in sentences(one)]


def of_handout(text: str) -> list[str]:
    """The sentences of a handout that may demand."""
    found: list[str] = []
    section, paragraph, in_code = "", "", False

    def end_paragraph() -> None:
        nonlocal paragraph
        found.extend(each for each in sentences(paragraph)
                     if section == "Steps" or _DEMANDS.search(each))
        paragraph = ""

    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            in_code = not in_code
        starts = re.match(r"\s*([-*]|[0-9]+\.) +", line)
        if in_code or not line.strip() or line.startswith(("```", "|", "#", "!", "<")) or starts:
            end_paragraph()
        if line.startswith("## "):
            section = line[3:].strip()
        elif not in_code and not line.startswith(("```", "|", "#", "!", "<")):
            paragraph += " " + line[starts.end() if starts else 0:]
    return found


def of_task(root: Path, task: manifest.Task) -> dict[str, list[str]]:
    """The sentences to be decided, by file; one that stands twice in a file counts once."""
    folder = root / "tasks" / task.folder
    read = {".md": of_handout, ".h": of_header, ".cpp": of_todos}
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in read:
            found[path.name] = list(dict.fromkeys(read[path.suffix](path.read_text("utf-8"))))
    return found


def load(root: Path, task: manifest.Task, mutants: Iterable[mutant_files.Mutant]) -> Contract:
    """The table of a task, compared with its sentences. `mutants`: those of the task."""
    path = root / FOLDER / f"task{task.number}.toml"
    try:
        table = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ContractError(f"{path.name}: {error}") from error
    of_files = of_task(root, task)
    known = {f"{step} {each.name}" for each in mutants for step in each.loses} | {
        f"alternative {each.name}" for each in mutants if each.is_alternative}
    problems = [f"{path.name}: [\"{name}\"] is no file of tasks/{task.folder}"
                for name in sorted(set(table) - set(of_files))]
    broken_by: dict[tuple[str, str], tuple[str, ...]] = {}
    for name, all_sentences in of_files.items():
        rows = dict(table.get(name, {}))
        decided = [(words, ()) for words in rows.pop("explains", [])]
        decided += [(words, (by,) if isinstance(by, str) else tuple(by))
                    for words, by in rows.items()]
        missing = list(all_sentences)
        for words, by in decided:
            where = f"{path.name}: {name}: \"{words}\""
            meant = ([words] if words in all_sentences else
                     [each for each in all_sentences if each.startswith(words)])
            if len(meant) != 1:
                problems.append(f"{where}: " + ("no sentence begins like this; was it reworded?"
                                                if not meant else "quote more: several begin so"))
                continue
            if len(words.split()) < _LEAST_WORDS and words != meant[0]:
                problems.append(f"{where}: quote at least {_LEAST_WORDS} words")
            if (name, meant[0]) in broken_by:
                problems.append(f"{where}: has two rows")
            problems += [f"{where}: there is no variant '{each}'" for each in by
                         if each not in known]
            broken_by[name, meant[0]] = by
            if meant[0] in missing:
                missing.remove(meant[0])
        if missing:
            problems.append(f"# {path.name}: no row for\n[\"{name}\"]\n" + "\n".join(
                f"{json.dumps(each, ensure_ascii=False)} = \"\"" for each in missing))
    return Contract(task, broken_by, tuple(problems))


def load_all(root: Path, course: manifest.Manifest, number: int | None = None) -> list[Contract]:
    mutants = mutant_files.load_all(root, course)
    return [load(root, task, [each for each in mutants if each.task is task])
            for task in course.tasks if number in (None, task.number)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", type=int)
    options = parser.parse_args(arguments)
    try:
        contracts = load_all(manifest.ROOT, manifest.load(), options.task)
    except (ContractError, mutant_files.MutantError, manifest.ManifestError) as error:
        print(error, file=sys.stderr)
        return 1
    for each in contracts:
        print("\n".join([*each.problems, f"task {each.task.number}, {each.summary(set())}"]))
    return 1 if any(each.problems for each in contracts) else 0


if __name__ == "__main__":
    sys.exit(main())
