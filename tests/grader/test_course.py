"""Tests of the student's tools: results.py, hints.py, submission.py, integrated.py, course.py."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import answers
import course
import hints
import history
import integrated
import loop
import manifest
import results
import submission
import unpack
import unwritten
import verdicts


def case(step: str, *messages: str, hidden: bool = False) -> verdicts.Case:
    return verdicts.Case(f"case of {step}", (step,), hidden, not messages, True, list(messages))


class InRoot(unittest.TestCase):
    """A root with the files of task 3 only."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.whole = manifest.load()
        self.task = self.whole.task(3)
        self.file = self.root / "tasks" / self.task.folder / "forward.cpp"
        self.put(self.file, "mine\n")
        self.put(self.root / submission.KIT_SKELETONS / self.task.folder / "forward.cpp", "new\n")

    def put(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class ResultsTest(InRoot):
    CASES = [case("3.1"), case("3.2", "3.2 rank 1\n  observed: NaN\n  likely: x", "again"),
             case("3.3", "observed: 2"),
             case("3.5", "TODO 3.5: install_hooks (tasks/task3_forward/forward.cpp:10, w)")]

    def test_a_line_a_step(self):
        lines = results.table(verdicts.judge_steps(self.task, self.CASES))
        self.assertEqual([[word.strip() for word in line.split("  ")[-2:]] for line in lines], [
            ["1/1", "passed"], ["0/2", "FAILED"], ["0/2", "BLOCKED by 3.2"],
            ["0/2", "NOT RUN: the judge has no case of this step"], ["0/2", "not written yet"],
            ["0/1", "NOT RUN: the judge has no case of this step"]])

    def test_the_first_failure_in_full_and_the_rest_in_lines(self):
        self.assertEqual(results.failures(verdicts.judge_steps(self.task, self.CASES)), [
            '3.2 "case of 3.2"', "", "    3.2 rank 1", "      observed: NaN", "      likely: x",
            "      read:     writeup/3_forward.md §3.2, make hint-3.2", "",
            "    (1 more in this case)", "", "After that:",
            '  3.5 "case of 3.5": not written yet: tasks/task3_forward/forward.cpp:10',
            '  3.3 "case of 3.3": needs 3.2 first'])

    def test_a_later_failure_says_what_was_seen_and_expected(self):
        found = verdicts.judge_steps(self.task, [
            case("3.1", "observed: 3"),
            verdicts.Case("values", ("3.1",), False, False, True,
                          ["3.1 rank 0\n  observed: 2\n  expected:\n  1"]),
            verdicts.Case("crash", ("3.1",), False, False, True, ["it crashed\n  expected: 1"])])
        self.assertEqual(results.failures(found)[-3:], [
            "After that:", '  3.1 "values": observed: 2; expected: 1',
            '  3.1 "crash": it crashed'])

    def test_three_later_failures_are_told_and_the_others_counted(self):
        many = [verdicts.Case(f"case {i}", ("3.1",), False, False, True, ["observed: 3"])
                for i in range(6)]
        self.assertEqual(results.failures(verdicts.judge_steps(self.task, many))[-5:], [
            "After that:", *[f'  3.1 "case {i}": observed: 3' for i in (1, 2, 3)], "  and 2 more"])

    def later(self, message):
        """The line of a failing case after the first."""
        found = verdicts.judge_steps(self.task, [
            case("3.1", "observed: 3"),
            verdicts.Case("later", ("3.1",), False, False, True, [message])])
        return results.failures(found)[-1].removeprefix('  3.1 "later": ')

    def test_of_lists_the_first_lines_that_differ_are_told(self):
        lists = ("3.1 rank 0\n  observed: records(), from line 3 on:\n        word 8\n"
                 "        word 9\n      > {}\n  expected: \n        word 8\n        word 9\n      > {}\n"
                 "  broken:   all")
        self.assertEqual(self.later(lists.format("word 5\n        word 6", "word 7")),
                         "observed: records(), from line 3 on: word 5; expected: word 7")
        self.assertEqual(self.later(lists.format("word 5", "(nothing more)")),
                         "observed: records(), from line 3 on: word 5; expected: (nothing more)")
        self.assertEqual(self.later(lists.format("(nothing more)", "word 7")),
                         "observed: records(), from line 3 on: (nothing more); expected: word 7")

    def test_an_empty_side_takes_nothing_of_the_field_after_it(self):
        self.assertEqual(self.later("3.1\n  observed: accepted\n"
                                    "  expected: Error whose text contains: \n"
                                    "  broken:   a module can be a unit only once"),
                         "observed: accepted; expected: Error whose text contains:")

    def test_a_long_side_leaves_room_for_the_other(self):
        line = self.later(f"3.1\n  observed: {'x' * 200}\n  expected: y\n  broken:   all")
        self.assertEqual(len(line), 120)
        self.assertTrue(line.endswith("x…; expected: y"))
        line = self.later(f"3.1\n  observed: {'x' * 200}\n  expected: {'y' * 200}\n  broken:   all")
        self.assertEqual(len(line), 120)
        self.assertIn("x…; expected: y", line)

    def test_the_summary_says_what_is_graded_later(self):
        found = verdicts.judge_steps(self.task, self.CASES)
        self.assertEqual(results.summary(self.task, found),
                         "public 1/10; 3 hidden points and 2 for the accounting questions are "
                         "graded on submission")
        one = verdicts.judge_steps(self.task, self.CASES, ["3.1"])
        self.assertEqual(results.summary(self.task, one), "public 1/1 in 3.1")

    def test_progress_follows_the_stored_results(self):
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertIn(f"task 3  Forward            [{'.' * 20}]  0/10  not tested yet", text)
        self.assertIn("public 0/70; 16 hidden points and 14 for", text)
        self.assertIn("next: 1.1, ", text)
        history.store(self.root, self.task, history.digest_of(self.root, self.task), self.CASES)
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertIn("task 3  Forward            [##..................]  1/10\n", text)
        self.put(self.file, "changed\n")
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertIn("changed since: make test-task3", text)

    def test_in_a_kit_an_earlier_task_can_be_what_is_missing(self):
        fourth = self.whole.task(4)
        self.assertEqual(history.unmet_before(self.root, self.whole, fourth), "")
        history.store(self.root, self.task, history.digest_of(self.root, self.task), self.CASES)
        self.assertEqual(history.unmet_before(self.root, self.whole, fourth), "3.2")
        found = verdicts.judge_steps(fourth, [case("4.1", "wrong")], ["4.1"], "3.2")
        self.assertEqual(results.state_of(found[0]), "BLOCKED by 3.2")
        self.put(self.root / "solutions" / self.task.folder / "forward.cpp", "the reference\n")
        self.assertEqual(history.unmet_before(self.root, self.whole, fourth), "")

    def test_in_a_kit_an_earlier_task_may_have_changed(self):
        fourth = self.whole.task(4)
        for n in (1, 2):
            earlier = self.whole.task(n)
            self.put(self.root / "solutions" / earlier.folder / earlier.files[0], "given\n")
        self.assertIn("your own code of task 3, which has not been tested",
                      history.untested_before(self.root, self.whole, fourth))
        history.store(self.root, self.task, history.digest_of(self.root, self.task), self.CASES)
        self.assertEqual(history.untested_before(self.root, self.whole, fourth), "")
        self.put(self.file, "changed\n")
        self.assertIn("make test-task3", history.untested_before(self.root, self.whole, fourth))

    def test_what_is_given_in_a_kit_need_not_be_done(self):
        for n in (1, 2):
            given = self.whole.task(n)
            self.put(self.root / "solutions" / given.folder / given.files[0], "given\n")
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertEqual(text.count("given: the later tasks run on the reference"), 2)
        self.assertIn("next: 3.1, ", text)

    def test_after_the_first_step_alone_comes_the_second(self):
        first = self.whole.task(1)
        self.put(self.root / "tasks" / first.folder / first.files[0], "a skeleton\n")
        history.store(self.root, first, history.digest_of(self.root, first),
                      [case(step.id, "TODO 1.1: build") for step in first.steps])
        self.put(self.root / "tasks" / first.folder / first.files[0], "1.1 is written\n")
        history.store(self.root, first, history.digest_of(self.root, first), [case("1.1")], "1.1")
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertIn("next: 1.2, ", text)

    def test_extra_credit_is_shown_apart(self):
        (extra,) = self.whole.optional
        lines = results.progress(self.root, self.whole)
        at = lines.index("  extra credit, on top of the 100 points:")
        self.assertIn(f"  public 0/{100 - 30}; ", "\n".join(lines[:at]))
        self.assertEqual(len(lines[at:]), 2)
        self.assertRegex(lines[-1], f"task 8  {extra.title} .* 0/{extra.public} +not tested yet$")
        history.store(self.root, extra, history.digest_of(self.root, extra),
                      [case(step.id) for step in extra.steps])
        self.assertRegex(results.progress(self.root, self.whole)[-1],
                         f" {extra.public}/{extra.public} +done$")

    def test_code_that_is_put_back_has_its_verdict_back(self):
        def judged(*cases):
            history.store(self.root, self.task, history.digest_of(self.root, self.task), cases)

        passing = [case(step.id) for step in self.task.steps]
        judged(*passing)
        self.put(self.file, "broken\n")
        judged(case("3.1", "wrong"))
        self.assertEqual(history.load(self.root, self.task).found[0].state, "failed")
        for number in range(6):
            self.put(self.file, f"broken {number}\n")
            judged(case("3.1", "wrong"))
        self.put(self.file, "mine\n")
        stored = history.load(self.root, self.task)
        self.assertTrue(stored.is_current)
        self.assertEqual({each.state for each in stored.found}, {"passed"})

    def test_two_earlier_tasks_have_a_command_each(self):
        self.put(self.root / "solutions" / self.whole.task(1).folder / "meta_device.cpp", "given")
        self.assertEqual(
            history.untested_before(self.root, self.whole, self.whole.task(4)),
            "Task 4 runs on your own code of task 2 and task 3, which have not been tested as they "
            "are now: make test-task2, then make test-task3")

    def test_a_run_of_one_step_counts_for_that_step(self):
        def judged(step, *cases):
            history.store(self.root, self.task, history.digest_of(self.root, self.task), cases,
                          step)

        both = verdicts.Case("of both", ("3.1", "3.2"), False, True, True)
        judged("3.1", case("3.1"), both)
        stored = history.load(self.root, self.task)
        self.assertEqual([each.public for each in stored.found], [1, 0, 0, 0, 0, 0])
        self.assertEqual(stored.never_run, ["3.2", "3.3", "3.4", "3.5", "3.6"])
        self.assertFalse(stored.is_current)
        text = "\n".join(results.progress(self.root, self.whole))
        self.assertIn(" 1/10  3.2, 3.3, 3.4, 3.5, 3.6 not tested yet: make test-task3", text)
        judged("3.2", both, case("3.2", "wrong"))
        stored = history.load(self.root, self.task)
        self.assertEqual([each.state for each in stored.found[:2]], ["passed", "failed"])
        self.put(self.file, "3.2 is right now\n")
        judged("3.2", both, case("3.2"))
        self.assertEqual([each.public for each in history.load(self.root, self.task).found],
                         [1, 2, 0, 0, 0, 0])

    def test_a_step_never_judged_again_keeps_its_verdict(self):
        digest = history.digest_of(self.root, self.task)
        history.store(self.root, self.task, digest, [case("3.1")], "3.1")
        for number in range(20):
            history.store(self.root, self.task, str(number), [case("3.2")], "3.2")
        self.assertEqual([each.public for each in history.load(self.root, self.task).found],
                         [1, 2, 0, 0, 0, 0])

    def test_a_step_that_waits_is_not_blocked(self):
        todo = "TODO 3.4: reshard_to_subgroup (tasks/task3_forward/forward.cpp:9, w)"
        found = verdicts.judge_steps(self.task, [case("3.4", todo), case("3.5", "wrong")])
        self.assertEqual(results.state_of(found[4]), "waits for 3.4 (not written yet)")
        self.assertIn('"case of 3.5": waits for 3.4, which is not written yet',
                      results.failures(found)[-1])

    def test_a_step_that_cannot_work_yet_is_one_line(self):
        todo = "TODO 3.1: start_unshard (tasks/task3_forward/forward.cpp:9, w)"
        cases = [case("3.1", todo)] + [
            verdicts.Case(f"{name} of 3.2", ("3.2",), False, False, True, [todo])
            for name in ("one", "two", "three")]
        self.assertEqual(results.failures(verdicts.judge_steps(self.task, cases))[-1],
                         '  3.2 "one of 3.2" and 2 more: waits for 3.1, which is not written yet')

    def test_an_exception_is_told_with_the_usual_mistakes_of_the_step(self):
        message = ("unit W=4 seed 1\n  observed: the run threw Error: narrow(0, 4, 2) of shape (4)\n"
                   f"  expected: no exception: it runs to its end\n  likely:   {hints.THROWN}")
        told = "\n".join(results.failures(verdicts.judge_steps(self.task, [case("3.4", message)])))
        self.assertIn("likely:   the world rank stands where the subgroup's rank belongs", told)
        self.assertNotIn(hints.THROWN, told)
        self.assertIn("read:     writeup/3_forward.md §3.4", told)

    def test_an_error_that_only_one_mistake_makes_names_it(self):
        message = ("start W=2 seed 1\n  observed: the run threw Error: all_gather: `out` is bfloat16 "
                   f"but `in` is float32\n  likely:   {hints.THROWN}")
        told = hints.with_cause(message, "3.6")
        self.assertIn("likely:   you gathered the shard itself", told)
        self.assertNotIn("does not fit", told)

    def test_an_exception_of_a_blocked_step_is_no_mistake_of_its_own(self):
        message = f"unit\n  likely:   {hints.THROWN}"
        self.assertEqual(hints.with_cause(message, "3.5", "3.4"),
                         "unit\n  likely:   3.5 relies on 3.4, which does not work yet")

    def test_the_judge_writes_what_is_replaced(self):
        header = (manifest.ROOT / "tests/graded/wording.h").read_text(encoding="utf-8")
        self.assertIn(f'kThrownCause = "{hints.THROWN}"', header)

    def test_broken_results_are_no_results(self):
        self.put(self.root / history.FOLDER / "task3.json", "{")
        self.assertIsNone(history.load(self.root, self.task))


class AnswersTest(InRoot):
    """The accounting questions are part of a task, and no test reminds a student of them."""

    def answer(self, text: str) -> None:
        self.put(self.file.with_name("answers.toml"), text)

    def test_a_missing_file_has_no_answers(self):
        self.assertEqual(answers.unanswered(self.root, self.task), 2)

    def test_open_questions_are_counted_and_how_to_see_them_is_said(self):
        self.answer('id = ""\n[q1]\nvalue = ""\nunit = "B"\n')
        self.assertEqual(
            answers.reminder(self.root, self.task),
            "Accounting questions of task 3: all 2 not answered (2 points). Write your course "
            "e-mail after id in tasks/task3_forward/answers.toml; then python3 "
            "apps/course/questions.py show --task 3 prints them")
        self.answer('id = "me@school.edu"\n[q1]\nvalue = 12\nunit = "B"\n')
        self.assertEqual(
            answers.reminder(self.root, self.task),
            "Accounting questions of task 3: 1 of 2 not answered (1 point). python3 "
            "apps/course/questions.py show --task 3 prints them; answer them in "
            "tasks/task3_forward/answers.toml")
        self.answer('id = "me@school.edu"\n[q1]\nvalue = 12\nunit = "B"\n'
                    '[q2]\nvalue = 5\nunit = "B"\n')
        self.assertEqual(answers.reminder(self.root, self.task), "")

    def test_progress_counts_them(self):
        self.answer('id = "me@school.edu"\n[q1]\nvalue = 12\nunit = "B"\n')
        self.assertIn("accounting questions: 13 of 14 not answered (tasks 1, 2, 3, 4, 5, 6, 7). ",
                      "\n".join(results.progress(self.root, self.whole)))

    def run_test(self, *words: str, failing: str = "") -> str:
        """What `course.py test 3` prints when only step `failing` fails."""
        cases = [case(step.id, *(["wrong"] if step.id == failing else []))
                 for step in self.task.steps]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), mock.patch.object(course, "ROOT", self.root), \
                mock.patch.object(course.builder, "Builder"), \
                mock.patch.object(course, "_audited", return_value=False), \
                mock.patch.object(verdicts, "run_side_by_side", return_value=cases):
            code = course.test(self.whole, course.parse(["test", "3", *words]))
        self.assertEqual(code, 1 if failing else 0)
        return said.getvalue()

    def test_a_task_that_passes_reminds_of_its_questions(self):
        self.assertIn("all 2 not answered", self.run_test().replace("\n", " "))
        self.assertNotIn("not answered", self.run_test(failing="3.2"))
        self.assertNotIn("not answered", self.run_test("--only", "3.2"))

    def test_the_loop_ends_a_hang_soon_and_says_where_it_is(self):
        with mock.patch.object(verdicts, "run_judge", return_value=[]) as judge, \
                mock.patch.dict(os.environ, clear=True):
            loop.run(Path("judge"), Path("runner"), "", {"FSDP_SEED": "", "FSDP_WORLD": "2"})
        given = judge.call_args.kwargs
        self.assertEqual(given["env"], {"FSDP_SECONDS": "5", "FSDP_MOST_HANGS": "2",
                                        "FSDP_WORLD": "2"})
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            given["on_wait"]("Slow")
        self.assertEqual(said.getvalue(), 'Nothing came out for 10 s. Still running: "Slow"\n')

    def test_one_step_is_remembered(self):
        self.run_test("--only", "3.2")
        self.assertEqual(history.load(self.root, self.task).never_run,
                         ["3.1", "3.3", "3.4", "3.5", "3.6"])


