"""The workflows for GitHub, the tree's own and a student's: they run targets that exist, and all
that they should."""

import re
import subprocess
import tomllib
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import history
import kit
from outer_make import without_outer_make
from test_container import FIRST
from test_makefile import documented

ROOT = Path(__file__).resolve().parents[2]
OWN = sorted((ROOT / ".github/workflows").glob("*"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
STUDENTS = ROOT / "apps/course/github/tasks.yml"
TASKS = tomllib.loads((ROOT / "apps/course/points.toml").read_text(encoding="utf-8"))["task"]
# All that is run besides make.
INSTALL = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(sorted(FIRST))}"
TRUST = 'git config --global --add safe.directory "$GITHUB_WORKSPACE"'
OTHERS = {INSTALL, TRUST}
# What may follow a command of make.
TO_SUMMARY = """ | sed 's/^/    /' >> "$GITHUB_STEP_SUMMARY\""""


def scalar(text: str) -> object:
    """A value of one line: a list, a number, a text, or nothing."""
    if re.fullmatch(r"\[[^\[\]]*\]", text):
        return [scalar(each.strip()) for each in text[1:-1].split(",")]
    if re.fullmatch(r'"[^"\\]*"', text):
        return text[1:-1]
    if re.match(r"[\[\]{}&*!|>%@`,?'\"]|- ", text) or re.search(r": |:$| #|\t", text):
        raise ValueError(f"not read here: {text}")
    return int(text) if text.isdecimal() else text or None


def read(text: str) -> object:
    """The part of YAML that the workflows use: maps and lists by indentation, values of one line,
    comments on lines of their own. Anything else is an error."""
    # A dash is one more level of indentation: "- a: 1" becomes "- " and "  a: 1".
    lines: list[tuple[int, str]] = []
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            indent, words = len(line) - len(line.lstrip(" ")), line.strip(" ")
            while words.startswith("- "):
                lines.append((indent, "-"))
                indent, words = indent + 2, words[2:]
            lines.append((indent, words))
    value, rest = block(lines)
    if rest:
        raise ValueError(f"indented in no block: {rest[0][1]}")
    return value


def block(lines: list[tuple[int, str]]) -> tuple[object, list[tuple[int, str]]]:
    """What the lines at the indentation of the first one say, and the lines after it."""
    indent, first = lines[0]
    entry = re.compile(r"([\w-]+):(?: +(.*))?")
    if first != "-" and not entry.fullmatch(first):
        return scalar(first), lines[1:]
    found_map: dict[str, object] = {}
    found_list: list[object] = []
    while lines and lines[0][0] == indent and (lines[0][1] == "-") == (first == "-"):
        words, lines = lines[0][1], lines[1:]
        match = entry.fullmatch(words)
        is_deeper = bool(lines) and lines[0][0] > indent
        if first == "-":
            value, lines = block(lines)
            found_list.append(value)
        elif match is None or match[1] in found_map or (match[2] and is_deeper):
            raise ValueError(f"not an entry of this map: {words}")
        elif is_deeper:
            found_map[match[1]], lines = block(lines)
        else:
            found_map[match[1]] = scalar(match[2] or "")
    return found_list if first == "-" else found_map, lines


def jobs(path: Path) -> dict:
    return read(path.read_text(encoding="utf-8"))["jobs"]


def variants(job: dict) -> list[dict]:
    """The values of `matrix`, one by one; without a matrix {}."""
    matrix = job.get("strategy", {}).get("matrix", {})
    if "include" in matrix:
        return matrix["include"]
    return [{name: value} for name, values in matrix.items() for value in values] or [{}]


def runs(path: Path) -> list[str]:
    """Each command that a workflow runs, for each variant of its job."""
    return [re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda of, v=values: str(v[of[1]]), step["run"])
            for job in jobs(path).values() for values in variants(job)
            for step in job["steps"] if "run" in step]


def made(path: Path) -> set[str]:
    """The commands of make among them."""
    return {line.removesuffix(TO_SUMMARY) for line in runs(path)} - OTHERS


