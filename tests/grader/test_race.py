"""The race: what becomes of a policy's process, the tables, the board, and Gradescope's field."""

import json
import stat
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import course_path  # noqa: F401  must come first
import build_submission
import manifest
import race
import race_board
import submission
import unpack

TRACKS = [{"track": 1, "name": "a slow link", "about": "It is slow."},
          {"track": 2, "name": "two boxes", "about": "There are two."}]


def verdict(step: int | None, bound: int = 60) -> dict:
    found = {"track": 1, "name": "a slow link", "refused": "" if step else "over the memory",
             "memory_bytes": 3 << 20, "fsdp_ps": 100, "fsdp_bytes": 2 << 20, "bound_ps": bound,
             "bound_computation_ps": bound, "bound_channel_ps": bound - 1}
    return found if step is None else {**found, "step_ps": step, "peak_bytes": 1 << 20}


class Process(unittest.TestCase):
    def run_as_policy(self, script: str) -> race.Plan:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "policy"
            program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            return race.plan_here(program, 3)

    def test_what_it_prints_is_the_plan(self) -> None:
        plan = self.run_as_policy('echo "$@"; echo thinking >&2')
        self.assertEqual(plan, race.Plan("--track 3\n", "", "thinking\n"))

    def test_estimates_need_no_judge(self) -> None:
        found = json.dumps(verdict(80))
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / race.POLICY
            program.write_text(f"""#!/bin/sh
case "$*" in
--list) echo '{json.dumps(TRACKS)}' ;;
"--track 1 --estimate") echo '{found}' ;;
*) echo 'race_policy: neighbors: 3' >&2; exit 1 ;;
esac
""", encoding="utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
            said: list[str] = []
            with unittest.mock.patch.multiple(race, PROGRAMS=Path(folder)), \
                    unittest.mock.patch.object(race.builder.Builder, "make") as made, \
                    unittest.mock.patch.object(race.terminal, "say", lambda *lines: said.extend(lines)):
                self.assertEqual([race.estimate(track, "student", 2) for track in (1, 2, None)], [0, 1, 1])
                with self.assertRaisesRegex(race.RaceError, "TRACK=3: the tracks are 1 to 2"):
                    race.estimate(3, "student", 1)
        self.assertEqual({call.args for call in made.call_args_list}, {(race.POLICY,)})
        text = "\n".join(said)
        self.assertRegex(text, r"your estimate +0\.000 ms +0\.750 +1\.0 MiB\n")
        self.assertRegex(text, r"plain FSDP +0\.000 ms")
        self.assertIn("Track 2, two boxes. There are two.\n  No time: neighbors: 3", text)
        self.assertIn("The score is that of all tracks. What counts is make race", text)
        self.assertIn("No score: a track has no time.", text)

    def test_how_it_ended_is_said(self) -> None:
        for script, said in (("echo race_policy: broken >&2; exit 1", "broken"),
                             ("exit 3", "exit code 3"),
                             ("kill -SEGV $$", "crashed (SIGSEGV); gdb --args "),
                             ("kill -XCPU $$", "used up its 20 s of processor time"),
                             ("kill -KILL $$", "20 s of processor time are over, or the machine")):
            with self.subTest(script):
                self.assertIn(said, self.run_as_policy(f"echo '{{}}'; {script}").problem)

    def test_what_it_printed_is_kept_apart_from_how_it_ended(self) -> None:
        for script in ("exit 1", "kill -SEGV $$", "kill -XCPU $$"):
            with self.subTest(script):
                self.assertEqual(self.run_as_policy(f"printf here >&2; {script}").said, "here")
        for said in ("", "a\n", "a\nhere", "race_policy: here", "jail: killed: here\n"):
            plan = race.plan_of(1, "", f"{said}race_policy: broken\n")
            self.assertEqual((plan.problem, plan.said), ("broken", said))

    def test_one_that_does_not_end_is_ended(self) -> None:
        with unittest.mock.patch.object(race, "WALL", 0.2):
            plan = self.run_as_policy("printf here >&2; while :; do :; done")
        self.assertIn("not done after 0.2 s by the clock", plan.problem)
        self.assertEqual(plan.said, "here")

    def test_much_that_it_printed_is_cut_visibly(self) -> None:
        self.assertEqual(race.printed(" \n"), [])
        lines = race.printed("x\n" * 50)
        self.assertEqual(lines[:2], ["  It printed:", "    x"])
        self.assertEqual(lines[-1], "    … and 10 lines more")
        self.assertEqual(len(lines), 42)

    def test_a_stranger_plans_in_a_jail(self) -> None:
        staging = build_submission.Staging.make(manifest.load())
        self.addCleanup(staging.remove)
        plans = [race_board.plan_in_jail(Path("/bin/echo"), staging, track, lambda: 9.0)
                 for track in (3, 4)]
        self.assertEqual([plan.text for plan in plans], ["--track 3\n", "--track 4\n"])
        self.assertEqual([plan.problem for plan in plans], ["", ""])

    def test_the_jail_speaks_of_the_policy(self) -> None:
        said = "\njail: killed: used up its 20 s of CPU time (an endless loop?)\n"
        self.assertEqual(race.plan_of(124, "", said).problem,
                         "the policy used up its 20 s of CPU time (an endless loop?)")


class Tables(unittest.TestCase):
    def test_the_score_needs_all_tracks(self) -> None:
        self.assertAlmostEqual(race.score({1: verdict(120), 2: verdict(60, 15)}, 2), 8 ** -0.5)
        self.assertIsNone(race.score({1: verdict(120), 2: verdict(None)}, 2))
        self.assertIsNone(race.score({1: verdict(120)}, 2))

    def test_the_difference_to_the_last_try(self) -> None:
        self.assertEqual(race.change(90, 100), "10.00 % shorter than the last time")
        self.assertEqual(race.change(110, 100), "10.00 % longer than the last time")
        self.assertEqual(race.change(99999, 100000), "less than 0.01 % shorter than the last time")
        self.assertEqual(race.change(100, 100), "as the last time")
        self.assertEqual(race.change(100, None), "the first time")

    def test_the_best_so_far(self) -> None:
        self.assertEqual(race.change(90, 100, 90), "10.00 % shorter than the last time")
        self.assertEqual(race.change(100_000_000_000, 100_000_000_000, 80_000_000_000),
                         "as the last time; your best was 80.000 ms")

    def test_a_track(self) -> None:
        lines = race.table(TRACKS[0], verdict(80), "your policy", 100)
        self.assertIn("0.750", lines[2])
        self.assertIn("20.00 % shorter", lines[2])
        lines = race.table(TRACKS[0], verdict(None), "your policy", 100)
        self.assertIn("no time", lines[2])
        self.assertEqual(lines[-1], "  No time: over the memory")


class Board(unittest.TestCase):
    def test_names_are_pseudonyms(self) -> None:
        line = "// Your name on the board, a pseudonym: "
        self.assertEqual(race.pseudonym(f"//\n{line}quick\x1b fox\n".encode()), "quick fox")
        self.assertEqual(len(race.pseudonym((line + "x" * 99).encode())), 24)
        for text in ("", line, line + "anonymous", "// by me@school.edu"):
            self.assertRegex(race.pseudonym(text.encode()), r"^anonymous-[0-9a-f]{6}$")
        skeleton = (manifest.ROOT / unpack.POLICY).read_bytes()
        self.assertRegex(race.pseudonym(skeleton), "^anonymous-")
        self.assertIn(line, skeleton.decode())

    def test_the_best_comes_first(self) -> None:
        entries = [race_board.Entry("none", "does not compile"),
                   race_board.Entry("half", "", {1: verdict(70), 2: verdict(None)}),
                   race_board.Entry("slow", "", {1: verdict(90), 2: verdict(90)}),
                   race_board.Entry("fast", "", {1: verdict(80), 2: verdict(80)})]
        lines = race_board.board(entries, TRACKS)
        self.assertEqual([line.split()[1] for line in lines[1:5]], ["fast", "slow", "half", "none"])
        self.assertIn("0.7500", lines[1])
        self.assertIn("<pre>", race.page("The race", [(["<b>"], [])], ""))
        self.assertNotIn("<b>", race.page("The race", [(["<b>"], [])], ""))

    def test_gradescope_is_told(self) -> None:
        entry = race_board.Entry("fast", "", {1: verdict(80_000_000_000, 60_000_000_000)})
        self.assertEqual(race_board.leaderboard(entry),
                         [{"name": "score", "value": 0.75},
                          {"name": "1 a slow link, ms", "order": "asc", "value": 80.0}])
        self.assertEqual(race_board.leaderboard(race_board.Entry("none", "does not compile")),
                         [{"name": "score", "value": 0.0}])

    def test_a_policy_is_handed_in_but_need_not_be_there(self) -> None:
        course = manifest.load()
        self.assertIn(unpack.POLICY, unpack.wanted_paths(course))
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in unpack.wanted_paths(course):
                if name != unpack.POLICY:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text("x", encoding="utf-8")
            self.assertNotIn(unpack.POLICY, submission.collect(root, course))


if __name__ == "__main__":
    unittest.main()
