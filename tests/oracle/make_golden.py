#!/usr/bin/env python3
"""Writes tests/golden/*.safetensors: a nano model's weights, two sequences a step, and what PyTorch
computes from them in float32 (see oracle.py). Run it from the root of the repository."""

from safetensors.torch import save_file

import oracle

for variant, seed in (("untied", 1), ("tied_grouped", 2)):
    model = oracle.make_model("nano", variant, seed)
    tokens, targets = oracle.make_batches("nano", steps=10, batch=2, seed=seed)
    golden = {"start/" + name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    golden.update(oracle.run(model, tokens, targets, lr=1e-3))
    golden["tokens"] = tokens
    golden["targets"] = targets
    save_file(golden, f"tests/golden/nano_{variant}.safetensors",
              metadata={"made_by": "tests/oracle/make_golden.py", "lr": "0.001"})