class Reader(unittest.TestCase):
    def test_what_it_reads(self) -> None:
        text = """
a:
  # of b
  - b: "1"
    c: [2, d]
  - - e
    - f && g | h "i"
j:
k: ${{ l == 'm' }}
"""
        self.assertEqual(read(text), {"a": [{"b": "1", "c": [2, "d"]}, ["e", 'f && g | h "i"']],
                                      "j": None, "k": "${{ l == 'm' }}"})

    def test_what_it_refuses(self) -> None:
        for text in ("a: 1\na: 2", "a: b: c", "a: |\n  b", "a: 1\n  b: 2", "a:\n    b: 1\n  c: 2",
                     "a: 1 # b", "a: {b: 1}", "- a\nb: 1", "a: 'b'", 'a: "b', "a:\n\tb: 1"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                read(text)


class Workflows(unittest.TestCase):
    def test_each_can_be_read(self) -> None:
        self.assertEqual([path.name for path in OWN], ["pages.yml", "tests.yml"])
        for path in (*OWN, STUDENTS):
            workflow = read(path.read_text(encoding="utf-8"))
            self.assertEqual(workflow["permissions"], {"contents": "read"}, path)
            self.assertIn("push", workflow["on"], path)
            for job in workflow["jobs"].values():
                self.assertLessEqual(job["timeout-minutes"], 120, path)
                self.assertLessEqual({"runs-on", "steps"}, set(job), path)
                for step in job["steps"]:
                    self.assertEqual(len({"run", "uses"} & set(step)), 1, step)
                    self.assertRegex(step.get("uses", "actions/a@v1"), r"^actions/[\w-]+@v\d+$")
                if "strategy" in job:
                    self.assertEqual(job["strategy"]["fail-fast"], "false", path)

    def test_each_job_that_runs_make_begins_with_a_bare_debian_12(self) -> None:
        for path in (*OWN, STUDENTS):
            for name, job in jobs(path).items():
                commands = [step["run"] for step in job["steps"] if "run" in step]
                if commands:
                    self.assertEqual(job["container"]["image"], "debian:bookworm", name)
                    self.assertEqual(job["steps"][0], {"run": INSTALL}, name)
                    self.assertRegex(job["steps"][1]["uses"], "^actions/checkout@", name)

    def test_each_runs_targets_that_exist(self) -> None:
        clean = without_outer_make()
        in_a_kit = kit.without_instructor(MAKEFILE)
        of_a_kit = re.findall(r"(?m)^([a-z][a-z%-]*):(?!=)", in_a_kit)
        for path, targets in (*((path, documented()) for path in OWN), (STUDENTS, of_a_kit)):
            known = [re.compile(re.escape(name).replace("%", ".+")) for name in targets]
            self.assertGreater(len(known), 10)
            for line in made(path):
                with self.subTest(workflow=path.name, line=line):
                    words = re.fullmatch(r'make ([a-z0-9-]+)((?: [A-Z]+=(?:\w+|"\$\(cat \S+\)"))*)',
                                         line)
                    self.assertIsNotNone(words, "neither make nor a command that is listed here")
                    self.assertTrue(any(name.fullmatch(words[1]) for name in known))
                    done = subprocess.run(["sh", "-c", line.replace("make ", "make -n ", 1)],
                                          cwd=ROOT, check=False, capture_output=True, text=True,
                                          env=clean, timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_together_they_run_what_ci_runs(self) -> None:
        ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
        there = set(re.findall(r"(?m)^(?:step|exec) (make \S+.*?)(?: THIRD=\$third| </dev/null)?$", ci))
        parts = re.search(r"(?m)^sanitize: ([a-z -]+?) *##", MAKEFILE)[1].split()
        turns = re.search(r"(?m)^sanitizers=\((.*)\)$", ci)[1].split()
        self.assertEqual([f"sanitize-{turn}" for turn in turns], parts)
        in_turn = 'make "sanitize-${sanitizers[turn % 2]}"'
        self.assertIn(in_turn, there)
        there = there - {in_turn} | {f"make {part}" for part in parts}
        self.assertEqual(set().union(*map(made, OWN)), there)
        own = read((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
        for name, value in own["env"].items():
            self.assertIn(f"export {name}={value}\n", ci)

    def test_only_main_is_published(self) -> None:
        build, publish = jobs(ROOT / ".github/workflows/pages.yml").values()
        self.assertEqual(publish["if"], "github.ref == 'refs/heads/main'")
        self.assertEqual(publish["permissions"], {"pages": "write", "id-token": "write"})
        self.assertNotIn("permissions", build)
        self.assertEqual(build["steps"][-1]["with"], {"path": "build/docs/html"})
        self.assertIn("docs.sh build/docs\n", MAKEFILE)


class Students(unittest.TestCase):
    def test_it_tests_each_task_and_needs_none_that_is_extra(self) -> None:
        job = jobs(STUDENTS)["task"]
        self.assertEqual(job["strategy"], {"fail-fast": "false", "matrix": {
            "task": [task["number"] for task in TASKS]}})
        extra = [task["number"] for task in TASKS if task.get("extra")]
        self.assertEqual(job["continue-on-error"], f"${{{{ matrix.task == {extra[0]} }}}}")
        self.assertEqual(len(extra), 1)
        self.assertEqual(made(STUDENTS), {"make progress",
                                          *(f"make test-task{task['number']}" for task in TASKS)})

    def test_its_points_are_of_the_verdicts_of_all_tasks(self) -> None:
        task, points = jobs(STUDENTS).values()
        kept = task["steps"][-1]["with"]
        self.assertEqual(kept["path"], f"{history.FOLDER}/task${{{{ matrix.task }}}}.json")
        found = next(step["with"] for step in points["steps"] if "pattern" in step.get("with", {}))
        self.assertEqual(found["path"], str(history.FOLDER))
        self.assertEqual(kept["name"], found["pattern"].replace("*", "${{ matrix.task }}"))
        for each in (task["steps"][-1], points):  # whatever failed before
            self.assertEqual(each["if"], "${{ !cancelled() }}")
        self.assertEqual(runs(STUDENTS)[-2:], ["make progress", f"make progress{TO_SUMMARY}"])


if __name__ == "__main__":
    unittest.main()
