"""Tests of verdicts.py against recorded reports and a judge made of shell."""

import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest
import verdicts

DATA = Path(__file__).parent / "test_data"


def case(step: str, passed: bool, hidden: bool = False, message: str = "") -> verdicts.Case:
    return verdicts.Case(f"case of {step}{' h' * hidden}", (step,), hidden, passed, True,
                         [] if passed else [message or "wrong"])


class ReportTest(unittest.TestCase):
    def test_version_2(self):
        cases = verdicts.parse_report((DATA / "catch2_v2.xml").read_bytes())
        self.assertEqual([each.passed for each in cases], [True, False, False, False, False])
        self.assertEqual([each.hidden for each in cases], [False, False, False, True, False])
        self.assertEqual([each.steps for each in cases],
                         [("3.1",), ("3.2",), ("3.3",), ("3.3",), ("3.4",)])
        self.assertEqual(cases[0].seconds, 0.25)
        self.assertEqual(cases[1].messages, [
            "world 2\n3.2 rank 1, unit layer\n  observed: NaN\n  expected: 0.5",
            "unit W=2 seed 1: the run threw Error"])
        self.assertEqual(cases[2].todos, ["3.3"])
        self.assertEqual(cases[3].message, "REQUIRE( bytes == 0 )\nwith 128 == 0")
        self.assertIn("asserted nothing", cases[4].message)

    def test_version_3(self):
        cases = verdicts.parse_report((DATA / "catch2_v3.xml").read_bytes())
        self.assertEqual([each.passed for each in cases], [True, False, False, False])
        self.assertEqual(cases[2].message, "skipped: no MPI here")
        self.assertIn("the judge crashed: SIGSEGV", cases[3].message)

    def test_every_message_names_the_step_of_its_case(self):
        report = """<Catch><Group><TestCase name="a" tags="[hidden][3.4]">
          <Failure>W=2: the run crashed. make debug-n.m starts a debugger on it.</Failure>
          <Failure>In make debug-n.m, `catch throw` stops there</Failure>
          <OverallResult success="false"/></TestCase></Group></Catch>"""
        self.assertEqual(verdicts.parse_report(report.encode())[0].messages, [
            "W=2: the run crashed. make debug-3.4 starts a debugger on it.",
            "In make debug-3.4, `catch throw` stops there"])

    def test_the_assertion_catch2_invents_around_an_exception_is_left_out(self):
        report = """<Catch><Group><TestCase name="a" tags="[3.1]">
          <Expression success="false" type="CHECK"><Original>
            {Unknown expression after the reported line}</Original>
            <Expanded>{Unknown expression after the reported line}</Expanded>
            <Exception>the run threw</Exception></Expression>
          <OverallResult success="false"/></TestCase></Group></Catch>"""
        parser = verdicts.CaseParser()
        parser.feed(report.encode())
        self.assertEqual(parser.cases[0].messages, ["the run threw"])

    def test_a_report_may_be_cut_off_anywhere(self):
        whole = (DATA / "catch2_v2.xml").read_bytes()
        complete = 0
        for size in range(0, len(whole), 7):
            cases = verdicts.parse_report(whole[:size])
            self.assertGreaterEqual(len(cases), complete)
            complete = len(cases)
        self.assertEqual(complete, 5)

    def test_what_is_no_report_is_refused(self):
        with self.assertRaises(verdicts.JudgeError):
            verdicts.parse_report(b"hello\n")


