#!/usr/bin/env python3
"""Prints what autograd saves of one block, of the last norm and of the loss, in bytes per token.

    python3 tests/oracle/pytorch_saved.py
    python3 tests/oracle/pytorch_saved.py --goldens     writes what the tests compare with

Of torchtitan's Llama (pytorch_llama.py), and of Hugging Face's as DeepSpeed runs it. Everything is
on the meta device, or fake; a storage counts once, parameters and tables do not. Needs the Python
packages torch and transformers.
"""

import contextlib
import itertools
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from pytorch_llama import Llama, Shape

GOLDENS = pathlib.Path("tests/estimate/data/transformers_saved.json")


class Saved:
    """Counts the storages that autograd saves in a call; parameters and buffers aside."""

    def __init__(self, model):
        self.seen = {each.untyped_storage()._cdata: each
                     for each in (*model.parameters(), *model.buffers())}

    def count(self, function, *arguments, **keywords):
        fresh = []

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in self.seen:
                self.seen[storage._cdata] = storage  # alive, so that no other takes its address
                fresh.append((storage.nbytes(), str(tensor.dtype)[6:], list(tensor.shape)))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = function(*arguments, **keywords)
        return result, fresh


def print_tokens(name, fresh, tokens):
    print(f"{name}: {sum(size for size, _, _ in fresh) / tokens:.4f} bytes per token")
    for size, kind, shape in fresh:
        print(f"    {size / tokens:>12.4f}  {kind:<9} {shape}")


def print_saved_of_torchtitan(shape, batch, tokens, kind, norm, lora):
    with torch.device("meta"):
        model = Llama(shape, tokens, norm == "fused", lora)
        for parameter in model.parameters():
            parameter.data = parameter.data.to(kind)
        x = torch.empty(batch, tokens, shape.dim, dtype=kind, requires_grad=True)
        labels = torch.empty(batch, tokens, dtype=torch.int64)
    saved = Saved(model)
    name = f"torchtitan, {str(kind)[6:]}, norm {norm}" + ", lora" * lora
    x, block = saved.count(lambda: model.layers[0](x * 1, model.table))
    print_tokens(f"{name}, one block", block, batch * tokens)
    x, head = saved.count(lambda: model.output(model.norm(x)))
    print_tokens(f"{name}, norm and output", head, batch * tokens)
    _, loss = saved.count(lambda: F.cross_entropy(x.flatten(0, 1).float(), labels.flatten()))
    print_tokens(f"{name}, loss", loss, batch * tokens)


def flash(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """What scaled_dot_product_attention calls on CUDA when there is no mask."""
    if attn_mask is not None:
        raise SystemExit("With a mask, CUDA would not take flash attention.")
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal)[0]


def model_of_transformers(shape, batch, tokens, kind, attention, checkpoint):
    from transformers import LlamaConfig, LlamaForCausalLM, masking_utils
    masking_utils.find_packed_sequence_indices = lambda positions: None  # would read a meta tensor
    F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = flash
    config = LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.dim, num_hidden_layers=3,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn, max_position_embeddings=tokens,
        tie_word_embeddings=shape.tied, attn_implementation=attention, use_cache=False)
    with default_dtype(kind):
        model = LlamaForCausalLM(config).train()
    if checkpoint == "full":
        model.gradient_checkpointing_enable()
    return model, torch.empty(batch, tokens, dtype=torch.int64)


@contextlib.contextmanager
def default_dtype(kind):
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def peak_of_transformers(*arguments):
    """The most that is held in a first forward and backward, as PyTorch's MemTracker counts it."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, ids = model_of_transformers(*arguments)
        labels = torch.empty_like(ids)
        tracker = MemTracker()
        tracker.track_external(model, ids, labels)
        with tracker:
            output = model(input_ids=ids, labels=labels)  # lives on, as in a training loop
            output.loss.backward()
        return next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]


def saved_of_transformers(shape, batch, tokens, kind, attention, checkpoint):
    """What Hugging Face's Llama saves, by part: a middle block, norm and output, the loss."""
    with torch.device("meta"):
        model, ids = model_of_transformers(shape, batch, tokens, kind, attention, checkpoint)
    saved, parts = Saved(model), {"block": [], "head": [], "loss": []}

    def watch(inner, part):
        def function(*arguments, **keywords):
            result, fresh = saved.count(inner, *arguments, **keywords)
            parts[part] += fresh
            return result
        return function

    layer = model.model.layers[1]
    kind_of_layer = type(layer)

    class Watched(kind_of_layer):  # around the checkpoint, if there is one
        __call__ = watch(kind_of_layer.__call__, "block")

    layer.__class__ = Watched
    model.model.norm.forward = watch(model.model.norm.forward, "head")
    model.lm_head.forward = watch(model.lm_head.forward, "head")
    model.loss_function = watch(model.loss_function, "loss")
    saved.count(model, input_ids=ids, labels=ids)
    return parts


