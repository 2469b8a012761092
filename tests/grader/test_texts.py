"""What handouts, book and hints mention exists: steps, points, symbols, commands."""

import re
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


if __name__ == "__main__":
    unittest.main()
