"""What the reference answers share. A student kit leaves out all reference_*.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

FLOAT = 4  # bytes of a float32

Value = int | float | Fraction | str


@dataclass
class Reference:
    """The answer to one student's question, and the numbers that well-known mistakes lead to."""

    value: Value
    mistakes: list[tuple[Value, str]] = field(default_factory=list)


def shard(numel: int, world_size: int) -> int:
    """n = ceil(u / W): the elements of one rank."""
    return -(-numel // world_size)


def padded(numel: int, world_size: int) -> int:
    """P = n·W."""
    return shard(numel, world_size) * world_size
