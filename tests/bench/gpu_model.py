"""How long a training step in bfloat16 takes on a card, by a model of its kernels. Needs no card.

    gpu_model.py BIN_FOLDER [--card H100] [--model NAME,…]   a table for each model
    gpu_model.py BIN_FOLDER --documented                     whether docs/gpu.md has these tables

BIN_FOLDER has bench_cuda_rates, which says how often a step runs each kernel, how many operations
the result takes, and the fewest bytes that must move. The least time of a kernel is the longest of
three: its operations at the rate of large products, its bytes at the rate of copies and, for
attention, the instructions of its tiles if every scheduler issues one per cycle. A kernel takes
longer: by the share of its least time that it reached on an H200, which also measured both rates.
So the model carries that card's measurements over to other shapes and cards, by what limits each
kernel. It has one rank's kernels, and nothing of what goes between ranks.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs" / "gpu.md"


@dataclass(frozen=True)
class Card:
    """Per second. Source: NVIDIA's data sheets of the SXM cards, and what an H200 reached."""
    copied: float  # bytes, 88 % of what the data sheet says
    peak: float = 989.4e12  # operations of tensor cores on bfloat16
    products: float = 736e12  # of those, what products of 8192 x 8192 reached
    instructions: float = 132 * 4 * 1.83e9  # of warps: processors, schedulers, cycles


CARDS = {"H100": Card(copied=0.88 * 3.35e12), "H200": Card(copied=0.88 * 4.8e12)}


@dataclass(frozen=True)
class Model:
    about: str
    head: int  # elements
    words: tuple[str, ...]


_CHECKPOINTED = "--training.activation_checkpoint=block"
MODELS = {
    "124M": Model("llama_124m, 16 sequences of 1024 tokens", 64,
                  ("--model.preset=llama_124m", "--training.local_batch_size=16")),
    "1B": Model("the shape of Llama 3.2 1B, 4 sequences of 2048 tokens", 64,
                ("--model.preset=llama3_8b", "--model.hidden_size=2048",
                 "--model.num_hidden_layers=16", "--model.intermediate_size=8192",
                 "--model.tie_word_embeddings=true", "--training.seq_len=2048",
                 "--training.local_batch_size=4")),
    "2B": Model("llama_2b, 4 sequences of 1024 tokens, checkpointed blocks", 64,
                ("--model.preset=llama_2b", "--training.local_batch_size=4", _CHECKPOINTED)),
    "8B": Model("llama3_8b, a sequence of 8192 tokens, checkpointed blocks, a rank of 8", 128,
                ("--model.preset=llama3_8b", "--training.seq_len=8192",
                 "--training.local_batch_size=1", _CHECKPOINTED, "--parallel.strategy=fsdp",
                 "--parallel.ranks=8")),
}
# By the beginning of a kernel's name: its part of the step, and what an H200 reached of its least
# time. Products: the middle of 70 to 100 %; what is not named: of 86 to 95 %.
PARTS = {
    "head": ("products of the head", 0.85),
    "q, o": ("products of blocks", 0.85),
    "k, v": ("products of blocks", 0.85),
    "gate": ("products of blocks", 0.85),
    "attention_backward": ("attention, backward", 0.28),
    "attention": ("attention, forward", 0.33),
    # 0.25 was reached by kernels that read x and dout twice and added to nothing, so moved 5/3 of the
    # fewest bytes. These read them once; no card has timed them.
    "rms_norm_backward": ("RMSNorm, backward", 0.25 * 5 / 3),
    "rms_norm": ("RMSNorm, forward", 0.62),
    # No card has timed it: as the norm alone, where that is the lower of the two shares.
    "add and rms_norm": ("RMSNorm, forward", 0.62),
    "swiglu": ("SwiGLU, rotations, additions", 0.9),
    "rope": ("SwiGLU, rotations, additions", 0.9),
    "add": ("SwiGLU, rotations, additions", 0.9),
    "embedding": ("embedding and loss", 0.9),
    "cross_entropy": ("embedding and loss", 0.9),  # as the loss and its backward, of two kernels
    "exact norm": ("exact norm", 0.51),
    "adamw": ("AdamW, scaling, casts", 0.9),
    "cast": ("AdamW, scaling, casts", 0.9),
    "scale": ("AdamW, scaling, casts", 0.9),
}
# By a kernel's whole name: a fusion, and the share of the kernel's time that would go with it.
FUSIONS = {
    "rope": ("rotations inside attention's loads", 1),
    "rms_norm": ("additions inside the norm that follows", 0.5),
}


