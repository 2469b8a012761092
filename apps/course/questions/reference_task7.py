"""Task 7: a whole transformer at rest, and where its peak is."""

from __future__ import annotations

from reference_common import FLOAT, Reference, shard

UNITS = ("embed", "block0", "block1", "block2", "head")


def q1(v: dict[str, int]) -> Reference:
    ranks, layers, d, F = v["W"], v["L"], v["d"], v["F"]
    table, matrices, norms = v["V"] * d, 4 * d * d + 3 * d * F, 2 * d
    buffers = FLOAT * 2 * v["T"] * (d // v["H"] // 2)

    def states(*flats: tuple[int, int]) -> int:
        """Parameter and two states for (how many, elements) flat parameters."""
        return 3 * FLOAT * sum(count * shard(numel, ranks) for count, numel in flats)

    sharded = states((2, table), (layers, matrices), (layers, norms), (1, d))
    right = sharded + buffers
    numel = 2 * table + layers * (matrices + norms) + d
    two = states((2, table), (layers, matrices - d * F), (layers, norms), (1, d))
    tied = states((1, table), (layers, matrices), (layers, norms), (1, d))
    lost = "the padding is missing: every FlatParameter is padded by itself, to a multiple of W"
    return Reference(right, [
        (sharded, "the BUFFER bytes are missing: cos and sin of the rotary embedding"),
        (sharded + buffers // ranks, "the buffers were cut: they are no parameters and lie whole "
                                     "on every rank"),
        (sharded + layers * buffers, "the rotary tables are there once for all layers"),
        (sharded + 2 * buffers, "a rotary table has half as many columns as a head is wide"),
        (sharded + v["H"] * buffers, "a rotary table is half as wide as a head, not as the model"),
        (states((1, table), (layers, matrices + norms), (1, table + d)) + buffers,
         "every unit was padded as one: with `decays` it has a FlatParameter for each kind"),
        (3 * FLOAT * numel // ranks + buffers, lost),
        (3 * FLOAT * shard(numel, ranks) + buffers, lost),
        (two + buffers, "an MLP has three matrices here: gate, up and down"),
        (tied + buffers, "the embeddings are untied: embedding and lm_head are two tables"),
        (states((2, table), (layers, matrices)) + buffers, "the norms are missing: they do not "
                                                           "decay, but are trained and sharded"),
        (sharded // 3 * 4 + buffers, "gradients were counted: zero_grad() has freed them"),
        (sharded // 3 + buffers, "the optimizer's state is missing: two numbers an element"),
        (sharded // 3 * 2 + buffers, "AdamW keeps two numbers an element beside the parameter"),
        (3 * FLOAT * numel + buffers, "that is a single process; a rank keeps 1/W"),
    ])


def q2(v: dict[str, int]) -> Reference:
    full = [v[name] for name in ("pe", "pb", "pw", "pb", "ph")]
    saved = [v[name] for name in ("ae", "ab", "aw", "ab", "ah")]

    def highest(**without: bool) -> str:
        held = [held_in_backward(full, saved, k, **without) for k in range(len(full))]
        return UNITS[held.index(max(held))]

    return Reference(highest(), [
        (highest(ahead=False), "the unit gathered ahead seems to be missing: prefetch depth 1"),
        (highest(reducing=False), "the full gradient that is still being reduced seems to be "
                                  "missing"),
        (highest(activations=False), "the activations seem to be missing: those of a unit and of "
                                     "all units before it are still there"),
        (highest(ahead=False, reducing=False), "a unit is not alone: the one before it is being "
                                               "gathered, the one after it reduced"),
        (UNITS[full.index(max(full))], "the largest unit is not always where most is held: its "
                                       "neighbors and the saved activations count too"),
        (UNITS[saved.index(max(saved))], "the unit that saves most is not always where most is "
                                         "held: the saved activations of all units add up"),
    ])


def held_in_backward(full: list[int], saved: list[int], k: int, ahead: bool = True,
                     reducing: bool = True, activations: bool = True) -> float:
    """Bytes while unit k computes in backward, without what is the same for all k."""
    ranks = 8
    held: float = full[k] + full[k]  # its parameters and its gradient
    if ahead and k > 0:
        held += full[k - 1]
    if reducing and k + 1 < len(full):
        held += full[k + 1] + full[k + 1] / ranks  # its full gradient, and where it lands
    held += sum(full[k + 2:]) / ranks  # gradients that are shards already
    return held + (sum(saved[:k + 1]) if activations else 0)
