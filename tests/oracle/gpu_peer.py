"""Tokens per second of PyTorch on a CUDA card, for tests/bench/gpu_all.py.

    gpu_peer.py 124M|1B [--device cpu]

It trains transformers' LlamaForCausalLM of the same shapes in bfloat16 (autocast, over parameters in
float32) with AdamW, in three ways: eager, compiled, and sharded by FSDP2 over one rank. It prints
them as JSON. --device cpu tries this script with a model of two layers.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from statistics import median

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as error:
    sys.exit(f"PyTorch 2.6 or newer, with transformers, is not installed ({error})")

# vocabulary, width, layers, heads, heads of keys, F, T, tied, B: as in nn/transformer_config.cpp and
# tests/bench/gpu_model.py
_SHAPES = {"124M": (50304, 768, 12, 12, 12, 2048, 1024, True, 16),
           "1B": (128256, 2048, 16, 32, 8, 8192, 2048, True, 4),
           "nano": (256, 16, 2, 2, 2, 40, 8, False, 1)}
_STEPS = 20


def make_model(shape: tuple, device: str) -> LlamaForCausalLM:
    vocabulary, width, layers, heads, keys, inner, length, tied, _ = shape
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=keys,
                         intermediate_size=inner, max_position_embeddings=length,
                         tie_word_embeddings=tied, use_cache=False, attn_implementation="sdpa")
    with torch.device(device):
        return LlamaForCausalLM(config)


def speed(model: torch.nn.Module, shape: tuple, device: str, is_sharded: bool) -> float:
    """The median of the second half of the steps, in tokens per second."""
    vocabulary, length, batch = shape[0], shape[6], shape[8]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    tokens = torch.randint(vocabulary, (batch, length), device=device)
    speeds = []
    for _ in range(_STEPS):
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=not is_sharded):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for the card
        speeds.append(batch * length / (time.perf_counter() - begin))
    return median(speeds[_STEPS // 2:])


def sharded(shape: tuple, device: str) -> float:
    """FSDP2 over one rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=0, world_size=1)
    try:
        model = make_model(shape, device)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        return speed(model, shape, device, True)
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=_SHAPES)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch finds no CUDA card")
    shape = _SHAPES[options.model]
    ways = {"eager": lambda: speed(make_model(shape, options.device), shape, options.device, False),
            "compiled": lambda: speed(torch.compile(make_model(shape, options.device)), shape,
                                      options.device, False),
            "FSDP2": lambda: sharded(shape, options.device)}
    found = {}
    for name, way in ways.items():
        try:
            found[name] = way()
        except torch.OutOfMemoryError:
            print(f"{name}: out of memory", file=sys.stderr)
        torch._dynamo.reset()  # it keeps models, and they refer to themselves
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
