#!/usr/bin/env python3
"""Compares this library with PyTorch and transformers, both ways.

    make compare-pytorch          or   python3 tests/oracle/compare.py build/release/bin [nano tiny]

    there   a LlamaForCausalLM is saved with save_pretrained; oracle_numbers loads it and computes
            logits, loss, every gradient, and ten steps of AdamW
    back    unshard-train --export writes a trained model; from_pretrained loads it, and its logits are
            those that oracle_numbers computes
    16 bits the same in bfloat16 and several files: from_pretrained finds the dtype, and in float32
            computes the logits that oracle_numbers does

Prints the largest relative difference of each kind over all tensors, and fails unless

    logits, losses, grad    the first batch's logits and gradients, the losses of ten steps
    AdamW                   the change of every parameter after ten steps on PyTorch's gradients
    back, 16 bits           the logits of the model that came from here

are below 1e-5, and "trained", the change after ten steps of training, each side with its own gradients,
is no further from PyTorch than a few times what PyTorch in float32 is from PyTorch in float64 ("floor").
Both are over the elements that float32 determines (oracle.determined); "share", the smallest share of
them in any parameter, must be above 0.9.

Needs the Python packages torch, transformers and safetensors.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import oracle

transformers.utils.logging.disable_progress_bar()

LIMIT = 1e-5
LR = 1e-3


def there(programs, folder, size, variant):
    model = oracle.make_model(size, variant, seed=3)
    tokens, targets = oracle.make_batches(size, steps=10, batch=2, seed=4)
    model.save_pretrained(folder / "model")
    start = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    gradients = {}
    theirs = oracle.run(model, tokens, targets, LR, gradients=gradients)
    save_file({"tokens": tokens, "targets": targets, **gradients}, folder / "batches.safetensors")
    subprocess.run([programs / "oracle_numbers", folder / "model", folder / "batches.safetensors",
                    folder / "ours.safetensors", str(LR)], check=True)
    ours = load_file(folder / "ours.safetensors")
    same = {name: ours.pop(name) for name in list(ours) if name.startswith("same/")}
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    assert len(same) == len(start)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(start[name])
    exact_gradients = {}
    exact = oracle.run(model, tokens, targets, LR, dtype=torch.float64, gradients=exact_gradients)

    def change(numbers, name):  # over the change, or an untouched parameter would look right
        return numbers[name].double() - start[name.partition("/")[2]].double()

    worst = dict.fromkeys(("logits", "losses", "grad", "AdamW", "trained", "floor"), 0.0)
    worst["share"] = 1.0

    def note(kind, a, b):
        worst[kind] = max(worst[kind], oracle.relative(a, b))

    for name in theirs:
        kind, _, path = name.partition("/")
        if kind == "param":
            note("AdamW", change(same, "same/" + path), change(theirs, name))
            mask = oracle.determined(gradients, exact_gradients, path, steps=10)
            worst["share"] = min(worst["share"], mask.double().mean().item())
            note("trained", change(ours, name)[mask], change(theirs, name)[mask])
            note("floor", change(theirs, name)[mask], change(exact, name)[mask])
        else:
            note(kind, ours[name], theirs[name])
    return worst


def rotary_keys(scaling):
    if scaling is None:
        return []
    return ["--model.rope_factor", str(scaling["factor"]),
            "--model.rope_low_freq_factor", str(scaling["low_freq_factor"]),
            "--model.rope_high_freq_factor", str(scaling["high_freq_factor"]),
            "--model.rope_original_context", str(scaling["original_max_position_embeddings"])]


def back(programs, folder, size, variant, how=()):
    changes = oracle.VARIANTS[variant]
    heads = oracle.SIZES[size]["num_attention_heads"]
    tie = str(changes["tie_word_embeddings"]).lower()
    subprocess.run([programs / "unshard-train", "--strategy", "fsdp", "--ranks", "2",
                    "--model.preset", size, "--model.tie_word_embeddings", tie,
                    "--model.vocab_size", "256", "--model.num_key_value_heads",
                    str(heads // changes.get("group", 1)), "--data.path", "README.md",
                    "--training.steps", "3", "--training.local_batch_size", "2", *how,
                    *rotary_keys(changes.get("rope_scaling")),
                    "--export", folder / "exported"], check=True, stdout=subprocess.DEVNULL)
    if how:
        assert len(list((folder / "exported").glob("model-*-of-*.safetensors"))) > 1
        found = LlamaForCausalLM.from_pretrained(folder / "exported", dtype="auto")
        assert found.dtype == torch.bfloat16, found.dtype
    model, info = LlamaForCausalLM.from_pretrained(folder / "exported", output_loading_info=True,
                                                   dtype=torch.float32, attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info.get(kind), (kind, info[kind])
    tokens, targets = oracle.make_batches(size, steps=1, batch=2, seed=5)
    save_file({"tokens": tokens, "targets": targets}, folder / "batches.safetensors")
    subprocess.run([programs / "oracle_numbers", folder / "exported", folder / "batches.safetensors",
                    folder / "ours.safetensors"], check=True)
    ours = load_file(folder / "ours.safetensors")
    with torch.no_grad():
        theirs = model(tokens[0].long(), use_cache=False).logits
    # And once more around: what they save is what we load.
    model.save_pretrained(folder / "again")
    subprocess.run([programs / "oracle_numbers", folder / "again", folder / "batches.safetensors",
                    folder / "again.safetensors"], check=True)
    assert torch.equal(load_file(folder / "again.safetensors")["logits"], ours["logits"])
    return oracle.relative(ours["logits"], theirs)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    sizes = sys.argv[2:] or ["nano", "tiny"]
    good = True
    kinds = ("logits", "losses", "grad", "AdamW", "back", "16 bits", "trained", "floor", "share")
    halves = ["--export.dtype", "bfloat16", "--export.max_shard_size", "10000"]
    print(f"{'size':5} {'variant':12} " + " ".join(f"{kind:>8}" for kind in kinds))
    for size in sizes:
        for variant in oracle.VARIANTS:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                worst = there(programs, folder, size, variant)
                worst["back"] = back(programs, folder, size, variant)
                worst["16 bits"] = back(programs, folder, size, variant, halves)
            print(f"{size:5} {variant:12} " + " ".join(f"{worst[kind]:8.1e}" for kind in kinds),
                  flush=True)
            good = good and all(worst[kind] < LIMIT for kind in kinds[:6])
            good = good and worst["trained"] < LIMIT + 4 * worst["floor"] and worst["share"] > 0.9
    print("all within bounds" if good else "NOT all within bounds")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