def output_of(folder: Path, what: str, model: Model) -> Any:
    done = subprocess.run([str(folder / "bench_cuda_rates"), what, *model.words],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"gpu_model.py: {done.stderr.strip()}")
    return json.loads(done.stdout)


def per_tile(head: int, is_backward: bool) -> int:
    """Instructions of a warp for 16 rows and 64 columns of scores: the table in docs/gpu.md."""
    rows = re.findall(r"(?m)^\| (\w+)[^|]*, (\d+) \| \d+ \| (\d+) \|", DOCS.read_text("utf-8"))
    of_head = [(kernel, int(count)) for kernel, width, count in rows if int(width) == head]
    if len(of_head) != 3:
        raise SystemExit(f"gpu_model.py: docs/gpu.md has no three rows of heads of {head}")
    return sum(count for kernel, count in of_head if (kernel != "forward") == is_backward)


@dataclass
class Part:
    least: float = 0  # seconds, as below
    seconds: float = 0
    limits: dict[str, float] = field(default_factory=dict)  # seconds, by what limits a kernel
    fused: dict[str, float] = field(default_factory=dict)  # of the seconds, what a fusion would save

    @property
    def limit(self) -> str:
        return max(self.limits, key=lambda name: self.limits[name])


def parts_of(folder: Path, model: Model, card: Card) -> dict[str, Part]:
    found: dict[str, Part] = {}
    for kernel in output_of(folder, "sizes", model):
        name, calls, operations = kernel["name"], kernel["per_step"], kernel["operations"]
        part, share = next(PARTS[each] for each in PARTS if name.startswith(each))
        limits = {"operations": operations / card.products, "bytes": kernel["bytes"] / card.copied}
        if name.startswith("attention"):
            is_backward = name.endswith("backward")
            # 16 x 64 scores: two products in forward and five in backward, each of 2 D operations.
            tiles = operations / ((5 if is_backward else 2) * 2 * model.head * 16 * 64)
            limits["instructions"] = (tiles * per_tile(model.head, is_backward)
                                      / card.instructions)
        limit = max(limits, key=lambda each: limits[each])
        entry = found.setdefault(part, Part())
        entry.least += calls * limits[limit]
        entry.seconds += calls * limits[limit] / share
        if name in FUSIONS:
            fusion, saved = FUSIONS[name]
            entry.fused[fusion] = (entry.fused.get(fusion, 0)
                                   + saved * calls * limits[limit] / share)
        entry.limits[limit] = entry.limits.get(limit, 0) + calls * limits[limit]
    return found


def table_of(folder: Path, name: str, card_name: str) -> str:
    model, card = MODELS[name], CARDS[card_name]
    parts = parts_of(folder, model, card)
    seconds = sum(part.seconds for part in parts.values())
    words = dict(word[2:].split("=") for word in model.words)
    length = int(words.get("training.seq_len", 1024))
    tokens = int(words["training.local_batch_size"]) * length
    used = output_of(folder, "operations", model) * tokens / card.peak  # seconds at the peak
    lines = [f"{name} on an {card_name}: {model.about}", "",
             "| part of a step | limited by | least, ms | by the model, ms | share of the step |",
             "| --- | --- | --: | --: | --: |"]
    for part, found in parts.items():
        lines.append(f"| {part} | {found.limit} | {1e3 * found.least:.2f} | "
                     f"{1e3 * found.seconds:.2f} | {100 * found.seconds / seconds:.0f} % |")
    least = sum(part.least for part in parts.values())
    lines.append(f"| all: {tokens / seconds:,.0f} tokens/s, MFU {100 * used / seconds:.1f} %, or "
                 f"{100 * used / least:.0f} % if each kernel took its least time | | "
                 f"{1e3 * least:.2f} | {1e3 * seconds:.2f} | 100 % |")
    for part in parts.values():
        lines += [f"| saved at most by {fusion} | | | {1e3 * saved:.2f} | "
                  f"{100 * saved / seconds:.1f} % |" for fusion, saved in part.fused.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--card", choices=CARDS, default="H100")
    parser.add_argument("--model", default="124M,1B,8B", help="of " + ", ".join(MODELS))
    parser.add_argument("--documented", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.model.split(",") if name not in MODELS]
    if unknown:
        parser.error(f"--model: there is no {unknown[0]}; there are {', '.join(MODELS)}")
    tables = [table_of(options.folder, name, options.card) for name in options.model.split(",")]
    if not options.documented:
        print("\n".join(tables), end="")
        return 0
    text = DOCS.read_text(encoding="utf-8")
    missing = [table for table in tables if table not in text]
    print("\n".join(["docs/gpu.md lacks these tables:\n", *missing]) if missing
          else "docs/gpu.md has these tables")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