class HintsTest(InRoot):
    def test_three_levels(self):
        steps = "".join(f'["{s.id}"]\none = "Why {s.id}?"\ntwo = "b"\nthree = "c"\n'
                        f'throws = "it was {s.id}"\n'
                        for s in self.task.steps)
        path = self.root / hints.FOLDER / "task3.toml"
        self.put(path, steps)
        text = hints.tell(self.root, self.whole, "3.2", 1)
        self.assertIn("  Why 3.2?\n", text)
        self.assertTrue(text.endswith("make hint-3.2 LEVEL=2 (the invariant, and how to check it)"))
        self.assertNotIn("More", hints.tell(self.root, self.whole, "3.2", 3))
        with self.assertRaisesRegex(hints.HintError, "levels 1, 2 and 3"):
            hints.tell(self.root, self.whole, "3.2", 4)
        self.put(path, steps.replace('three = "c"', "", 1))
        with self.assertRaisesRegex(hints.HintError, '"3.1".* must hold one, two, three'):
            hints.tell(self.root, self.whole, "3.2", 1)

    def test_every_step_of_the_course_has_its_hints(self):
        for task in self.whole.tasks:
            with self.subTest(task=task.number):
                hints.load(manifest.ROOT, task)


class SubmissionTest(InRoot):
    def fill(self) -> None:
        for name in unpack.wanted_paths(self.whole):
            self.put(self.root / name, f"// {name}\n")

    def test_reset_keeps_every_old_file(self):
        for number in (1, 2):
            self.put(self.file, f"mine {number}\n")
            self.assertIn(f"kept-{number}", "\n".join(submission.reset(self.root, self.task)))
        self.assertEqual(self.file.read_text(), "new\n")
        kept = sorted(each.read_text() for each in self.file.parent.glob("*.kept-*"))
        self.assertEqual(kept, ["mine 1\n", "mine 2\n"])
        self.assertIn("is as it was handed out", submission.reset(self.root, self.task)[0])

    def test_reset_without_a_skeleton_changes_nothing(self):
        (self.root / submission.KIT_SKELETONS / self.task.folder / "forward.cpp").unlink()
        with self.assertRaisesRegex(submission.SubmissionError, "to start again from"):
            submission.reset(self.root, self.task)
        self.assertEqual(self.file.read_text(), "mine\n")

    def test_the_archive_holds_exactly_the_files_of_the_course(self):
        self.fill()
        self.put(self.root / "tasks/task3_forward/notes.txt", "private")
        data = submission.pack(submission.collect(self.root, self.whole))
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            self.assertEqual(sorted(archive.getnames()), sorted(unpack.wanted_paths(self.whole)))
            self.assertTrue(all(entry.isreg() for entry in archive.getmembers()))
        self.assertEqual(data, submission.pack(submission.collect(self.root, self.whole)))
        found = unpack.unpack_archive(data, unpack.wanted_paths(self.whole))
        self.assertEqual((len(found.files), found.notes, found.refused),
                         (len(unpack.wanted_paths(self.whole)), [], {}))
        (extra,) = self.whole.optional
        for name in (*extra.files, "answers.toml"):
            (self.root / "tasks" / extra.folder / name).unlink()
        (self.root / unpack.POLICY).unlink()
        data = submission.pack(submission.collect(self.root, self.whole))
        found = unpack.unpack_archive(data, unpack.wanted_paths(self.whole))
        self.assertEqual((len(found.files), found.notes), (15, []))

    def test_what_would_be_refused_there_is_refused_here(self):
        self.fill()
        self.file.unlink()
        with self.assertRaisesRegex(submission.SubmissionError, "missing. make reset-task3"):
            submission.collect(self.root, self.whole)
        self.file.symlink_to("/etc/passwd")
        with self.assertRaisesRegex(submission.SubmissionError, "not a regular file"):
            submission.collect(self.root, self.whole)
        self.file.unlink()
        self.put(self.file, "x" * (unpack.MOST_BYTES + 1))
        with self.assertRaisesRegex(submission.SubmissionError, "more than 262144"):
            submission.collect(self.root, self.whole)


    def test_submit_remembers_what_came_out(self):
        self.fill()
        fresh = self.root / "fresh"
        for name in unpack.wanted_paths(self.whole):
            self.put(fresh / name, f"// {name}\n")
        tools = mock.Mock(root=self.root, jobs=1)
        cases = [case(step.id) for step in self.task.steps]
        with mock.patch.object(verdicts, "run_judge", return_value=cases), \
                mock.patch.object(submission.audit, "audit_object", return_value=[]):
            points, _ = submission._score(self.root, self.task, tools, fresh)
        stored = history.load(self.root, self.task)
        self.assertEqual((points, stored.is_current), (10, True))

    def test_submit_says_under_which_name_a_policy_races(self):
        for policy, said in ((b"", ""), (b"// Your name on the board, a pseudonym: quick fox\n",
                                         "your policy is packed, named 'quick fox'")):
            self.fill()
            self.put(self.root / unpack.POLICY, policy.decode())
            if not policy:
                (self.root / unpack.POLICY).unlink()
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), \
                    mock.patch.object(submission, "_score", return_value=(0, "")):
                submission.submit(self.root, self.whole, mock.Mock())
            self.assertIn(said, printed.getvalue())
            self.assertEqual("the race" in printed.getvalue(), bool(said))

    def test_submit_counts_open_questions(self):
        self.fill()
        self.put(self.root / "tasks/task3_forward/answers.toml", 'id = ""\n')
        self.assertEqual(submission._answer_problems(self.root, self.task),
                         ["accounting questions: 2 of 2 not answered"])


