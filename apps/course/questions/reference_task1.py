"""Task 1: words of the random stream, and bytes after a sliced start."""

from __future__ import annotations

from reference_common import FLOAT, Reference


def q1(v: dict[str, int]) -> Reference:
    table, weight = v["V"] * v["d"], v["F"] * v["d"]
    constants = v["d"] + v["F"]
    within = v["i"] * v["F"] + v["j"]
    right = v["s"] + table + weight + within
    return Reference(right, [
        (right + constants, "the constants norm.weight and up.bias were given words: a parameter "
                            "that is not random needs none"),
        (right + v["d"], "norm.weight was given words: a constant needs none"),
        (right + v["F"], "up.bias was given words: a constant needs none"),
        (right + table, "the tied head.weight was drawn a second time: it is one Variable under "
                        "two names, initialized once"),
        (right + table + constants, "the tied weight was drawn twice, and the constants were given "
                                    "words"),
        (right - v["s"], "the offset at which the generator stood was left out"),
        (right - within + v["j"] * v["d"] + v["i"], "the element was counted column by column: "
                                                    "tensors are stored row by row"),
        (within, "that is the place within the parameter; the parameter does not begin at word 0"),
        (right + 1, "one too many: the first word a parameter gets is the offset itself"),
    ])


def q2(v: dict[str, int]) -> Reference:
    parameters = FLOAT * v["N"]
    table = FLOAT * v["T"] * v["h"]
    ranks = v["W"]
    right = parameters + ranks * 2 * table
    return Reference(right, [
        (parameters + 2 * table, "the buffers were counted once: they are no parameters, and every "
                                 "rank holds them whole"),
        (parameters, "the buffers are missing: after a meta start somebody must initialize them"),
        (ranks * (parameters + 2 * table), "that is the eager start, with the whole model in every "
                                           "process; here a process only makes its slice"),
        (ranks * parameters + 2 * table, "every process only makes its slice of the parameters; it "
                                         "is the buffers that it holds whole"),
        (parameters // ranks + 2 * table, "that is one process; the host runs all of them"),
        (parameters + ranks * table, "there are two tables, cos and sin"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])
