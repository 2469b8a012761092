"""Task 4: what the reductions of a step move, and how many full gradients exist at a time."""

from __future__ import annotations

from reference_common import FLOAT, Reference, padded, shard


def q1(v: dict[str, int]) -> Reference:
    ranks, reductions = v["W"], v["M"] // v["l"]
    n = shard(v["e"], ranks) + v["L"] * shard(v["u"], ranks) + shard(v["h"], ranks)
    once = FLOAT * (ranks - 1) * n
    right = reductions * once
    numel = v["e"] + v["L"] * v["u"] + v["h"]
    return Reference(right, [
        (2 * right, "that is an all-reduce: a reduce-scatter moves half of it, since every rank "
                    "only receives its own shard's sum"),
        (v["M"] * once, "a reduction was counted for every micro-step: under no_sync the gradients "
                        "of several micro-steps travel together"),
        (once, "that is a single reduction; a step has M / l of them"),
        (v["l"] * once, "the step has M / l reductions, not l"),
        (reductions * FLOAT * ranks * n, "a rank's own part was counted: it does not travel"),
        (reductions * FLOAT * n, "that is the shard that remains; for it a rank receives a piece "
                                 "from each of the W - 1 others"),
        (reductions * FLOAT * (ranks - 1) * numel // ranks,
         "the padding is missing: what travels are shards of ceil(u / W) elements"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])


def q2(v: dict[str, int]) -> Reference:
    ranks = v["W"]
    e, u, h = (padded(v[name], ranks) for name in "euh")
    right = FLOAT * (max(e, h) + u)
    return Reference(right, [
        (FLOAT * (e + v["L"] * u + h), "that is every gradient at once, which is DDP: a unit's "
                                       "full gradient goes when its reduction is finished"),
        (FLOAT * max(e, h), "that is one full gradient; while a unit computes, the one before it "
                            "is still being reduced"),
        (FLOAT * (e + h), "the two largest units are no neighbors: they never have full gradients "
                          "at the same time"),
        (FLOAT * (min(e, h) + u), "that is the other end of the model; one pair needs more"),
        (FLOAT * 2 * u, "that is two blocks; at one end of the model it is more"),
        (FLOAT * 2 * max(e, h), "the largest unit was counted twice: what is being reduced while "
                                "it computes belongs to its neighbor"),
        (FLOAT * (max(e, h) + 2 * u), "three full gradients: the one being reduced goes before the "
                                      "next reduction is issued"),
        (FLOAT * (max(v["e"], v["h"]) + v["u"]), "the padding is missing: a full gradient has P "
                                                 "elements"),
        (FLOAT * (max(e, h) + u // ranks), "what is being reduced is whole until its reduction is "
                                           "finished, not a shard"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])