TRANSFORMERS = {
    "shape": {"grouped": Shape(32000, 1024, 3, 16, 4, 2816),
              "whole": Shape(32000, 768, 3, 12, 12, 2048),
              "tied": Shape(50257, 768, 3, 12, 4, 2048, tied=True),
              "narrow": Shape(2000, 1024, 3, 16, 4, 2816)},  # peaks inside of a block's backward
    "precision": {"bfloat16": torch.bfloat16, "float32": torch.float32},
    "attention": ("sdpa", "eager"),
    "checkpoint": ("none", "full"),
}


def print_saved_of_transformers():
    for attention in TRANSFORMERS["attention"]:
        shape = TRANSFORMERS["shape"]["grouped"]
        parts = saved_of_transformers(shape, 2, 512, torch.bfloat16, attention, "none")
        for part, fresh in parts.items():
            print_tokens(f"transformers, {attention}, {part}", fresh, 2 * 512)


def write_goldens():
    """Of Hugging Face's Llama, for tests/estimate: bytes by part, and the peak."""
    import transformers
    shapes, rows = TRANSFORMERS["shape"], []
    for shape, kind, attention, checkpoint in itertools.product(*TRANSFORMERS.values()):
        run = (shapes[shape], 2, 512, TRANSFORMERS["precision"][kind], attention, checkpoint)
        parts, peak = saved_of_transformers(*run), peak_of_transformers(*run)
        rows.append({"shape": shape, "precision": kind, "attention": attention,
                     "checkpoint": checkpoint, "batch": 2, "tokens": 512,
                     **{part: round(sum(size for size, _, _ in fresh))
                        for part, fresh in parts.items()},
                     "peak": peak})
    head = {"by": "tests/oracle/pytorch_saved.py --goldens",
            "torch": torch.__version__.split("+")[0], "transformers": transformers.__version__,
            "unit": "bytes", "shapes": {name: vars(each) for name, each in shapes.items()}}
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    GOLDENS.write_text(json.dumps(head)[:-1] + ',\n"runs": [\n' + lines + "\n]}\n")


def print_saved_of_compiled_loss(batch, tokens, vocabulary):
    """What the compiler's partitioner keeps of torchtitan's loss; which kernels it makes of the rest
    is not seen here."""
    def loss(prediction, labels):
        return F.cross_entropy(prediction.flatten(0, 1).float(), labels.flatten(0, 1))

    prediction = torch.zeros(batch, tokens, vocabulary, dtype=torch.bfloat16, requires_grad=True)
    labels = torch.zeros(batch, tokens, dtype=torch.int64)
    compiled = torch.compile(loss, backend="aot_eager_decomp_partition")
    saved = compiled(prediction, labels).grad_fn.saved_tensors
    print_tokens("compiled loss", [(each.nbytes, str(each.dtype)[6:], list(each.shape))
                                   for each in saved], batch * tokens)


def print_saved():
    """Sizes that share no divisor by chance, so that a term can be told from its bytes."""
    shape = Shape(32000, 1024, 1, 16, 4, 2816)
    print(f"torch {torch.__version__}: {shape}, B 2, T 512")
    for kind in (torch.bfloat16, torch.float32):
        for norm in ("fused", "float32"):
            for lora in (False, True):
                print_saved_of_torchtitan(shape, 2, 512, kind, norm, lora)
    print_saved_of_compiled_loss(2, 512, 32000)
    print_saved_of_transformers()


if __name__ == "__main__":
    write_goldens() if "--goldens" in sys.argv else print_saved()
