#!/usr/bin/env python3
"""Prints what autograd saves of one block, of the last norm and of the loss, in bytes per token.

    python3 tests/oracle/pytorch_saved.py

Of torchtitan's Llama (pytorch_llama.py), and of Hugging Face's as DeepSpeed runs it. Everything is
on the meta device; a storage counts once, parameters and tables do not. Needs the Python
packages torch and transformers.
"""

import torch
import torch.nn.functional as F

from pytorch_llama import Llama, Shape


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


def print_saved_of_transformers(shape, batch, tokens):
    """Hugging Face's Llama in bfloat16, as DeepSpeed runs it."""
    from transformers import LlamaConfig, LlamaForCausalLM, masking_utils
    masking_utils.find_packed_sequence_indices = lambda positions: None  # would read a meta tensor
    F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = flash
    for attention in ("sdpa", "eager"):
        config = LlamaConfig(
            vocab_size=shape.vocab, hidden_size=shape.dim, num_hidden_layers=3,
            num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
            intermediate_size=shape.ffn, max_position_embeddings=tokens,
            attn_implementation=attention, use_cache=False)
        with torch.device("meta"):
            model = LlamaForCausalLM(config).bfloat16()
            ids = torch.empty(batch, tokens, dtype=torch.int64)
        saved, parts = Saved(model), {}

        def watch(module, name):
            inner = module.forward

            def forward(*arguments, **keywords):
                result, parts[name] = saved.count(inner, *arguments, **keywords)
                return result

            module.forward = forward

        watch(model.model.layers[1], "a middle block")
        watch(model.model.norm, "the last norm")
        _, rest = saved.count(model, input_ids=ids, labels=ids)
        for name, fresh in parts.items():
            print_tokens(f"transformers, {attention}, {name}", fresh, batch * tokens)
        logits = [row for row in rest if shape.vocab in row[2]]
        print_tokens(f"transformers, {attention}, logits and loss", logits, batch * tokens)


def print_saved():
    """Sizes that share no divisor by chance, so that a term can be told from its bytes."""
    shape = Shape(32000, 1024, 1, 16, 4, 2816)
    print(f"torch {torch.__version__}: {shape}, B 2, T 512")
    for kind in (torch.bfloat16, torch.float32):
        for norm in ("fused", "float32"):
            for lora in (False, True):
                print_saved_of_torchtitan(shape, 2, 512, kind, norm, lora)
    print_saved_of_transformers(shape, 2, 512)


if __name__ == "__main__":
    print_saved()