class IntegratedTest(unittest.TestCase):
    def test_one_task_is_found_before_pairs(self):
        tried = []

        def turns_green(swapped):
            tried.append(swapped)
            return 3 in swapped

        self.assertEqual(integrated.guilty([1, 2, 3, 4], turns_green), (3,))
        self.assertEqual(tried, [(1,), (2,), (3,)])

    def test_then_pairs_then_nothing(self):
        self.assertEqual(integrated.guilty([1, 2, 3], lambda swapped: swapped == (2, 3)), (2, 3))
        self.assertEqual(integrated.guilty([1, 2, 3], lambda _: False), ())


class TogetherTest(InRoot):
    """make test-integrated, with judges that are made up."""

    GREEN = [case("7.1"), case("7.4")]
    RED = [case("7.1"), case("7.4", "7.4 rank 0\n  observed: 1\n  expected: 2")]

    def judged(self, cured_by: tuple[int, ...], *, cases=None, given=0) -> tuple[int, str]:
        """Exit code and output when the cases turn green with these references."""
        first = cases or self.RED

        class Mixture:
            def __init__(self, root, course, tools):
                self.last = course.tasks[-1]
                self.given = course.tasks[:given]

            def cases(self, references):
                is_cured = cured_by and set(cured_by) <= set(references)
                return TogetherTest.GREEN if is_cured else first

        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = integrated.test(self.root, self.whole, None, Mixture)
        return code, said.getvalue()

    def setUp(self):
        super().setUp()
        (self.root / "solutions").mkdir()

    def test_what_passes_is_said_and_remembered(self):
        code, said = self.judged((), cases=self.GREEN)
        self.assertEqual(code, 0)
        self.assertIn("all together: passed, all 2 cases", said)
        self.assertEqual(history.integrated(self.root, self.whole)[0], True)
        before = self.file.read_text(encoding="utf-8")
        self.put(self.file, "changed\n")
        passed, verdict = history.integrated(self.root, self.whole)
        self.assertFalse(passed)
        self.assertIn("changed since", verdict)
        self.judged((3,))
        self.put(self.file, before)
        self.assertEqual(history.integrated(self.root, self.whole)[0], True, "it was put back")

    def test_what_came_with_the_kit_is_named(self):
        code, said = self.judged((), cases=self.GREEN, given=2)
        self.assertEqual(code, 0)
        self.assertIn("Task 1 and task 2 are the references that came with this kit", said)
        self.assertNotIn("alone", said)

    def test_a_kit_has_no_references_to_look_for_the_task_with(self):
        self.put(self.root / unwritten.KIT, "{}")
        code, said = self.judged((3,))
        self.assertEqual(code, 1)
        self.assertIn("To find the task: make test-task1", said)

    def test_a_failure_names_the_guilty_task_and_is_an_exit_code(self):
        code, said = self.judged((3,))
        self.assertEqual(code, 1)
        self.assertIn("all together: FAILED, 1 of 2 cases fail. It is task 3: make test-t", said)
        self.assertIn("costs no points", said)
        passed, verdict = history.integrated(self.root, self.whole)
        self.assertFalse(passed)
        self.assertIn("It is task 3", verdict)

    def test_two_that_agree_with_each_other_are_named_both(self):
        code, said = self.judged((4, 5))
        self.assertEqual(code, 1)
        self.assertIn("It takes both, task 4 and task 5", said)

    def test_what_nobody_explains_and_what_is_not_done(self):
        code, said = self.judged(())
        self.assertEqual((code, "No task and no pair" in said), (1, True))
        todo = case("7.4", "TODO 4.2: complete_gradients (tasks/task4_backward/backward.cpp:9, w)")
        code, said = self.judged((), cases=[todo])
        self.assertEqual((code, "not written yet: 4.2. Next: make test-task4" in said), (1, True))

    def test_all_points_are_not_all_of_it(self):
        """Progress ends with the tasks together, not with the last task."""
        for task in self.whole.tasks:
            cases = [case(step.id) for step in task.steps]
            history.store(self.root, task, history.digest_of(self.root, task), cases)
        self.assertIn("All together: not tested yet", "\n".join(
            results.progress(self.root, self.whole)))
        self.judged((), cases=self.GREEN)
        self.assertIn("also all together", "\n".join(results.progress(self.root, self.whole)))


class CommandLineTest(unittest.TestCase):
    def test_a_reader_who_leaves_early_is_no_error(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb") as nobody_reads:
            done = subprocess.run([sys.executable, course.__file__, "progress"], text=True,
                                  stdout=nobody_reads, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))

    def test_every_command_of_the_makefile_is_known(self):
        for words in ("test 3 --only 3.2 --impl solution --seed 5 --world 2",
                      "progress", "watch", "watch 3", "hint 4.2 --level 2", "debug 3.2", "reset 3",
                      "show 3 --impl solution", "submit", "integrated", "written demo"):
            self.assertTrue(callable(course.parse(words.split()).run), words)


if __name__ == "__main__":
    unittest.main()
