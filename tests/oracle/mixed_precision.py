#!/usr/bin/env python3
"""Compares training in mixed precision with PyTorch's: how exact it is, and how its loss falls.

    python3 tests/oracle/mixed_precision.py build/release/bin

    exact   Logits of tiny in bfloat16, and the gradients of its loss: how far are they from those
            that PyTorch computes in float64, as ratios of how far PyTorch's own bfloat16 is? Below
            1, ours is the nearer one. PyTorch materializes the scores of attention in bfloat16
            ("eager"), or not ("sdpa"); each tensor's ratio is over the nearer of the two. The
            float64 reference begins with the weights rounded to bfloat16, which is what both sides
            compute with. From the masters, the rounding of the weights would be part of both
            distances, and hide what the arithmetic does.
    losses  100 steps of training on this repository's text, over two ranks, with parameters in
            bfloat16 and reductions in float32: ours, and PyTorch's fully_shard with the same
            MixedPrecisionPolicy over gloo, from the same weights, on the same batches. How far are
            the two curves from each other, and PyTorch's from its own in float32? The weights are
            those of a new model (normal, 0.02), from three seeds. Rounding is amplified as training
            goes on, so two right implementations also part: PyTorch's "eager" and "sdpa" show how
            far.

Distances between tensors are norms of differences. Fails unless the ratios of the logits, and the
largest one of the gradients, are at most 1.2, and unless our curves are nearer to PyTorch's in
bfloat16 (with both kinds of attention) than those are to PyTorch's in float32, at the farthest and
in the root mean square over all steps of all seeds. A single seed may be on the other side.

Needs the Python packages torch, transformers and safetensors.
"""

import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import transformers
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaForCausalLM

import oracle

transformers.utils.logging.disable_progress_bar()

LIMIT = 1.2
RANKS = 2
STEPS = 100
ROWS = 2  # per rank and step
SEEDS = (5, 6, 7)
LR = 1e-3
BFLOAT16 = ["--training.mixed_precision_param=bfloat16"]
HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
THEIRS = {"float32": ("eager", MixedPrecisionPolicy()), "eager": ("eager", HALF),
          "sdpa": ("sdpa", HALF)}
PAIRS = [("our float32", "float32"), ("our bfloat16", "float32"), ("our bfloat16", "eager"),
         ("eager", "float32"), ("our bfloat16", "sdpa"), ("sdpa", "float32"), ("eager", "sdpa")]
FSDP = ["--parallel.strategy=fsdp", f"--parallel.ranks={RANKS}"]


def ours(programs, folder, settings):
    """What oracle_numbers computes from the model and the batches in `folder`. The tensors are
    copies: load_file maps the file, and the next call replaces its bytes."""
    subprocess.run([programs / "oracle_numbers", folder / "model", folder / "batches.safetensors",
                    folder / "ours.safetensors", str(LR), *settings], check=True)
    found = load_file(folder / "ours.safetensors")
    return {name: tensor.clone() for name, tensor in found.items()}


def loss_of(model, tokens, targets):
    """The loss as transformers computes it: of logits in float32, if they have 16 bits."""
    logits = model(tokens.long(), use_cache=False).logits
    wide = logits.float() if logits.dtype == torch.bfloat16 else logits
    return torch.nn.functional.cross_entropy(wide.flatten(0, 1), targets.long().flatten()), logits


def first_step(model, tokens, targets):
    """Logits and gradients of the first batch, as oracle_numbers names them."""
    loss, logits = loss_of(model, tokens[0], targets[0])
    loss.backward()
    numbers = {"grad/" + name: parameter.grad for name, parameter in model.named_parameters()}
    return {"logits": logits.detach(), **numbers}


# ------------------------------------------------------------------------------------------- exact


