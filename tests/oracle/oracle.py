"""What PyTorch and Hugging Face's LlamaForCausalLM compute, for comparison with this library.

Needs the Python packages torch, transformers and safetensors. No part of the build needs this: it
makes the golden files (make_golden.py) and checks the library from outside (compare.py).
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

ADAMW = dict(betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

# The sizes of nn::TransformerConfig.
SIZES = {
    "nano": dict(vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=40, max_position_embeddings=8),
    "tiny": dict(vocab_size=256, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
                 intermediate_size=352, max_position_embeddings=128),
}

VARIANTS = {
    "untied": dict(tie_word_embeddings=False),
    "tied": dict(tie_word_embeddings=True),
    "grouped": dict(tie_word_embeddings=False, group=2),
    "tied_grouped": dict(tie_word_embeddings=True, group=2),
    # The first frequency stays, the last ones are divided; of tiny one lies in between.
    "llama3": dict(tie_word_embeddings=False,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                     high_freq_factor=4.0, original_max_position_embeddings=40)),
}


def make_model(size, variant, seed):
    """A LlamaForCausalLM with random weights of unit-like scale: nothing cancels, nothing vanishes."""
    options = dict(SIZES[size])
    changes = dict(VARIANTS[variant])
    group = changes.pop("group", 1)
    options.update(changes)
    options["num_key_value_heads"] = options["num_attention_heads"] // group
    config = LlamaConfig(**options, rms_norm_eps=1e-5, hidden_act="silu", attention_bias=False,
                         mlp_bias=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # the norms: not all ones, so that their gradients are tested
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            else:
                parameter.normal_(0, parameter.shape[1] ** -0.5)
    return model


def make_batches(size, steps, batch, seed):
    """Random tokens and their successors, (steps, batch, T) int32 each."""
    generator = torch.Generator().manual_seed(seed)
    length = SIZES[size]["max_position_embeddings"]
    text = torch.randint(0, SIZES[size]["vocab_size"], (steps, batch, length + 1),
                         generator=generator)
    return (text[:, :, :-1].to(torch.int32).contiguous(), text[:, :, 1:].to(torch.int32).contiguous())


def run(model, tokens, targets, lr, dtype=torch.float32, gradients=None):
    """Logits and gradients of the first batch, the loss of each, the parameters after all. `gradients`
    (a dictionary) gets those of every step, as "step/3/<path>"."""
    model = model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, **ADAMW)
    with torch.no_grad():
        numbers = {"logits": model(tokens[0].long(), use_cache=False).logits.clone()}
    losses = []
    for step in range(tokens.shape[0]):
        logits = model(tokens[step].long(), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[step].long().flatten())
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.detach().clone())
        if step == 0:
            for name, parameter in model.named_parameters():
                numbers["grad/" + name] = parameter.grad.clone()
        for name, parameter in model.named_parameters():
            if gradients is not None:
                gradients[f"step/{step}/{name}"] = parameter.grad.float().clone()
        optimizer.step()
    numbers["losses"] = torch.stack(losses)
    for name, parameter in model.named_parameters():
        numbers["param/" + name] = parameter.detach().clone()
    return {name: tensor.float().contiguous() for name, tensor in numbers.items()}


def determined(gradients, exact, name, steps):
    """Which elements of a parameter a training in float32 determines: those whose gradient, in every
    step, agrees within a percent between float32 (`gradients`) and float64 (`exact`). AdamW divides by
    the gradient's size, so an element whose gradient is nothing but rounding still moves by the whole
    learning rate, in a direction that rounding picks."""
    mask = torch.ones_like(gradients[f"step/0/{name}"], dtype=torch.bool)
    for step in range(steps):
        ours, theirs = gradients[f"step/{step}/{name}"], exact[f"step/{step}/{name}"]
        mask &= (ours - theirs).abs() <= 0.01 * theirs.abs()
    return mask


def relative(a, b):
    """The norm of a - b over that of b, in double."""
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm()).item()
