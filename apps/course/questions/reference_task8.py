"""Task 8: what travels between replicas, and what a checkpoint around a unit gathers."""

from __future__ import annotations

from reference_common import FLOAT, Reference, shard


def q1(v: dict[str, int]) -> Reference:
    replicas, shards = v["R"], v["S"]
    n = shard(v["u"], shards)
    times = v["L"] * v["M"]
    once = FLOAT * 2 * (replicas - 1) * n // replicas
    right = times * once
    of_all = shard(v["u"], shards * replicas)
    return Reference(right, [
        (right // 2, "that is half of an all-reduce: first every rank receives the pieces that it "
                     "adds, then the sums of the others"),
        (times * FLOAT * 2 * (replicas - 1) * n, "that is R times too much: a rank adds 1/R of the "
                                                 "shard and receives the other sums"),
        (times * FLOAT * (replicas - 1) * n, "that is a gather of all shards; an all-reduce moves "
                                             "2·(R-1)/R of one"),
        (v["L"] * once, "that is one micro-step; each of M reduces"),
        (times * FLOAT * 2 * (replicas - 1) * v["u"] // replicas,
         "whole gradients were counted: between replicas travel shards, after the reduce-scatter"),
        (times * FLOAT * 2 * (replicas - 1) * of_all // replicas,
         "a shard is 1/S of the unit, not 1/W: every replica holds the model once"),
        (times * FLOAT * (shards - 1) * n, "that is the reduce-scatter within a replica"),
        (times * FLOAT * n, "that is the shard itself"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])


def q2(v: dict[str, int]) -> Reference:
    ranks, layers = v["W"], v["L"]
    e, u, h = (shard(v[name], ranks) for name in "euh")

    def gathered(of_e: int, of_u: int, of_h: int) -> int:
        return FLOAT * (ranks - 1) * (of_e * e + of_u * layers * u + of_h * h)

    right = gathered(2, 3, 1)
    return Reference(right, [
        (gathered(2, 2, 1), "that is FSDP(checkpoint(block)): there, the second forward runs while "
                            "the unit is gathered for backward"),
        (gathered(2, 3, 2), "the head is kept between forward and backward, so it is gathered once"),
        (gathered(3, 3, 1), "the embedding is not checkpointed: it is gathered twice"),
        (gathered(3, 3, 3), "embedding and head are not checkpointed"),
        (gathered(2, 1, 1), "blocks are resharded after every forward, so they are gathered again"),
        (gathered(2, 4, 1), "a block has three gathers: forward, second forward, backward"),
        (FLOAT * ranks * (2 * e + 3 * layers * u + h),
         "a rank's own shard was counted: it does not travel"),
        (FLOAT * (ranks - 1) * (2 * v["e"] + 3 * layers * v["u"] + v["h"]) // ranks,
         "the padding is missing: what travels are shards of ceil(u / W) elements"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])