def exact(programs, variant):
    """The ratio of the logits, and those of the gradients of each parameter; also over "eager"."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = oracle.make_model("tiny", variant, seed=3)
        tokens, targets = oracle.make_batches("tiny", steps=1, batch=2, seed=4)
        model.save_pretrained(folder / "model")
        save_file({"tokens": tokens, "targets": targets}, folder / "batches.safetensors")
        mine = ours(programs, folder, BFLOAT16)

        def theirs(dtype, attention):
            loaded = LlamaForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16,
                                                      attn_implementation=attention)
            return first_step(loaded.to(dtype), tokens, targets)

        reference = theirs(torch.float64, "eager")
        halves = {kind: theirs(torch.bfloat16, kind) for kind in ("eager", "sdpa")}
    ratios = {"eager": {}, "best": {}}
    for path, right in reference.items():
        distances = [oracle.relative(half[path], right) for half in halves.values()]
        mine_is = oracle.relative(mine[path], right)
        ratios["eager"][path] = mine_is / distances[0]
        ratios["best"][path] = mine_is / min(distances)
    return ratios


def compare_exactness(programs):
    print("distance from float64, ours over PyTorch's:")
    print(f"{'variant':12} {'over':6} {'logits':>7} {'median':>7} {'worst':>7}  of the gradients")
    good = True
    for variant in oracle.VARIANTS:
        for over, ratios in exact(programs, variant).items():
            logits = ratios.pop("logits")
            worst = max(ratios, key=ratios.get)
            median = statistics.median(ratios.values())
            print(f"{variant:12} {over:6} {logits:7.3f} {median:7.3f} {ratios[worst]:7.3f}  "
                  f"{worst.removeprefix('grad/')}", flush=True)
            good = good and max(logits, ratios[worst]) <= LIMIT
    return good


# ------------------------------------------------------------------------------------------ losses


def batches_of(text):
    """Windows of the text's bytes at random places, (STEPS, RANKS * ROWS, 128), and what follows
    each byte."""
    data = torch.tensor(list(text), dtype=torch.int32)
    length = oracle.SIZES["tiny"]["max_position_embeddings"]
    generator = torch.Generator().manual_seed(6)
    begins = torch.randint(0, len(data) - length, (STEPS, RANKS * ROWS), generator=generator)
    windows = data[begins[..., None] + torch.arange(length + 1)]
    return windows[..., :-1].contiguous(), windows[..., 1:].contiguous()


def new_model(seed):
    """Tiny, with weights as a training begins with."""
    model = oracle.make_model("tiny", "untied", seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            else:
                parameter.normal_(0, model.config.initializer_range)
    return model


def train_rank(rank, folder):
    """One rank of trainings with FSDP2 on what lies in `folder`; rank 0 writes the losses there."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    losses = {name: train_sharded(rank, folder, *how) for name, how in THEIRS.items()}
    if rank == 0:
        save_file(losses, folder / "theirs.safetensors")
    dist.destroy_process_group()


def train_sharded(rank, folder, attention, policy):
    """The losses of a training with FSDP2."""
    model = LlamaForCausalLM.from_pretrained(folder / "model", dtype=torch.float32,
                                             attn_implementation=attention)
    mesh = init_device_mesh("cpu", (RANKS,))
    for module in (*model.model.layers, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, **oracle.ADAMW)
    batches = load_file(folder / "batches.safetensors")
    losses = []
    for tokens, targets in zip(batches["tokens"], batches["targets"]):
        mine = slice(ROWS * rank, ROWS * (rank + 1))
        loss, _ = loss_of(model, tokens[mine], targets[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean / RANKS)
    return torch.stack(losses)


def curves_from(programs, seed):
    """The losses of every step, by who trains, and how."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        new_model(seed).save_pretrained(folder / "model")
        tokens, targets = batches_of(pathlib.Path("README.md").read_bytes())
        save_file({"tokens": tokens, "targets": targets}, folder / "batches.safetensors")
        torch.multiprocessing.spawn(train_rank, (folder,), nprocs=RANKS)
        theirs = load_file(folder / "theirs.safetensors")
        return {"our float32": ours(programs, folder, FSDP)["losses"],
                "our bfloat16": ours(programs, folder, FSDP + BFLOAT16)["losses"],
                **{name: curve.clone() for name, curve in theirs.items()}}


def distances(curves):
    """How far two curves are apart: at most, and in the root mean square."""
    found = {}
    for a, b in PAIRS:
        apart = (curves[a].double() - curves[b].double()).abs()
        found[a, b] = apart.max().item(), apart.square().mean().sqrt().item()
    return found


def compare_losses(programs):
    print(f"\nlosses of {STEPS} steps on {RANKS} ranks:")
    everything = {}  # the curves of all seeds, one after the other
    falls, figures = True, {}
    for seed in SEEDS:
        curves = curves_from(programs, seed)
        for name, losses in curves.items():
            print(f"seed {seed}  {name:13} first {losses[0]:.4f}, last {losses[-1]:.4f}",
                  flush=True)
            falls = falls and losses[-1] < losses[0]
            everything[name] = torch.cat([everything.get(name, losses[:0]), losses])
        figures[f"seed {seed}"] = distances(curves)
    figures["all"] = distances(everything)
    print("\ndistances of losses, at most and in the root mean square:")
    print(" " * 30 + "".join(f"{name:>20}" for name in figures))
    for pair in PAIRS:
        columns = ["{:9.2e} {:8.2e}".format(*each[pair]) for each in figures.values()]
        print(f"{' - '.join(pair):30}" + "".join(f"{column:>20}" for column in columns))

    def is_nearer(theirs):
        apart, allowed = (figures["all"][pair] for pair in (("our bfloat16", theirs),
                                                            (theirs, "float32")))
        return apart[0] < allowed[0] and apart[1] < allowed[1]

    return bool(falls) and is_nearer("eager") and is_nearer("sdpa")


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    good = [compare_exactness(programs), compare_losses(programs)]
    print("all within bounds" if all(good) else "NOT all within bounds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
