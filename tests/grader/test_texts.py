"""What handouts, book and hints mention exists: steps, points, symbols, commands, terms."""

import re
import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = tomllib.loads((ROOT / "apps/course/points.toml").read_text())
TASKS = MANIFEST["task"]
STEPS = {step["id"]: step for task in TASKS for step in task["steps"]}
HANDOUTS = [ROOT / "tasks" / task["folder"] / "README.md" for task in TASKS]
CHAPTERS = sorted((ROOT / "writeup").glob("*.md"))
NOTES = [ROOT / "solutions" / task["folder"] / "NOTES.md" for task in TASKS]
TEXTS = HANDOUTS + CHAPTERS + NOTES
CODE = [path for folder in ("common", "tasks", "solutions", "apps", "tests")
        for pattern in ("*.h", "*.cpp", "*.py", "*.toml", "*.sh", "*.txt")
        for path in (ROOT / folder).rglob(pattern)] + [ROOT / "Makefile"]

PYTORCH = {"resize_", "record_stream"}  # names the book mentions that are not ours


def words_of_the_code() -> set[str]:
    words: set[str] = set()
    for path in CODE:
        words.update(re.findall(r"[A-Za-z_]\w*", path.read_text(errors="replace")))
    return words


def spans(text: str) -> list[str]:
    """What stands between backticks in running text (fenced blocks left out)."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", text)


def is_symbol(word: str) -> bool:
    """Looks like a name of the code: snake_case, member_, or CamelCase of two humps."""
    return bool(re.fullmatch(r"[a-z]\w*_\w*|_\w+|(?:[A-Z][a-z0-9]+){2,}", word))


def targets() -> list[re.Pattern[str]]:
    names = re.findall(r"^([a-z][\w%-]*):", (ROOT / "Makefile").read_text(), flags=re.M)
    return [re.compile(re.escape(name).replace("%", r"[\w.]+")) for name in names]


def anchors(text: str) -> set[str]:
    """The names a Git host gives the headings of a text: "## 2.1 The layout" is #21-the-layout."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#{1,6} (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(text: str, title: str) -> str:
    """What stands below the heading of this title, up to the next one."""
    return re.split(r"^## ", text.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.M)[0]


class Texts(unittest.TestCase):
    def test_handouts_name_every_step_with_its_title_and_points(self) -> None:
        for task, path in zip(TASKS, HANDOUTS):
            text = path.read_text()
            total = task["questions"] + sum(s["public"] + s.get("hidden", 0)
                                            for s in task["steps"])
            self.assertIn(f"{total} points", text, path)
            rows = re.findall(r"^\| (\d\.\d) \| (.*?) \| (\d+) \| ?(\d*) ?\|", text, flags=re.M)
            self.assertEqual(rows, [(s["id"], s["title"], str(s["public"]),
                                     str(s.get("hidden", ""))) for s in task["steps"]], path)
            for step in task["steps"]:
                self.assertIn(f"**{step['id']}**", text, path)

    def test_chapters_have_a_section_for_every_step(self) -> None:
        for task in TASKS:
            chapter = next(c for c in CHAPTERS if c.name.startswith(f"{task['number']}_"))
            headings = re.findall(r"^## (\d\.\d) (.*)$", chapter.read_text(), flags=re.M)
            known = [(number, title) for number, title in headings if number in STEPS]
            self.assertEqual([(n, t.lower()) for n, t in known],
                             [(s["id"], s["title"].lower()) for s in task["steps"]], chapter)

    def test_hints_have_three_levels_for_every_step(self) -> None:
        for task in TASKS:
            path = ROOT / f"apps/course/hints/task{task['number']}.toml"
            hints = tomllib.loads(path.read_text())
            self.assertEqual(list(hints), [s["id"] for s in task["steps"]], path)
            for step, levels in hints.items():
                for thrown in levels.pop("thrown", []):
                    self.assertEqual(list(thrown), ["says", "cause"], f"{path}: {step}")
                    re.compile(thrown["says"])
                self.assertEqual(list(levels), ["one", "two", "three", "throws"],
                                 f"{path}: {step}")
                for level in levels.values():
                    self.assertGreater(len(level.strip()), 30, f"{path}: {step}")

    def test_step_numbers_exist(self) -> None:
        for path in TEXTS:
            for kind, step in re.findall(r"(hint-|debug-|ONLY=|[Ss]tep |TODO )(\d\.\d)\b",
                                         path.read_text()):
                self.assertIn(step, STEPS, f"{path}: {kind}{step}")

    def test_commands_exist(self) -> None:
        known = targets()
        for path in TEXTS:
            for target in re.findall(r"(?:^|`)make ([a-z][\w.-]*)", path.read_text(), flags=re.M):
                target = re.sub(r"n\.m$|N$", "1", target)
                self.assertTrue(any(k.fullmatch(target) for k in known), f"{path}: make {target}")

    def test_symbols_exist(self) -> None:
        words = words_of_the_code()
        missing = sorted({f"{path.relative_to(ROOT)}: {word}" for path in TEXTS
                          for span in spans(path.read_text()) if "/" not in span
                          for word in re.findall(r"[A-Za-z_]\w*", span)
                          if is_symbol(word) and word not in words | PYTORCH})
        self.assertEqual(missing, [])

    def test_links_lead_to_headings(self) -> None:
        for path in TEXTS + [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
                             *(ROOT / "docs").glob("*.md")]:
            for file, anchor in re.findall(r"\]\(([^()#\s:]*)#([^()\s]+)\)", path.read_text()):
                there = (path.parent / file).resolve() if file else path
                self.assertIn(anchor, anchors(there.read_text()), f"{path}: {file}#{anchor}")


