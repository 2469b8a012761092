#!/usr/bin/env python3
"""Writes tests/golden/*.safetensors: a nano model's weights, two sequences per step, and what PyTorch
computes from them in float32 (see oracle.py). Run it from the root of the repository.

For the parameters after ten steps it also writes what they can be compared by: "determined/<path>", 1
where float32 determines the element, and "floor/<path>", how far PyTorch in float32 is from PyTorch in
float64 on those elements, relative to the change."""

import torch
from safetensors.torch import save_file

import oracle

for variant, seed in (("untied", 1), ("tied_grouped", 2)):
    model = oracle.make_model("nano", variant, seed)
    tokens, targets = oracle.make_batches("nano", steps=10, batch=2, seed=seed)
    golden = {"start/" + name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    gradients, exact_gradients = {}, {}
    golden.update(oracle.run(model, tokens, targets, lr=1e-3, gradients=gradients))
    again = oracle.make_model("nano", variant, seed)
    exact = oracle.run(again, tokens, targets, lr=1e-3, dtype=torch.float64,
                       gradients=exact_gradients)
    for name, _ in model.named_parameters():
        mask = oracle.determined(gradients, exact_gradients, name, steps=10)
        start = golden["start/" + name]
        floor = oracle.relative((golden["param/" + name] - start)[mask],
                                (exact["param/" + name] - start)[mask])
        golden["determined/" + name] = mask.to(torch.int32)
        golden["floor/" + name] = torch.tensor([floor], dtype=torch.float32)
    golden["tokens"] = tokens
    golden["targets"] = targets
    save_file(golden, f"tests/golden/nano_{variant}.safetensors",
              metadata={"made_by": "tests/oracle/make_golden.py", "lr": "0.001"})