class JudgeTest(unittest.TestCase):
    """A judge is any program that lists and reports as Catch2 does."""

    LIST = f'case "$*" in *--list-tests*) cat {DATA}/catch2_v3_list.xml; exit 2;; esac\n'
    ONE = ('<?xml version="1.0"?><Catch2TestRun><TestCase name="Gathering starts once" '
           'tags="[3.1]"><OverallResult success="true"/></TestCase>')

    def judge(self, body: str) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "judge"
        path.write_text("#!/bin/sh\n" + body, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_fewer_executed_than_listed_is_a_failure(self):
        judge = self.judge(self.LIST + f"echo '{self.ONE}</Catch2TestRun>'")
        heard = []
        cases = verdicts.run_judge(judge, Path("runner"), on_case=heard.append)
        self.assertEqual([(each.name, each.passed, each.executed) for each in cases],
                         [("Gathering starts once", True, True),
                          ("Resharding frees, other sizes", False, False)])
        self.assertEqual(len(heard), 1)
        self.assertIn("ended before it ran this case", cases[1].message)
        self.assertEqual((cases[1].steps, cases[1].hidden), (("3.3",), True))

    def test_a_judge_that_dies_inside_a_case_says_which(self):
        judge = self.judge(self.LIST + f"echo '{self.ONE}<TestCase name=\"Resharding frees, other "
                           "sizes\" tags=\"[3.3][hidden]\">'; echo broken >&2; exit 7")
        last = verdicts.run_judge(judge, Path("runner"))[-1]
        self.assertIn("stopped inside this case, with exit code 7. broken", last.message)

    def test_judges_side_by_side_share_the_cases_and_keep_their_order(self):
        judge = self.judge("")
        judge.write_text(f"""#!{sys.executable}
import re, sys
words = sys.argv[1:]
names = ["First", "Second, larger", "Third"]
wanted = [re.sub(r"\\\\(.)", r"\\1", each) for each in re.split(r"(?<!\\\\),", words[-1])]
asked = [name for name in names if name in wanted] or names
if "--list-tests" in words:
    cases = [f"<TestCase><Name>{{name}}</Name><Tags>[3.1]</Tags></TestCase>" for name in asked]
else:
    print(words[-1], file=open(__file__ + ".runs", "a", encoding="utf-8"))
    cases = [f'<TestCase name="{{name}}" tags="[3.1]"><OverallResult success="true"/></TestCase>'
             for name in asked]
print('<?xml version="1.0"?><Report>' + "".join(cases) + "</Report>")
""", encoding="utf-8")
        cases = verdicts.run_side_by_side(judge, Path("runner"), "", 2)
        self.assertEqual([(each.name, each.passed) for each in cases],
                         [("First", True), ("Second, larger", True), ("Third", True)])
        runs = Path(f"{judge}.runs").read_text(encoding="utf-8").splitlines()
        self.assertEqual(sorted(runs), ["First,Third", "Second\\, larger"])

    def test_a_filter_for_names(self):
        self.assertEqual(verdicts.exactly(["a, b [3.1]", '"c"']), r'a\, b \[3.1\],\"c\"')

    def test_a_case_that_a_judge_does_not_find_by_name_is_an_error(self):
        def entry(name: str) -> str:
            return f"<TestCase><Name>{name}</Name><Tags>[3.1]</Tags></TestCase>"

        judge = self.judge(f"""for word; do spec=$word; done
echo '<?xml version="1.0"?><Report>'
case $spec in
First,Third) echo '{entry("First")}' ;;
Second) echo '{entry("Second")}' ;;
*) echo '{entry("First")}{entry("Second")}{entry("Third")}' ;;
esac
echo '</Report>'
""")
        with self.assertRaisesRegex(verdicts.JudgeError, r"\['Third'\]"):
            verdicts.run_side_by_side(judge, Path("runner"), "", 2)

    def test_out_of_time(self):
        judge = self.judge(self.LIST + f"echo '{self.ONE}'; exec sleep 60")
        cases = verdicts.run_judge(judge, Path("runner"), timeout=0.5)
        self.assertEqual([each.message for each in cases], ["", "not run: time"])

    def test_a_case_that_runs_long_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            gate = Path(folder) / "gate"
            os.mkfifo(gate)
            judge = self.judge(self.LIST + f"echo '{self.ONE}<TestCase name=\"Slow\" tags="
                               f"\"[3.3]\">'; read line < {gate}; echo '</TestCase></Catch2TestRun>'")
            named = []

            def on_wait(name):
                if name and not named:
                    named.append(name)
                    gate.write_text("go on\n", encoding="utf-8")

            cases = verdicts.run_judge(judge, Path("runner"), on_wait=on_wait, patience=0.01)
        self.assertEqual(named, ["Slow"])
        self.assertEqual([each.name for each in cases][:2], ["Gathering starts once", "Slow"])

    def test_a_filter_that_matches_nothing_is_an_error(self):
        judge = self.judge("echo '<?xml version=\"1.0\"?><MatchingTests/>'")
        with self.assertRaisesRegex(verdicts.JudgeError, "no case matches"):
            verdicts.run_judge(judge, Path("runner"), "[9.9]")

    def test_names_and_tags_of_version_2(self):
        judge = self.judge("""case "$*" in
*--list-tests*) echo "Matching test cases:"; exit 2;;
*--list-tags*) echo "   2  [3.1]"; echo "   1  [hidden]"; exit 2;;
*--list-test-names-only*hidden*) echo "Second, other sizes";;
*--list-test-names-only*) echo "First"; echo "Second, other sizes";;
esac""")
        listed = verdicts.list_cases(judge)
        self.assertEqual([(each.name, each.steps, each.hidden) for each in listed],
                         [("First", ("3.1",), False), ("Second, other sizes", ("3.1",), True)])


class StepTest(unittest.TestCase):
    def setUp(self):
        self.task = manifest.load().task(3)

    def states(self, cases) -> dict[str, str]:
        return {each.step.id: f"{each.state} {each.blocked_by}".strip()
                for each in verdicts.judge_steps(self.task, cases)}

    def test_points_need_all_cases_of_their_kind(self):
        found = verdicts.judge_steps(self.task, [
            case("3.1", True), case("3.1", False, hidden=True), case("3.2", True),
            case("3.2", False), case("3.3", True), case("3.3", True, hidden=True)])
        self.assertEqual([(each.public, each.hidden) for each in found],
                         [(1, 0), (0, 0), (2, 1), (0, 0), (0, 0), (0, 0)])
        self.assertEqual(found[3].state, "not run")

    def test_a_failing_case_is_blocked_by_what_it_requires(self):
        self.assertEqual(self.states([case("3.1", False), case("3.2", False), case("3.3", True),
                                      case("3.4", False), case("3.5", True), case("3.6", True)]),
                         {"3.1": "failed", "3.2": "blocked 3.1", "3.3": "passed",
                          "3.4": "blocked 3.1", "3.5": "passed", "3.6": "passed"})

    def test_unsolved_steps_are_told_from_wrong_ones(self):
        todo = "TODO 3.2: finish_unshard (tasks/task3_forward/forward.cpp:60, make hint-3.2)"
        states = self.states([case("3.1", True), case("3.2", False, message=todo),
                              case("3.3", False, message=todo)])
        self.assertEqual((states["3.2"], states["3.3"]), ("todo", "blocked 3.2"))

    def test_what_is_not_written_does_not_fail(self):
        todo = "TODO 3.2: finish_unshard (tasks/task3_forward/forward.cpp:60, make hint-3.2)"
        found = verdicts.judge_steps(self.task, [
            case("3.1", False), case("3.2", False, message=todo), case("3.3", False)])
        self.assertEqual([(each.blocked_by, each.waits) for each in found[:3]],
                         [("", False), ("", False), ("3.1", False)])
        found = verdicts.judge_steps(self.task, [
            case("3.1", True), case("3.2", False, message=todo), case("3.3", False)])
        self.assertEqual((found[2].blocked_by, found[2].waits), ("3.2", True))

    def test_what_was_left_out_after_hangs_did_not_fail(self):
        left_out = "unit W=2 seed 1: not run, because 2 runs before it did not end"
        task = manifest.load().task(5)
        found = verdicts.judge_steps(task, [case("5.1", False, message="did not end"),
                                            case("5.2", False, message=left_out),
                                            case("5.3", False, message=left_out)])
        self.assertEqual([(each.state, each.blocked_by) for each in found[:3]],
                         [("failed", ""), ("blocked", "5.1"), ("not run", "")])

    def test_a_step_known_to_be_unwritten_does_not_wait(self):
        todo = "TODO 3.1: start_unshard (x.cpp:1, w)"
        found = verdicts.judge_steps(self.task, [case("3.1", False, message=todo),
                                                 case("3.2", False, message=todo)],
                                     unsolved=["3.1", "3.2"])
        self.assertEqual([each.state for each in found[:2]], ["todo", "todo"])

    def test_a_step_of_an_earlier_task_comes_first(self):
        todo = "TODO 2.4: make_views (x.cpp:1)"
        found = verdicts.judge_steps(self.task, [case("3.1", False, message=todo),
                                                 case("3.2", False, message=todo)])
        self.assertEqual([(each.blocked_by, each.waits) for each in found[:2]],
                         [("2.4", True), ("2.4", True)])

    def test_a_step_of_an_earlier_task_can_block(self):
        states = self.states([case("3.1", False, message="TODO 2.4: make_views (x.cpp:1)")])
        self.assertEqual(states["3.1"], "blocked 2.4")

    def test_cases_survive_being_stored(self):
        cases = [case("3.1", True), case("3.2", False)]
        self.assertEqual(verdicts.from_json(verdicts.to_json(cases)), cases)


if __name__ == "__main__":
    unittest.main()
