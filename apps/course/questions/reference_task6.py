"""Task 6: tokens that hide a gather, and how long a backward on one channel takes."""

from __future__ import annotations

from fractions import Fraction

from reference_common import Reference


def q1(v: dict[str, int]) -> Reference:
    flops, link, ranks = v["F"] * 10**12, v["B"] * 10**9, v["W"]
    others = Fraction(ranks - 1, ranks)
    gather = others * v["p"] / link  # seconds a parameter
    right = gather * flops / 2  # over 2 operations a token and parameter
    return Reference(right, [
        (2 * right, "a token costs two operations a parameter in forward, a multiplication and an "
                    "addition"),
        (right / 3, "six operations a parameter are forward and backward together; what hides the "
                    "gather is the forward alone"),
        (right / others, "a rank's own shard was counted: it receives (W - 1)/W of a unit"),
        (2 * right / others, "a rank's own shard does not travel, and a token costs two operations "
                             "a parameter"),
        (right / others / ranks, "a gather brings the W - 1 other shards, not one"),
        (right / v["p"], "the bytes of a parameter are missing"),
        (8 * right, "bits for bytes: the link's rate is in bytes a second"),
        (right / 1000, "TFLOP/s over GB/s is a thousand"),
    ])


def q2(v: dict[str, int]) -> Reference:
    units, b, g, r = v["K"], v["b"], v["g"], v["r"]
    right = max(b, g) + (units - 2) * max(b, g + r) + max(b, r) + r
    return Reference(right, [
        (units * (b + r) + (units - 1) * g, "that is one after the other: gathers and reductions "
                                            "run beside the computation"),
        (units * (b + g + r), "nothing overlaps there, and the last unit was gathered again"),
        (units * b + r, "gathers and reductions were put side by side: they share one channel, and "
                        "together they take longer than a unit computes"),
        (units * b, "the reduction of the first unit is still running when the computation ends, "
                    "and the channel is what takes longest"),
        (b + (units - 1) * max(b, g + r) + r, "that form holds when the computation takes longest "
                                              "(b >= g + r): the first computed unit has only a "
                                              "gather beside it, the last one only a reduction"),
        (right + g, "the last unit was gathered a second time: it is still there"),
        (right - r, "the last reduction is missing: nothing is left to hide it behind"),
        (right + max(b, g + r), "one unit too many is in the middle: K - 2 units have a gather and "
                                "a reduction beside them"),
        ((units - 1) * (g + r) + r, "the channel was counted as always busy: before the first "
                                    "reduction there is nothing to reduce yet"),
    ])
