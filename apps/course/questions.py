#!/usr/bin/env python3
"""The accounting questions: two a task, answered in tasks/taskN_*/answers.toml.

    questions.py show --task 3 --id me@school.edu      your questions, with your numbers
    questions.py check --task 3 (or a file)            form and units; no answer is judged
    questions.py grade FILE [--task 3] [--submitter me@school.edu]
    questions.py solve --task 3 --id me@school.edu     a file with the reference answers

`show` and `check` work in a student kit. `grade` and `solve` need apps/course/questions/
reference_task*.py, which a kit does not hold.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

_HERE = Path(__file__).resolve().parent
for _folder in (_HERE, _HERE / "questions"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

import expression  # noqa: E402
import manifest  # noqa: E402
import question_form  # noqa: E402
import question_set  # noqa: E402
import question_units  # noqa: E402
import whole_file  # noqa: E402
from question_set import Question  # noqa: E402

TOLERANCE = Fraction(1, 1000)  # of a decimal, relative
Points = int | float
Graded = tuple[str, Points, Points, str]


# ------------------------------------------------------------------------------------- checking

def check(path: Path | str, task: int | None = None) -> list[str]:
    """What is wrong with the form of a file, a sentence each; [] if nothing is. No answer is
    judged."""
    path = Path(path)
    questions = question_set.load(_task_of(path, task))
    form = question_form.read(path, questions)
    problems = form.all_problems()
    answered = [q for q in questions if not form.answers[q.id].is_open]
    if answered and not form.id and not form.problems:
        problems.append(f'{path.name}, id: is empty; your numbers are drawn from it. Write your '
                        f'course e-mail: id = "me@school.edu"')
    for question in answered:
        if note := _work_problem(question, form):
            problems.append(f"{path.name}, [{question.id}], work: {note}")
    return problems


def _work_problem(question: Question, form: question_form.Form) -> str | None:
    """What is wrong with the `work` of an answer, if there is one: it is for feedback only."""
    answer = form.answers[question.id]
    if not answer.work or answer.problems or question.kind == "name":
        return None
    numbers = question.draw(question_set.normal_id(form.id), question_set.course())
    try:
        value = expression.evaluate(answer.work, numbers)
    except expression.ExpressionError as error:
        return str(error)
    if value in (answer.value, answer.number) or _is_close(value, answer.number):
        return None
    return f"it gives {_text(value)}, but value says {_text(answer.number)}"


# -------------------------------------------------------------------------------------- grading

def grade(path: Path | str, task: int,
          submitter: str | Iterable[str] | None = None) -> list[Graded]:
    """(question, points, points there are, sentence) for each question of a task, like
    ("3.q1", 1, 1, "right."). `submitter`: the e-mails the file's id must be one of (a group has
    several), or None if nobody knows who submitted. Never raises for what the file holds."""
    path = Path(path)
    questions = question_set.load(task)
    worth = _points_each(task, len(questions))
    if not path.exists() and not path.is_symlink():
        sentence = f"{path.name} is not in the submission: no answers, no points."
        return [(q.key, 0, worth, sentence) for q in questions]
    form = question_form.read(path, questions)
    refusal = _refusal(path, form, submitter)
    result: list[Graded] = []
    for question in questions:
        answer = form.answers[question.id]
        if answer.is_open and not form.problems:
            result.append((question.key, 0, worth, "not answered."))
        elif refusal or answer.problems:
            result.append((question.key, 0, worth, refusal or " ".join(answer.problems) + "."))
        else:
            is_right, sentence = _judge(question, form)
            result.append((question.key, worth if is_right else 0, worth, sentence))
    return result


def _refusal(path: Path, form: question_form.Form,
             submitter: str | Iterable[str] | None) -> str | None:
    """Why no answer of the file counts, if none does."""
    if form.problems:
        return form.problems[0] + "."
    if not form.id:
        return f"{path.name}, id: is empty; write the e-mail address you submit with."
    if submitter is None:
        return None
    names = [submitter] if isinstance(submitter, str) else list(submitter)
    if question_set.normal_id(form.id) in [question_set.normal_id(name) for name in names]:
        return None
    return (f"{path.name}, id: {expression.shown(form.id, 80)} is not who submitted; write the "
            f"e-mail address you submit with, and answer the questions with its numbers.")


def _judge(question: Question, form: question_form.Form) -> tuple[bool, str]:
    answer = form.answers[question.id]
    numbers = question.draw(question_set.normal_id(form.id), question_set.course())
    reference = reference_of(question, numbers)
    if _equals(question, answer.value, reference.value):
        return True, "right."
    given = (f"'{answer.value}'" if question.kind == "name"
             else f"{_text(answer.number)} {answer.unit}")
    sentence = f"{given} is not the answer. " + _cause(question, answer, reference)
    if note := _work_problem(question, form):
        sentence += f" Your work: {note}."
    return False, sentence


def _cause(question: Question, answer: question_form.Answer, reference) -> str:
    """The likely cause if exactly one fits, else where to read."""
    causes = list(dict.fromkeys(cause for value, cause in reference.mistakes
                                if _equals(question, answer.value, value)))
    if question.kind != "name":
        other = question_units.right_number_wrong_unit(
            question.quantity, answer.number, answer.unit,
            lambda value: _equals(question, value, reference.value))
        if other is not None:
            causes.append(f"the number is right for {other}, but the unit says {answer.unit}")
    if len(causes) == 1:
        return f"It is what one gets by a known mistake: {causes[0]}."
    if _rounded_away(question, answer, reference):
        return f"Nearly: asked is the exact number, in {question.unit}."
    return f"Read {question.read} again."


def _rounded_away(question: Question, answer: question_form.Answer, reference) -> bool:
    return question.kind == "integer" and _is_close(answer.value, Fraction(reference.value))


def _equals(question: Question, value: Fraction | str, other: object) -> bool:
    if question.kind == "name":
        return value == other
    if question.kind == "integer":
        return value == Fraction(other)
    return _is_close(value, Fraction(other))


def _is_close(value: Fraction, other: Fraction) -> bool:
    return abs(value - other) <= TOLERANCE * abs(other)


def reference_of(question: Question, numbers: dict[str, int]):
    """The reference answer and the known wrong ones, computed for one student's numbers."""
    try:
        module = importlib.import_module(f"reference_task{question.task}")
    except ModuleNotFoundError as error:
        raise question_set.QuestionError("the reference answers are not here: this is a student "
                                         "kit; answers are judged on submission") from error
    return getattr(module, question.id)(numbers)


