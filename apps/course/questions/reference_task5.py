"""Task 5: the optimizer's state on shards, and the clip by the norm of the whole."""

from __future__ import annotations

import math

from reference_common import FLOAT, Reference, shard


def q1(v: dict[str, int]) -> Reference:
    ranks = v["W"]
    block = shard(v["u"], ranks) + shard(v["v"], ranks)
    n = v["L"] * block + shard(v["h"], ranks)
    numel = v["L"] * (v["u"] + v["v"]) + v["h"]
    one_flat = v["L"] * shard(v["u"] + v["v"], ranks) + shard(v["h"], ranks)
    right = 2 * FLOAT * n
    return Reference(right, [
        (right + 2 * FLOAT * shard(v["e"], ranks), "the frozen embedding was counted: what is not "
                                                   "trained has no state"),
        (2 * FLOAT * numel, "that is the state of a single process; a rank keeps its shards' only"),
        (FLOAT * n, "AdamW keeps two numbers an element, exp_avg and exp_avg_sq"),
        (3 * FLOAT * n, "the parameters themselves were counted: they are SHARDED_PARAM"),
        (4 * FLOAT * n, "parameters and gradients were counted: OPTIMIZER is the state alone"),
        (2 * FLOAT * one_flat, "a block's two FlatParameters were padded as one"),
        (2 * FLOAT * numel // ranks, "the padding is missing: state has the shape of the shard"),
        (2 * FLOAT * (v["L"] * (v["u"] // ranks + v["v"] // ranks) + v["h"] // ranks),
         "N / W was rounded down; a shard has ceil(N / W) elements"),
        (2 * n, "that counts elements; a float32 takes 4 bytes"),
    ])


def q2(v: dict[str, int]) -> Reference:
    sums = [v[name] for name in ("s0", "s1", "s2", "s3")]
    limit, whole = v["c"], v["g"]

    def factor(squares: float) -> float:
        return limit / (math.sqrt(squares) + 1e-6)

    return Reference(factor(sum(sums) + whole), [
        (factor(sums[0] + whole), "that is the norm of what rank 0 holds: the ranks would scale "
                                  "differently; it takes all shards"),
        (factor(sums[0]), "that is the norm of rank 0's shards; it takes those of all ranks"),
        (factor(sum(sums) + 4 * whole), "the ignored parameter was counted on every rank: in the "
                                        "norm of the whole it is there once"),
        (factor(sum(sums)), "the ignored parameter is missing: it is a part of the gradient too"),
        (factor((sum(sums) + whole) / 4), "the squares were averaged: a norm is made of their sum"),
        (limit / (sum(math.sqrt(each) for each in sums) + math.sqrt(whole)),
         "the ranks' norms were added: it is the squares that add up"),
        (limit / (sum(sums) + whole), "the root is missing: those are squares"),
        (math.sqrt(limit / math.sqrt(sum(sums) + whole)), "one root too many"),
        (math.sqrt(sum(sums) + whole) / limit, "upside down: the factor is max_norm / norm"),
        (math.sqrt(sum(sums) + whole), "that is the norm; asked is the factor"),
        (1, "the norm is above the limit, so something must be scaled"),
    ])
