#!/usr/bin/env python3
"""Goes on elsewhere from what --export.optimizer writes: in PyTorch, and in DeepSpeed.

    python3 tests/oracle/elsewhere.py build/release/bin                 compare the next step with ours
    python3 tests/oracle/elsewhere.py --convert EXPORT FOLDER --lr LR   write DeepSpeed's universal layout

The first form trains a small Llama for three steps with unshard-train on two ranks, and exports it.
From the export it takes the fourth step in PyTorch (transformers' LlamaForCausalLM, torch's AdamW)
and, if the package deepspeed is there, in DeepSpeed with stages 1, 2 and 3. It prints how far each
arrives from our own fourth step, and fails beyond LIMIT.

Needs the Python packages torch, transformers and safetensors.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import LlamaForCausalLM

LR, CLIP, BATCH, LENGTH, STEPS = 1e-3, 1.0, 4, 32, 3
LIMIT = 1e-4  # of a tensor's norm; of what a step adds to a parameter
ZERO_STAGES = (1, 2, 3)
RANKS = 2


def read_export(folder):
    """{kind: {parameter: tensor}} of optimizer.safetensors, and its metadata. The kinds are "param"
    and what the optimizer keeps: "exp_avg" and "exp_avg_sq" of AdamW."""
    state = {}
    with safe_open(pathlib.Path(folder) / "optimizer.safetensors", "pt") as file:
        for name in file.keys():
            kind, parameter = name.split("/", 1)
            state.setdefault(kind, {})[parameter] = file.get_tensor(name)
        return state, file.metadata()


def adamw_options(metadata, lr):
    assert metadata["optimizer.name"] == "adamw" and metadata["optimizer.decay_norms"] == "true"
    return dict(lr=lr, betas=(float(metadata["optimizer.beta1"]), float(metadata["optimizer.beta2"])),
                eps=float(metadata["optimizer.eps"]),
                weight_decay=float(metadata["optimizer.weight_decay"]))


def resume_in_torch(folder, lr):
    """A LlamaForCausalLM and its AdamW as they were at the export."""
    state, metadata = read_export(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.load_state_dict(state["param"], strict=False)  # in float32, whatever export.dtype says
    model.tie_weights()
    optimizer = torch.optim.AdamW(model.parameters(), **adamw_options(metadata, lr))
    saved = optimizer.state_dict()
    for number, (name, _) in enumerate(model.named_parameters()):
        saved["state"][number] = {"step": torch.tensor(float(metadata["optimizer_steps"])),
                                  "exp_avg": state["exp_avg"][name],
                                  "exp_avg_sq": state["exp_avg_sq"][name]}
    optimizer.load_state_dict(saved)
    return model, optimizer


def write_universal(folder, target, lr, torch_adam=False):
    """Writes DeepSpeed's universal layout, which engine.load_checkpoint(target) reads at any number
    of ranks if "checkpoint" has "load_universal": true:

        latest_universal                            the name of the folder
        step_N/zero/PARAMETER/fp32.pt               {"param": tensor}; so exp_avg.pt, exp_avg_sq.pt
        step_N/zero/PARAMETER/step.pt               the number of steps (stages 1 and 2)
        step_N/zero/optimizer_state.pt              param_groups; the number of steps (stage 3)
        step_N/mp_rank_00_model_states.pt           counters of stages 1 and 2
        step_N/zero_pp_rank_0_mp_rank_00_model_states.pt   those of stage 3
    """
    state, metadata = read_export(folder)
    count, steps = int(metadata["optimizer_steps"]), int(metadata["step"])
    # torch's optimizers count in a tensor, DeepSpeed's own in a number.
    count = torch.tensor(float(count)) if torch_adam else count
    step_folder = pathlib.Path(target) / f"step_{steps}"
    zero = step_folder / "zero"
    for name, parameter in state["param"].items():
        (zero / name).mkdir(parents=True)
        torch.save({"param": parameter}, zero / name / "fp32.pt")
        for kind in ("exp_avg", "exp_avg_sq"):
            torch.save({"param": state[kind][name]}, zero / name / f"{kind}.pt")
        torch.save(count, zero / name / "step.pt")
    groups = [adamw_options(metadata, lr)]
    torch.save({"ds_version": "0.19.0", "param_groups": groups,
                "optimizer_state_dict": {"param_groups": groups, "state": {0: {"step": count}}}},
               zero / "optimizer_state.pt")
    counters = {"module": {}, "dp_world_size": 1, "mp_world_size": 1, "skipped_steps": 0,
                "global_steps": steps,
                "global_samples": steps * int(metadata["training.global_batch_size"]),
                "lr_scheduler": {"last_batch_iteration": steps - 1}}
    for name in ("mp_rank_00", "zero_pp_rank_0_mp_rank_00"):
        torch.save(counters, step_folder / f"{name}_model_states.pt")
    (pathlib.Path(target) / "latest_universal").write_text(step_folder.name)


def batch(home):
    """All that a step sees: the one window that the file has, so often."""
    text = torch.tensor(list((home / "text").read_bytes()))
    return text[:-1].repeat(BATCH, 1), text[1:].repeat(BATCH, 1)


def loss_of(model, tokens, targets):
    logits = model(tokens, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def step_in_torch(home):
    model, optimizer = resume_in_torch(home / "before", LR)
    loss_of(model, *batch(home)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    states = {name: optimizer.state[parameter] for name, parameter in model.named_parameters()}
    return {"param": {name: each.detach() for name, each in model.named_parameters()},
            "exp_avg": {name: each["exp_avg"] for name, each in states.items()},
            "exp_avg_sq": {name: each["exp_avg_sq"] for name, each in states.items()}}


def step_in_deepspeed(rank, home, stage, port):
    """A rank of DeepSpeed; rank 0 writes where it arrives."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    model = LlamaForCausalLM.from_pretrained(home / "before", dtype=torch.float32)
    # Not the weights of the export: those must come from the universal layout.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    deepspeed.init_distributed("gloo")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": BATCH // RANKS, "gradient_clipping": CLIP,
        "optimizer": {"type": "AdamW", "params": {"lr": 7.0, "torch_adam": True}},
        "zero_optimization": {"stage": stage}, "checkpoint": {"load_universal": True}})
    path, _ = engine.load_checkpoint(str(home / "universal"))
    assert path is not None
    tokens, targets = (each[rank::RANKS] for each in batch(home))
    engine.backward(loss_of(engine, tokens, targets))
    engine.step()
    arrived = {}
    for name, parameter in model.named_parameters():
        arrived[f"param/{name}"] = safe_get_full_fp32_param(parameter)
        for kind in ("exp_avg", "exp_avg_sq"):
            arrived[f"{kind}/{name}"] = safe_get_full_optimizer_state(parameter, kind)
    if rank == 0:
        torch.save(arrived, home / f"stage{stage}.pt")


