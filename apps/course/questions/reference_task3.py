"""Task 3: what the gathers of an iteration move, and what within(s) keeps."""

from __future__ import annotations

from reference_common import FLOAT, Reference, padded, shard


def q1(v: dict[str, int]) -> Reference:
    ranks = v["W"]
    again = shard(v["e"], ranks) + v["L"] * shard(v["u"], ranks)  # the units gathered twice
    once = shard(v["h"], ranks)
    numel = v["e"] + v["L"] * v["u"] + v["h"]
    of_others = FLOAT * (ranks - 1)
    right = of_others * (2 * again + once)
    unpadded = of_others * (2 * numel - v["h"]) // ranks
    return Reference(right, [
        (of_others * 2 * (again + once), "the last unit was gathered a second time: it is needed "
                                         "again at once, so it is kept from forward to backward"),
        (of_others * (again + once), "that is one gather a unit: backward needs what was given up "
                                     "after forward once more"),
        (FLOAT * ranks * (2 * again + once), "a rank's own shard was counted: it does not travel, "
                                             "only those of the W - 1 others do"),
        (FLOAT * ranks * 2 * (again + once), "a rank's own shard does not travel, and the last "
                                             "unit is gathered once"),
        (unpadded, "the padding is missing: what travels are shards of ceil(u / W) elements"),
        (2 * right, "twice too many: that would be an all-reduce's traffic"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
        (FLOAT * (2 * again + once), "that is one other rank's shards; there are W - 1 others"),
    ])


def q2(v: dict[str, int]) -> Reference:
    ranks, part = v["W"], v["s"]
    blocks = v["L"] * padded(v["u"], ranks)
    resharded = padded(v["e"], ranks) + blocks
    head = padded(v["h"], ranks)
    right = FLOAT * (resharded // part + head)
    return Reference(right, [
        (FLOAT * (resharded + head) // part, "the last unit was cut too: the root rule comes "
                                             "first, it is kept whole"),
        (FLOAT * (resharded // part), "the last unit is missing: it is kept, whole"),
        (FLOAT * head, "that is always(): within(s) keeps 1/s of the other units too"),
        (FLOAT * (resharded + head), "that is never(): within(s) keeps only 1/s of the others"),
        (FLOAT * (resharded // ranks + head), "1/W of the vectors is the shard, which is "
                                              "SHARDED_PARAM and there anyway; kept is 1/s"),
        (FLOAT * (v["e"] // part + v["L"] * (v["u"] // part) + v["h"]),
         "the padding is missing: what is cut in s parts is the vector of P elements"),
        (right // FLOAT, "that counts elements; a float32 takes 4 bytes"),
    ])