class Glossary(unittest.TestCase):
    TEXT = (ROOT / "writeup/glossary.md").read_text()
    TERMS = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \| (.+) \|$", section(TEXT, "Terms"), flags=re.M)

    def test_every_term_of_a_chapter_is_in_it(self) -> None:
        known = {term for term, _, _ in self.TERMS}
        for chapter in sorted((ROOT / "writeup").glob("[0-8]_*.md")):
            terms = re.findall(r"\*\*(.+?)\*\*", section(chapter.read_text(), "Terms"))
            self.assertGreaterEqual(len(terms), 5, chapter)
            missing = [term for term in terms if term.strip("`") not in known]
            self.assertEqual(missing, [], f"{chapter}: not in writeup/glossary.md")

    def test_each_is_there_once_in_the_order_of_the_alphabet(self) -> None:
        names = [term.casefold() for term, _, _ in self.TERMS]
        self.assertEqual(names, sorted(set(names)))

    def test_each_has_a_sentence_or_two_and_a_place_in_the_book(self) -> None:
        for term, meaning, place in self.TERMS:
            self.assertTrue(meaning.endswith((".", ".)")), f"{term}: {meaning}")
            self.assertLessEqual(len(re.findall(r"[.:;](?= |$)", meaning)), 3, f"{term}: {meaning}")
            self.assertRegex(place, r"^\[[^\]]+\]\(([0-8]_\w+|worksheet)\.md#[\w-]+\)$", term)

    def test_each_place_uses_the_word(self) -> None:
        """Any form of it, in the section that the link names or in the chapter's introduction."""
        for term, _, place in self.TERMS:
            file, anchor = re.search(r"\((.+)#(.+)\)", place).groups()
            pieces = re.split(r"^(?=#{1,3} )", (ROOT / "writeup" / file).read_text(), flags=re.M)
            text = next(p for p in pieces if p and anchor in anchors(p.split("\n")[0] + "\n"))
            stem = re.sub(r"(ing|ed|s|e)$", "", term.split()[-1].casefold().split("_")[0])
            self.assertIn(stem, text.casefold(), f"{term}: not a word of {file}#{anchor}")

    def test_each_letter_has_one_row(self) -> None:
        rows = re.findall(r"^\| ([^|]+) \| .+ \| \[.+\]\(.+#.+\) \|$", section(self.TEXT, "Letters"),
                          flags=re.M)
        letters = [letter for row in rows for letter in row.split(", ")]
        self.assertEqual(sorted(letters), sorted(set(letters)))
        self.assertLessEqual(set("WrNPnMJLmjkKscpRQtVdFHBT"), set(letters))

    def test_every_kind_of_memory_has_a_row(self) -> None:
        types = (ROOT / "common/base/types.h").read_text()
        kinds = re.search(r"enum class MemoryKind \{(.*?)\}", types, flags=re.S)[1]
        rows = re.findall(r"^\| ([A-Z_]+) \|", section(self.TEXT, "Kinds of memory"), flags=re.M)
        self.assertEqual(sorted(rows), sorted(re.findall(r"\w+", kinds.upper())))

    def test_the_book_uses_no_letter_twice(self) -> None:
        """Uses of letters that once had another meaning beside the one in the glossary."""
        other = {"r as a time": r"\bmax\([bfg], r\)|g ?\+ ?r\b", "L as layers": r"\bL = \{L|\bL \d",
                 "C as seconds": r"\bC \+ X", "R and S as replicas": r"\bR replicas|\bN/S\b",
                 "d as depth": r"\bdepth d\b"}
        questions = [ROOT / f"apps/course/questions/task{t['number']}.toml" for t in TASKS]
        for path in TEXTS + questions + [ROOT / "writeup/worksheet.toml"]:
            for what, pattern in other.items():
                self.assertNotRegex(path.read_text(), pattern, f"{path}: {what}")


class Syllabus(unittest.TestCase):
    TEXT = (ROOT / "docs/syllabus.md").read_text()

    def test_its_figures_are_those_of_points_and_of_its_own_commands(self) -> None:
        rows = re.findall(r"^\| (\d) [a-z, ]+ \|(.*)\|$", self.TEXT, re.M)
        self.assertEqual(len(rows), 8)
        commands = re.search(r"^```sh\nk=4\n(.*?)^```$", self.TEXT, re.M | re.S)[1]
        for task, (number, row) in zip(TASKS, rows):
            with self.subTest(task=number):
                public, hidden, questions, points, sentences, lines, words, _ = (
                    int(cell.replace(",", "")) for cell in row.split("|"))
                self.assertEqual(public, sum(step.get("public", 0) for step in task["steps"]))
                self.assertEqual(hidden, sum(step.get("hidden", 0) for step in task["steps"]))
                self.assertEqual(points, public + hidden + questions)
                counted = subprocess.run(["bash", "-c", f"k={number}\n{commands}"], cwd=ROOT,
                                         capture_output=True, text=True, check=True).stdout.split()
                self.assertEqual([sentences, lines], [int(count) for count in counted[:2]])
                if number != "8":  # of its chapter a part counts
                    self.assertAlmostEqual(words, int(counted[2]), delta=75)

    def test_the_mistakes_at_the_board_are_in_the_corpus(self) -> None:
        for page in sorted((ROOT / "docs/board").glob("*.md")):
            named = re.findall(r"\(step (\d\.\d+),\s`(\w+)`\)", page.read_text())
            self.assertEqual(len(named), 3, page.name)
            for step, name in named:
                corpus = (ROOT / f"tests/mutants/{step}.toml").read_text()
                self.assertIn(f"[{name}]", corpus, page.name)


if __name__ == "__main__":
    unittest.main()
