"""The calculator behind `work`: what it computes, and what it refuses."""

from __future__ import annotations

import random
import time
import unittest
from fractions import Fraction

import course_path  # noqa: F401  must come first
import expression
from expression import ExpressionError, evaluate

NAMES = {"W": 8, "u": 1003, "x": Fraction(1, 3)}


class Computes(unittest.TestCase):

    def test_precedence_is_that_of_python(self) -> None:
        for text in ("1 + 2 * 3", "(1 + 2) * 3", "2 ** 3 ** 2", "-2 ** 2", "2 ** -1", "7 // 2 * 2",
                     "-7 // 2", "7 - 2 - 1", "12 / 3 / 2", "2 * -3", "--4", "1_000 + 1e3",
                     "max(1, 2, 3) - min(4, 5)", "2.5 * 4"):
            with self.subTest(text):
                self.assertEqual(evaluate(text, {}), Fraction(eval(text)))  # our own text

    def test_names_and_functions(self) -> None:
        self.assertEqual(evaluate("4 * (W - 1) * ceil(u / W)", NAMES), 4 * 7 * 126)
        self.assertEqual(evaluate("floor(u / W) * W", NAMES), 1000)
        self.assertEqual(evaluate("x * 3", NAMES), 1)
        self.assertAlmostEqual(float(evaluate("2 ** 0.5", {})), 2**0.5)

    def test_divisions_are_exact(self) -> None:
        self.assertEqual(evaluate("1 / 3 * 3", {}), 1)

    def test_random_sums_agree_with_python(self) -> None:
        draw = random.Random(7)
        for _ in range(300):
            text = str(draw.randint(1, 99))
            for _ in range(draw.randint(1, 8)):
                text = f"({text}) {draw.choice('+-*')} {draw.randint(1, 99)}"
            self.assertEqual(evaluate(text, {}), eval(text))  # our own text


class Refuses(unittest.TestCase):

    def refuses(self, text: str, *words: str) -> None:
        with self.subTest(text[:60]):
            begin = time.process_time()
            with self.assertRaises(ExpressionError) as caught:
                evaluate(text, NAMES)
            self.assertLess(time.process_time() - begin, 1)
            for word in words:
                self.assertIn(word, str(caught.exception))

    def test_what_is_no_calculation(self) -> None:
        self.refuses("__import__('os').system('id')", "cannot read")
        self.refuses("open", "no number of the question", "W, u, x")
        self.refuses("W.real", "cannot read")
        self.refuses("[1 for a in W]", "cannot read")
        self.refuses("lambda", "no number")
        self.refuses("1 if W else 2", "did not expect")
        self.refuses("W(3)", "did not expect '('")
        self.refuses("٣ + 1", "cannot read")

    def test_broken_ones(self) -> None:
        self.refuses("", "ends")
        self.refuses("1 +", "ends")
        self.refuses("(1", "')' is missing")
        self.refuses("1 2", "did not expect '2'")
        self.refuses("* 2", "did not expect '*'")
        self.refuses("ceil(1, 2)", "ceil takes one")
        self.refuses("max()", "did not expect ')'")
        self.refuses("1 / 0", "division by zero")
        self.refuses("1 // (W - 8)", "division by zero")
        self.refuses("0 ** -1", "division by zero")
        self.refuses("(-8) ** 0.5", "root of a negative")

    def test_bombs(self) -> None:
        self.refuses("9 ** 9 ** 9 ** 9", "exponent")
        self.refuses("9e99 ** 60", "too large")
        self.refuses("9e99 * 9e99", "too large")
        self.refuses("1e999", "not a number")
        self.refuses("9" * 61, "more than 60")
        self.refuses("1 + " * 200 + "1", "longer than")
        self.refuses("(" * 200 + "1" + ")" * 200, "nested")
        self.refuses("-" * 300 + "1", "nested")
        self.refuses("2 ** " * 60 + "2", "nested")
        self.refuses("min(" + "1," * 60 + "1)", "more than 32")
        self.refuses("9" * 60 + "*" + "9" * 60 + "*" + "9" * 60, "too large")
        self.refuses("1 / 3" + "7" * 50 + " + 1 / 7" + "3" * 50 + " + 1 / 1" + "9" * 50
                     + " + 1 / 19" + "1" * 50, "too large")
        self.refuses("1e99 ** 3.5", "too large")


class Numbers(unittest.TestCase):

    def test_forms(self) -> None:
        for text, value in (("4096", 4096), (" 1_000 ", 1000), ("-0.5", Fraction(-1, 2)),
                            ("4e9", 4 * 10**9), ("1.5E-3", Fraction(3, 2000)), ("2.", 2)):
            self.assertEqual(expression.number(text), value)
        for text in ("", "inf", "nan", "0x10", "1e400", "1/2", "four", "1 000", "１"):
            with self.subTest(text), self.assertRaises(ExpressionError):
                expression.number(text)


if __name__ == "__main__":
    unittest.main()
