"""How the student's tools print: terminal.py."""

import contextlib
import io
import os
import unittest
from unittest import mock

import course_path  # noqa: F401  must come first
import manifest
import results
import terminal
import verdicts


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def paper(stream: io.StringIO, **environment: str) -> terminal.Paper:
    with contextlib.redirect_stdout(stream), mock.patch.dict(os.environ, environment, clear=True):
        return terminal.of_stdout()


class Paper(unittest.TestCase):
    def test_color_is_for_terminals_that_want_it(self):
        self.assertEqual(paper(Screen(), COLUMNS="72", TERM="xterm"), terminal.Paper(72, True))
        self.assertFalse(paper(Screen(), COLUMNS="72", NO_COLOR="1").is_colored)
        self.assertFalse(paper(Screen(), COLUMNS="72", TERM="dumb").is_colored)
        self.assertEqual(paper(io.StringIO(), COLUMNS="72"), terminal.Paper(100, False))

    def test_states_have_colors(self):
        task = manifest.load().task(3)
        cases = [verdicts.Case("a", ("3.1",), False, True, True),
                 verdicts.Case("b", ("3.2",), False, False, True, ["wrong"]),
                 verdicts.Case("c", ("3.3",), False, False, True, ["wrong"]),
                 verdicts.Case("d", ("3.4",), False, False, True, ["TODO 3.4: f (x.cpp:1, w)"])]
        found = verdicts.judge_steps(task, cases)
        lines = results.table(found, terminal.Paper(100, True))
        self.assertTrue(lines[0].endswith("\x1b[32mpassed\x1b[0m"))
        self.assertTrue(lines[1].endswith("\x1b[31mFAILED\x1b[0m"))
        self.assertTrue(lines[2].endswith("\x1b[33mBLOCKED by 3.2\x1b[0m"))
        self.assertTrue(lines[3].endswith("\x1b[2mnot written yet\x1b[0m"))
        self.assertNotIn("\x1b", "".join(results.table(found)))

    def test_what_fits_is_left_alone(self):
        lines = ["  a  table   with  columns", "", "x" * 100]
        self.assertEqual(terminal.PLAIN.wrapped(lines), lines)

    def test_a_field_goes_on_below_its_beginning(self):
        narrow = terminal.Paper(30)
        self.assertEqual(narrow.wrapped(["  observed: one two three four five six"]),
                         ["  observed: one two three four", "            five six"])
        self.assertEqual(narrow.wrapped(["  one two three four five six seven"]),
                         ["  one two three four five six", "    seven"])
        self.assertEqual(narrow.wrapped(["one two three four five six seven"]),
                         ["one two three four five six", "seven"])

    def test_a_long_word_is_not_cut_and_colors_take_no_room(self):
        narrow = terminal.Paper(20, True)
        self.assertEqual(narrow.wrapped(["x" * 30]), ["x" * 30])
        painted = "12345678901234 " + narrow.paint("green", "good")
        self.assertEqual(narrow.wrapped([painted]), [painted])


if __name__ == "__main__":
    unittest.main()
