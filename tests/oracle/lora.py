#!/usr/bin/env python3
"""Fine-tunes SmolLM2-135M with LoRA, and compares the merged export with transformers.

    python3 tests/oracle/lora.py build/release/bin [FOLDER]

FOLDER and the Python packages are those of smollm2.py. Training takes 20 steps on the handouts, as
tokens of the model, but for one, which is evaluated before and after: in float32, and computing in
bfloat16, where the frozen weights are stored in bfloat16 alone. It runs alone and with FSDP on two
ranks. For comparison, one step of each is taken with all parameters.

Fails unless the losses of both placements have the same bits, the loss on the last handout falls,
and transformers continues a text by the same tokens after the merged export in float32 as
unshard-train's sample does with the adapters.
"""

import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file

import smollm2

STEPS = 20
LORA = ["--lora.rank=8", "--lora.alpha=16"]
BFLOAT16 = ["--training.mixed_precision_param=bfloat16",
            "--training.mixed_precision_reduce=float32"]


def words_of(steps):
    return [f"--training.steps={steps}", "--training.global_batch_size=8", "--optimizer.lr=1e-3",
            "--optimizer.weight_decay=0", "--sample.temperature=0",
            f"--sample.max_new_tokens={smollm2.NEW}"]


def same_weights(folder, other):
    """Compares every bit. (The order of tensors in a file is that of the units.)"""
    ours, theirs = (load_file(each / "model.safetensors") for each in (folder, other))
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[key].view(torch.int32), theirs[key].view(torch.int32)) for key in ours)


def compare(run, name, precision):
    *handouts, last = sorted(pathlib.Path("tasks").glob("task*/README.md"))
    data, tokens = run.tokenize("handouts.bin", handouts)
    held_out, _ = run.tokenize("held_out.bin", [last])
    before = run.evaluate(run.folder, held_out, 1)["loss"]
    runs = []
    for ranks in (1, 2):
        folder = run.work / f"{name}_{ranks}"
        printed, summary = run.train(ranks, data, [*words_of(STEPS), *LORA, *precision,
                                                   "--export", folder])
        _, whole = run.train(ranks, data, [*words_of(1), *precision, "--parallel.check_memory=false"])
        peaks = summary["peak_bytes"], whole["peak_bytes"]
        print(f"{name}, W = {ranks}: first loss {summary['losses'][0]:.4f}, last "
              f"{summary['losses'][-1]:.4f}, peak {peaks[0]} (all parameters: {peaks[1]})",
              flush=True)
        runs.append((printed, summary, folder))
    (printed, alone, folder), (_, sharded, other) = runs
    same_bits = alone["losses"] == sharded["losses"] and same_weights(folder, other)
    after = run.evaluate(folder, held_out, 1)["loss"]
    trained = smollm2.Comparison(run.programs, folder, run.work)
    theirs = trained.their_text(tokens[:smollm2.PROMPT])
    same_text = printed.endswith(f"\n\n{theirs}\n")
    print(f"{last}: loss {before:.4f} before, {after:.4f} after; losses and exports of one and two "
          f"ranks {'equal' if same_bits else 'DIFFER'}; text {'the same' if same_text else 'DIFFERENT'}:"
          f" {theirs!r}", flush=True)
    # In bfloat16 the sample rounds where transformers, in float32, does not.
    return same_bits and after < before and (same_text or precision != [])


def main():
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        model = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else work / "model"
        if not (model / "config.json").exists():
            smollm2.make_folder(model)
        run = smollm2.Comparison(pathlib.Path(sys.argv[1]).resolve(), model, work)
        good = [compare(run, "float32", []), compare(run, "bfloat16", BFLOAT16)]
    print("all within bounds" if all(good) else "NOT all within bounds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