def arrived_in_deepspeed(home, stage):
    torch.multiprocessing.spawn(step_in_deepspeed, (home, stage, 29600 + stage), RANKS)
    kinds = {}
    for name, tensor in torch.load(home / f"stage{stage}.pt").items():
        kind, parameter = name.split("/", 1)
        kinds.setdefault(kind, {})[parameter] = tensor
    return kinds


def distances(arrived, before, after):
    """The worst of all tensors, by kind; of a parameter, relative to what the step added to it."""
    worst = {}
    for kind, tensors in after.items():
        assert arrived[kind].keys() == tensors.keys(), kind
        for name, tensor in tensors.items():
            size = (tensor - before[kind][name]).norm() if kind == "param" else tensor.norm()
            distance = ((arrived[kind][name] - tensor).norm() / size).item()
            worst[kind] = max(worst.get(kind, 0.0), distance)
    return worst


def train(programs, home, steps, target):
    subprocess.run([programs / "unshard-train", "--model.preset=tiny", f"--data.path={home}/text",
                    f"--training.seq_len={LENGTH}", "--training.local_batch_size=1",
                    f"--training.global_batch_size={BATCH}", f"--training.steps={steps}",
                    f"--optimizer.lr={LR}", f"--training.max_norm={CLIP}", "--strategy=fsdp",
                    f"--ranks={RANKS}", f"--export={target}", "--export.optimizer=true"],
                   check=True, stdout=subprocess.DEVNULL)


def compare(programs, home):
    (home / "text").write_text("The next step must be the same, elsewhere.\n"[:LENGTH + 1])
    train(programs, home, STEPS, home / "before")
    train(programs, home, STEPS + 1, home / "after")
    before, after = read_export(home / "before")[0], read_export(home / "after")[0]
    found = {"PyTorch": distances(step_in_torch(home), before, after)}
    try:
        import deepspeed
        write_universal(home / "before", home / "universal", LR, torch_adam=True)
        for stage in ZERO_STAGES:
            found[f"DeepSpeed {deepspeed.__version__}, stage {stage}, {RANKS} ranks"] = distances(
                arrived_in_deepspeed(home, stage), before, after)
    except ImportError:
        print("without the package deepspeed: not compared")
    for name, worst in found.items():
        print(f"{name}: " + ", ".join(f"{kind} {value:.1e}" for kind, value in worst.items()))
    return max(value for worst in found.values() for value in worst.values())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("programs", nargs="?", type=pathlib.Path)
    parser.add_argument("--convert", nargs=2, metavar=("EXPORT", "FOLDER"))
    parser.add_argument("--lr", type=float)
    parser.add_argument("--torch-adam", action="store_true", help='"torch_adam": true in DeepSpeed')
    line = parser.parse_args()
    if line.convert:
        if line.lr is None:
            sys.exit("give --lr, the rate of the next step")
        return write_universal(*line.convert, line.lr, line.torch_adam)
    if line.programs is None:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        worst = compare(line.programs, pathlib.Path(folder))
    if not worst < LIMIT:
        sys.exit(f"{worst:.1e} is more than {LIMIT}")


if __name__ == "__main__":
    main()