# -------------------------------------------------------------------------------------- showing

def show(task: int, student: str) -> str:
    """The questions of a task with a student's numbers."""
    parts = [f"Task {task}: the questions of {student}"]
    for question in question_set.load(task):
        numbers = question.draw(question_set.normal_id(student), question_set.course())
        parts.append(f"[{question.id}]  {question.title}\n\n{question.text_for(numbers)}\n\n"
                     f"{_demand(question, numbers)}")
    return "\n\n".join(parts) + "\n"


def _demand(question: Question, numbers: dict[str, int]) -> str:
    lines = [f"    read:  {question.read}"]
    if question.kind == "name":
        lines.append(f"    value: one of {', '.join(question.names)}")
    else:
        how = "exactly" if question.kind == "integer" else "to one part in a thousand"
        lines.append(f"    value: a number, {how}")
        lines.append(f"    unit:  {question_units.alternatives(question.quantity)}")
        lines.append("    work:  may use " + ", ".join(f"{n} = {v}" for n, v in numbers.items()))
    return "\n".join(lines)


def solve(task: int, student: str) -> str:
    """An answers.toml with the reference answers of a student: for the grader's own tests."""
    lines = [f'id = "{student}"']
    for question in question_set.load(task):
        numbers = question.draw(question_set.normal_id(student), question_set.course())
        value = reference_of(question, numbers).value
        shown = f'"{value}"' if question.kind == "name" else str(
            int(value) if question.kind == "integer" else round(float(value), 9))
        lines += ["", f"[{question.id}]", f"value = {shown}", f'unit = "{question.unit}"']
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------------------- details

def _points_each(task: int, count: int) -> Points:
    points = Fraction(manifest.load().task(task).questions, count)
    return points.numerator if points.denominator == 1 else float(points)


def _task_of(path: Path, task: int | None) -> int:
    if task is not None:
        return task
    match = re.search(r"task([1-8])_", str(path.resolve().parent))
    if match is None:
        raise question_set.QuestionError(f"{path}: no task in its path; say which with --task N")
    return int(match[1])


def _text(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.9g}"


def _file_in_tree(task: int) -> Path:
    return manifest.ROOT / "tasks" / manifest.load().task(task).folder / "answers.toml"


def _id_in_tree(task: int) -> str:
    """The id in the student's own answers.toml."""
    path = _file_in_tree(task)
    student = question_form.read(path, question_set.load(task)).id
    if not student:
        raise question_set.QuestionError(f'{path}, id: is empty; write your course e-mail there, '
                                         f'or say --id me@school.edu')
    return student


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("show", "solve"):
        command = commands.add_parser(name)
        command.add_argument("--task", type=int, choices=range(1, 9), required=True)
        command.add_argument("--id", help="your course e-mail; default: that in your answers.toml")
        if name == "solve":
            command.add_argument("--output", type=Path, help="a file instead of the screen")
    for name in ("check", "grade"):
        command = commands.add_parser(name)
        command.add_argument("file", type=Path, nargs="?", help="default: your answers.toml")
        command.add_argument("--task", type=int, choices=range(1, 9))
        if name == "grade":
            command.add_argument("--submitter", action="append", help="an e-mail; may be repeated")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except (question_set.QuestionError, manifest.ManifestError) as error:
        print(f"questions: {error}", file=sys.stderr)
        return 2


def unanswered(path: Path, task: int) -> int:
    """How many of a task's questions have no value in this file; all, if it cannot be read."""
    asked = question_set.load(task)
    form = question_form.read(path, asked)
    return sum(form.answers[question.id].is_open for question in asked)


def _run(options: argparse.Namespace) -> int:
    if options.command in ("check", "grade") and options.file is None:
        if options.task is None:
            raise question_set.QuestionError("say which: a file, or --task N")
        options.file = _file_in_tree(options.task)
    if options.command == "check":
        problems = check(options.file, options.task)
        count = unanswered(options.file, _task_of(options.file, options.task))
        left = f", with {count} question{'s' * (count > 1)} not answered" if count else ""
        print("\n".join(problems) or f"{options.file}: the form is in order{left}; answers are judged "
                                     "on submission")
        return 1 if problems else 0
    if options.command == "grade":
        task = _task_of(options.file, options.task)
        for key, points, worth, sentence in grade(options.file, task, options.submitter):
            print(f"{key}  {points}/{worth}  {sentence}")
        return 0
    student = options.id or _id_in_tree(options.task)
    if options.command == "show":
        print(show(options.task, student), end="")
    elif options.output is None:
        print(solve(options.task, student), end="")
    else:
        whole_file.write(options.output, solve(options.task, student))
    return 0


if __name__ == "__main__":
    sys.exit(main())
