"""torchtitan's Llama as small as it goes, and what torchtitan wraps around it.

The device is cpu, so two operations are named or replaced, because the CPU's own would keep other
bytes than CUDA's: aten's flash attention, and the fused RMSNorm.
"""

import dataclasses
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

RANK = 8  # of the adapters


@dataclasses.dataclass(frozen=True)
class Shape:
    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    tied: bool = False


class FusedNorm(torch.autograd.Function):
    """Saves what CUDA's fused RMSNorm saves: its input, its weight, and 4 bytes per row."""

    @staticmethod
    def forward(ctx, x, weight):
        rows = torch.empty(x.shape[:-1] + (1,), dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, rows)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        x, weight, _ = ctx.saved_tensors
        need_x, need_weight = ctx.needs_input_grad
        return (torch.empty_like(x) if need_x else None,
                torch.empty_like(weight) if need_weight else None)


class Norm(nn.Module):
    def __init__(self, dim, fused):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))
        self.fused = fused

    def forward(self, x):
        if self.fused:
            return FusedNorm.apply(x, self.weight)
        wide = x.float()
        normalized = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        return normalized.type_as(x) * self.weight


class Adapted(nn.Linear):
    """A linear layer with a low-rank adapter beside it."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        self.lora_a = nn.Linear(inputs, RANK, bias=False)
        self.lora_b = nn.Linear(RANK, outputs, bias=False)

    def forward(self, x):
        return super().forward(x) + self.lora_b(self.lora_a(x))


def linear(inputs, outputs, adapted=False):
    return Adapted(inputs, outputs) if adapted else nn.Linear(inputs, outputs, bias=False)


def rotate(q, k, table):
    """Rotates pairs in float32, as complex numbers; of both before either is cast back."""
    pairs = [torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) for x in (q, k)]
    wide = [torch.view_as_real(each * table[:, None, :]).flatten(-2) for each in pairs]
    return wide[0].type_as(q), wide[1].type_as(k)


def repeat(x, times):
    """Repeats key or value heads for the query heads that share them."""
    if times == 1:
        return x
    batch, tokens, heads, size = x.shape
    wide = x[:, :, :, None, :].expand(batch, tokens, heads, times, size)
    return wide.reshape(batch, tokens, heads * times, size)


class Attention(nn.Module):
    def __init__(self, shape, lora):
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        size = shape.dim // shape.heads
        self.wq = linear(shape.dim, shape.heads * size, lora)
        self.wk = linear(shape.dim, shape.kv_heads * size)
        self.wv = linear(shape.dim, shape.kv_heads * size, lora)
        self.wo = linear(shape.heads * size, shape.dim)

    def forward(self, x, table):
        q = self.wq(x).unflatten(-1, (self.heads, -1))
        k, v = (each(x).unflatten(-1, (self.kv_heads, -1)) for each in (self.wk, self.wv))
        q, k = rotate(q, k, table)
        times = self.heads // self.kv_heads
        q, k, v = (each.transpose(1, 2) for each in (q, repeat(k, times), repeat(v, times)))
        attend = torch.ops.aten._scaled_dot_product_flash_attention
        return self.wo(attend(q, k, v, 0.0, True)[0].transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.w1 = linear(shape.dim, shape.ffn)
        self.w2 = linear(shape.ffn, shape.dim)
        self.w3 = linear(shape.dim, shape.ffn)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, shape, fused, lora):
        super().__init__()
        self.attention = Attention(shape, lora)
        self.feed_forward = FeedForward(shape)
        self.attention_norm = Norm(shape.dim, fused)
        self.ffn_norm = Norm(shape.dim, fused)

    def forward(self, x, table):
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, shape, tokens, fused, lora):
        super().__init__()
        self.tok_embeddings = nn.Embedding(shape.vocab, shape.dim)
        self.layers = nn.ModuleList(Block(shape, fused, lora) for _ in range(shape.layers))
        self.norm = Norm(shape.dim, fused)
        self.output = linear(shape.dim, shape.vocab)
        self.tied = shape.tied
        if self.tied:
            self.output.weight = self.tok_embeddings.weight
        pairs = shape.dim // shape.heads // 2
        self.register_buffer("table", torch.empty(tokens, pairs, dtype=torch.complex64))
        if lora:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x, self.table)
        return self.output(self.norm(x))


KEPT = {torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default}


def keep_every_second_product():
    """A policy per call of a block: attention and every second matrix product are kept."""
    products = defaultdict(int)

    def policy(context, operation, *_, **__):
        keep = operation in KEPT
        if operation is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def checkpoint(model, mode):
    for index, block in enumerate(model.layers):
        if mode == "full" or mode.isdigit() and (index + 1) % int(mode) == 0:
            model.layers[index] = checkpoint_wrapper(block, preserve_rng_state=False)
        elif mode == "op":
            model.layers[index] = checkpoint_wrapper(
                block, context_fn=keep_every_second_product, preserve_rng_state=False)


def shard(model, run, mesh):
    """Makes units of a run.

        2024    a unit per block; embedding, norm and output belong to the root
        later   embedding, blocks, [norm, output]; tied: blocks, [embedding, norm, output]
        2025    the same, but the last block is resharded after forward as the others are

    The last block stays gathered by default in the first two, and [norm, output] in the last two.
    """
    mixed = (MixedPrecisionPolicy() if run.precision == "float32" else
             MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    options = {"mesh": mesh, "mp_policy": mixed}
    reshard = run.reshard != "never"
    head = [model.norm, model.output]
    if model.tied:
        head.insert(0, model.tok_embeddings)
    elif run.units != "2024":
        fully_shard(model.tok_embeddings, **options, reshard_after_forward=reshard)
    for index, block in enumerate(model.layers):
        kept = run.reshard == "default" and run.units != "2025" and index == len(model.layers) - 1
        fully_shard(block, **options, reshard_after_forward=reshard and not kept)
    if run.units != "2024":
        fully_shard(head, **options, reshard_after_forward=run.reshard == "always")
    fully_shard(model, **options)
