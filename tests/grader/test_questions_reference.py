"""The reference answers, computed a second time the slow way: by walking through the elements, the
collectives or the events one by one. And: a known mistake gives another number than the answer."""

from __future__ import annotations

import heapq
import math
import unittest
from collections import Counter
from fractions import Fraction

import course_path  # noqa: F401  must come first
import questions
import question_set

STUDENTS = [f"student{i}@school.edu" for i in range(400)]


def each_student(task: int, name: str, count: int = len(STUDENTS)):
    """(numbers, reference) of a question for many students."""
    question = next(q for q in question_set.load(task) if q.id == name)
    for student in STUDENTS[:count]:
        numbers = question.draw(student, "unshard")
        yield numbers, questions.reference_of(question, numbers)


def shards(numel: int, ranks: int) -> list[int]:
    """The sizes of the shards of a vector that is filled up until it can be cut evenly."""
    while numel % ranks:
        numel += 1
    return [numel // ranks] * ranks


class Task1(unittest.TestCase):

    def test_q1_by_drawing_every_element(self) -> None:
        for v, reference in each_student(1, "q1", 25):
            word, seen = v["s"], {}
            drawn: set[str] = set()
            for path, variable, shape, is_random in (
                    ("embed", "a", (v["V"], v["d"]), True), ("norm", "b", (1, v["d"]), False),
                    ("head", "a", (v["V"], v["d"]), True), ("up", "c", (v["F"], v["d"]), True),
                    ("bias", "e", (1, v["F"]), False), ("down", "f", (v["d"], v["F"]), True)):
                if variable in drawn or not is_random:
                    continue
                drawn.add(variable)
                for row in range(shape[0]):
                    for column in range(shape[1]):
                        seen[path, row, column] = word
                        word += 1
            self.assertEqual(reference.value, seen["down", v["i"], v["j"]])

    def test_q2_by_adding_up_processes(self) -> None:
        for v, reference in each_student(1, "q2"):
            self.assertEqual(v["N"] % v["W"], 0)
            held = 0
            for _ in range(v["W"]):
                held += len(range(v["N"])[:v["N"] // v["W"]]) * 4
                for _table in ("cos", "sin"):
                    held += v["T"] * v["h"] * 4
            self.assertEqual(reference.value, held)


class Task2(unittest.TestCase):

    def test_q1(self) -> None:
        for v, reference in each_student(2, "q1"):
            numel = v["a"] * v["b"] + v["a"] + v["b"]
            self.assertEqual(reference.value, 4 * shards(numel, v["W"])[-1])
            self.assertNotEqual(numel % v["W"], 0)

    def test_q2_by_looking_at_the_shard(self) -> None:
        for v, reference in each_student(2, "q2", 60):
            flat = "w" * (v["b"] * v["a"]) + "b" * v["a"] + "d" * (v["c"] * v["a"])
            while len(flat) % v["W"]:
                flat += "0"
            n = len(flat) // v["W"]
            cut = [flat[r * n:(r + 1) * n] for r in range(v["W"])]
            first = next(part for part in cut if "d" in part)
            self.assertEqual(reference.value, first.count("d"))
            self.assertTrue(0 < first.count("d") < v["c"] * v["a"])


class Iteration:
    """A forward and a backward of units over W ranks, as rank 0 sees it: bytes that arrive, and
    bytes that are held, event by event."""

    def __init__(self, sizes: list[int], ranks: int, within: int = 0) -> None:
        self.sizes, self.ranks, self.within = sizes, ranks, within
        self.gathered = self.reduced = 0
        self.full: dict[int, int] = {}  # unit -> bytes of UNSHARDED_PARAM
        self.gradients: dict[int, int] = {}  # unit -> bytes of UNSHARDED_GRAD
        self.most_gradients = 0

    def gather(self, k: int) -> None:
        if k in self.full:
            return
        parts = shards(self.sizes[k], self.ranks)
        self.gathered += sum(4 * numel for rank, numel in enumerate(parts) if rank != 0)
        self.full[k] = 4 * sum(parts)

    def forward(self) -> None:
        for k in range(len(self.sizes)):
            self.gather(k)
            if k == len(self.sizes) - 1:
                continue  # kept
            whole = self.full.pop(k)
            if self.within:
                self.full[k] = whole // self.within

    def backward(self, reduces: bool = True) -> None:
        reducing = None
        for k in reversed(range(len(self.sizes))):
            self.gather(k)
            self.gradients[k] = self.full[k]
            self.most_gradients = max(self.most_gradients, sum(self.gradients.values()))
            del self.full[k]
            if reducing is not None:
                del self.gradients[reducing]
            reducing = k
            if reduces:
                parts = shards(self.sizes[k], self.ranks)
                self.reduced += sum(4 * parts[0] for rank in range(self.ranks) if rank != 0)
        del self.gradients[0]


def units(v: dict[str, int]) -> list[int]:
    return [v["e"]] + [v["u"]] * v["L"] + [v["h"]]


class Tasks3And4(unittest.TestCase):

    def test_3_q1(self) -> None:
        for v, reference in each_student(3, "q1"):
            iteration = Iteration(units(v), v["W"])
            iteration.forward()
            self.assertEqual(list(iteration.full), [v["L"] + 1])
            iteration.backward()
            self.assertEqual(reference.value, iteration.gathered)

    def test_3_q2(self) -> None:
        for v, reference in each_student(3, "q2"):
            iteration = Iteration(units(v), v["W"], within=v["s"])
            iteration.forward()
            self.assertEqual(reference.value, sum(iteration.full.values()))

    def test_4_q1(self) -> None:
        for v, reference in each_student(4, "q1", 100):
            iteration = Iteration(units(v), v["W"])
            for m in range(v["M"]):
                iteration.forward()
                iteration.backward(reduces=(m + 1) % v["l"] == 0)
            self.assertEqual(reference.value, iteration.reduced)

    def test_4_q2(self) -> None:
        for v, reference in each_student(4, "q2"):
            iteration = Iteration(units(v), v["W"])
            iteration.forward()
            iteration.backward()
            self.assertEqual(reference.value, iteration.most_gradients)
            self.assertEqual(iteration.gradients, {})


class Task5(unittest.TestCase):

    def test_q1_by_giving_state_to_shards(self) -> None:
        for v, reference in each_student(5, "q1"):
            flats = [(v["e"], False)] + [(v["u"], True), (v["v"], True)] * v["L"] + [(v["h"], True)]
            state = [(name, shards(numel, v["W"])[0]) for numel, trainable in flats if trainable
                     for name in ("exp_avg", "exp_avg_sq")]
            self.assertEqual(reference.value, sum(4 * numel for _, numel in state))

    def test_q2_by_the_norm_of_the_whole_vector(self) -> None:
        for v, reference in each_student(5, "q2"):
            gradient = [math.sqrt(v[name]) for name in ("s0", "s1", "s2", "s3", "g")]
            norm = math.hypot(*gradient)
            self.assertLess(v["c"], norm)
            clipped = math.hypot(*(reference.value * each for each in gradient))
            self.assertAlmostEqual(clipped, v["c"], places=5)


class Task6(unittest.TestCase):

    def test_q1_by_trying_numbers_of_tokens(self) -> None:
        for v, reference in each_student(6, "q1"):
            numel = 840 * 1000  # any unit
            bytes_received = sum(numel // v["W"] * v["p"] for _ in range(1, v["W"]))
            gather = Fraction(bytes_received, v["B"] * 10**9)
            tokens = int(reference.value) - 3
            while Fraction(2 * numel * tokens, v["F"] * 10**12) < gather:
                tokens += 1
            self.assertEqual(tokens, math.ceil(reference.value))

    def test_q2_by_playing_events(self) -> None:
        for v, reference in each_student(6, "q2"):
            self.assertEqual(reference.value, play_backward(v["K"], v["b"], v["g"], v["r"]))


def play_backward(count: int, b: int, g: int, r: int) -> int:
    """Events on a heap: the computation of a rank, and a channel that takes jobs in turn."""
    queue: list[tuple[str, int, int]] = []  # (kind, unit, duration), in order of issue
    done: set[tuple[str, int]] = {("gather", count - 1)}
    events: list[tuple[int, str, int]] = []
    channel_busy = computing = False
    unit, now = count - 1, 0
    while True:
        if not computing and unit >= 0 and ("gather", unit) in done:
            computing = True  # pre-backward: the next gather is issued, then it computes
            if unit > 0:
                queue.append(("gather", unit - 1, g))
            heapq.heappush(events, (now + b, "compute", unit))
        if computing and ("compute", unit) in done and (
                unit == count - 1 or ("reduce", unit + 1) in done):
            queue.append(("reduce", unit, r))  # post-backward: the one before is finished
            computing, unit = False, unit - 1
            continue
        if not channel_busy and queue:
            kind, job, duration = queue.pop(0)
            channel_busy = True
            heapq.heappush(events, (now + duration, kind, job))
        if not events:
            return now
        now, kind, job = heapq.heappop(events)
        channel_busy = channel_busy and kind == "compute"
        done.add((kind, job))


class Task7(unittest.TestCase):

    def test_q1_by_listing_parameters(self) -> None:
        for v, reference in each_student(7, "q1"):
            d = v["d"]
            modules = [("embed", [("weight", d * v["V"])])]
            for i in range(v["L"]):
                modules.append((f"layers.{i}", [
                    ("q", d * d), ("k", d * d), ("v", d * d), ("o", d * d), ("gate", d * v["F"]),
                    ("up", d * v["F"]), ("down", d * v["F"]), ("norm1", d), ("norm2", d)]))
            modules.append(("head", [("norm", d), ("lm_head", d * v["V"])]))
            flats: Counter[tuple[str, bool]] = Counter()
            for module, parameters in modules:
                for name, numel in parameters:
                    flats[module, not name.startswith("norm")] += numel
            held = sum(4 * (1 + 2) * shards(numel, v["W"])[0] for numel in flats.values())
            held += 2 * 4 * v["T"] * (d // v["H"]) // 2
            self.assertEqual(reference.value, held)

    def test_q2_by_a_ledger(self) -> None:
        places: Counter[str] = Counter()
        for v, reference in each_student(7, "q2"):
            where = peak_place(v)
            self.assertEqual((reference.value, "backward"), where)
            places[reference.value] += 1
        self.assertEqual(len(places), 5, places)  # every unit is somebody's answer
        self.assertLess(max(places.values()), 0.55 * len(STUDENTS), places)


class Task8(unittest.TestCase):

    def test_q1_by_sending_pieces(self) -> None:
        for v, reference in each_student(8, "q1"):
            n = shards(v["u"], v["S"])[0]
            self.assertEqual(n % v["R"], 0)
            pieces = shards(n, v["R"])
            received = 0
            for other in range(1, v["R"]):  # seen from replica 0
                received += pieces[0]  # what the other adds to the piece that is summed here
                received += pieces[other]  # the sum that the other has made
            self.assertEqual(reference.value, 4 * received * v["L"] * v["M"])

    def test_q2_by_listing_gathers(self) -> None:
        for v, reference in each_student(8, "q2"):
            blocks = [v["u"]] * v["L"]
            gathers = [v["e"], *blocks, v["h"]]  # forward; the head stays
            for u in reversed(blocks):
                gathers += [u, u]  # the second forward, and the backward
            gathers.append(v["e"])
            received = sum(4 * sum(shards(u, v["W"])[1:]) for u in gathers)
            self.assertEqual(reference.value, received)


def peak_place(v: dict[str, int]) -> tuple[str, str]:
    """The whole iteration, event by event; where the ledger was highest. One place only."""
    names = ["embed", "block0", "block1", "block2", "head"]
    full = dict(zip(names, (v["pe"], v["pb"], v["pw"], v["pb"], v["ph"])))
    saved = dict(zip(names, (v["ae"], v["ab"], v["aw"], v["ab"], v["ah"])))
    held = {("state", name): 3 * Fraction(full[name], 8) for name in names}
    highest: list[tuple[Fraction, str, str]] = []

    def look(name: str, phase: str) -> None:
        highest.append((sum(held.values(), Fraction(0)), name, phase))

    for i, name in enumerate(names):
        held["param", name] = Fraction(full[name])
        if i + 1 < len(names):
            held["param", names[i + 1]] = Fraction(full[names[i + 1]])
        held["saved", name] = Fraction(saved[name])
        look(name, "forward")
        if name != "head":
            del held["param", name]
    reducing = None
    for i in reversed(range(len(names))):
        name = names[i]
        held.setdefault(("param", name), Fraction(full[name]))
        if i > 0:
            held["param", names[i - 1]] = Fraction(full[names[i - 1]])
        held["gradient", name] = Fraction(full[name])
        look(name, "backward")
        del held["saved", name], held["param", name]
        if reducing is not None:
            del held["gradient", reducing]
            held["shard", reducing] = held.pop(("leaf", reducing))
        held["leaf", name] = Fraction(full[name], 8)
        reducing = name
        look("after " + name, "backward")
    highest.sort(reverse=True)
    assert highest[0][0] > highest[1][0], v
    return highest[0][1], highest[0][2]


class Mistakes(unittest.TestCase):

    def test_no_mistake_gives_the_answer(self) -> None:
        for task in range(1, 9):
            for question in question_set.load(task):
                if question.kind == "name":
                    continue
                for v, reference in each_student(task, question.id):
                    for value, cause in reference.mistakes:
                        self.assertFalse(
                            questions._equals(question, Fraction(value), reference.value),
                            f"{question.key} {v}: {cause}")

    def test_two_mistakes_seldom_coincide(self) -> None:
        for task in range(1, 9):
            for question in question_set.load(task):
                if question.kind == "name":
                    continue
                twins: Counter[tuple[str, str]] = Counter()
                for _, reference in each_student(task, question.id):
                    known = reference.mistakes
                    for i, (value, cause) in enumerate(known):
                        for other, second in known[:i]:
                            if cause != second and questions._equals(
                                    question, Fraction(value), other):
                                twins[second, cause] += 1
                for pair, count in twins.items():
                    self.assertLess(count, 0.2 * len(STUDENTS), f"{question.key}: {pair}")

    def test_the_place_of_the_peak_is_not_the_naive_one(self) -> None:
        right = sum(any(value == reference.value for value, cause in reference.mistakes
                        if cause.startswith("the largest unit"))
                    for _, reference in each_student(7, "q2"))
        self.assertLess(right, 0.7 * len(STUDENTS))

    def test_the_peak_is_in_one_place_whatever_is_drawn(self) -> None:
        question = question_set.load(7)[1]
        import reference_task7 as reference
        for v in every_draw(question):
            full = [v[name] for name in ("pe", "pb", "pw", "pb", "ph")]
            saved = [v[name] for name in ("ae", "ab", "aw", "ab", "ah")]
            held = sorted(reference.held_in_backward(full, saved, k) for k in range(5))
            self.assertGreater(held[-1], held[-2], v)


def every_draw(question: question_set.Question) -> list[dict[str, int]]:
    draws: list[dict[str, int]] = [{}]
    for name, values in question.choices.items():
        draws = [{**draw, name: value} for draw in draws for value in values]
    return draws


if __name__ == "__main__":
    unittest.main()
