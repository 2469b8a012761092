"""Task 2: the bytes of a shard, and what lies in it."""

from __future__ import annotations

from reference_common import FLOAT, Reference, padded, shard


def q1(v: dict[str, int]) -> Reference:
    sizes = [v["a"] * v["b"], v["a"], v["b"]]
    numel, ranks = sum(sizes), v["W"]
    n = shard(numel, ranks)
    return Reference(FLOAT * n, [
        (FLOAT * (numel // ranks), "N / W was rounded down: the last elements would be nobody's"),
        (FLOAT * (numel - (ranks - 1) * n), "that is the part that is not padding: all shards have "
                                            "the same size, so the last one holds the padding too"),
        (FLOAT * sum(shard(each, ranks) for each in sizes),
         "every parameter was padded by itself: a unit is one vector, padded once at its end"),
        (FLOAT * numel, "that is the whole vector; a rank keeps 1/W of it"),
        (FLOAT * padded(numel, ranks), "that is the whole padded vector, P; a shard is P / W"),
        (n, "that counts elements; a float32 takes 4 bytes"),
    ])


def q2(v: dict[str, int]) -> Reference:
    begin = v["b"] * v["a"] + v["a"]
    last = v["c"] * v["a"]
    numel = begin + last
    return Reference(_from(begin, shard(numel, v["W"])), [
        (begin % shard(numel, v["W"]), "that is what lies in the shard before down.weight begins"),
        (_from(begin, numel // v["W"]), "N / W was rounded down, so all borders lie too early"),
        (shard(last, v["W"]), "down.weight was cut by itself: it is the whole vector that is cut"),
        (_from(begin - v["a"], shard(numel - v["a"], v["W"])), "up.bias was left out"),
        (FLOAT * _from(begin, shard(numel, v["W"])), "that counts bytes; asked are elements"),
    ])


def _from(begin: int, n: int) -> int:
    """From `begin` to the end of the shard it lies in, with shards of n elements."""
    return n - begin % n
