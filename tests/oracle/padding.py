#!/usr/bin/env python3
"""Prints the numbers of tests/train/golden_test.cpp: what transformers computes from the weights
and tokens of tests/golden/nano_*.safetensors if pad_token_id names a token of the first batch. Run it
from the root of the repository; it needs torch, transformers and safetensors."""

import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

import oracle

TABLE = "model.embed_tokens.weight"


def numbers(variant, padding):
    golden = load_file(f"tests/golden/nano_{variant}.safetensors")
    config = oracle.make_model("nano", variant, seed=1).config
    config.pad_token_id = padding
    model = LlamaForCausalLM(config).float()
    start = {name[len("start/"):]: value for name, value in golden.items() if name.startswith("start/")}
    model.load_state_dict(start, strict=False)
    model.tie_weights()
    after = oracle.run(model, golden["tokens"], golden["targets"], lr=1e-3)
    gradient, moved = after["grad/" + TABLE], after["param/" + TABLE] - start[TABLE]
    return [gradient[padding].abs().sum(), gradient.abs().sum(), moved[padding].abs().sum()]


for variant in ("untied", "tied_grouped"):
    padding = load_file(f"tests/golden/nano_{variant}.safetensors")["tokens"][0, 0, 0].item()
    print(variant, padding, *(f"{each.item():.7g}" for each in numbers(variant, padding)))
