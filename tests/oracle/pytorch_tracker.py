"""Runs PyTorch's FSDPMemTracker over three steps of a run, in fake mode: no GPU, no memory.

    step 1   creates the optimizer's state and fills DTensor's caches; its peak is dropped
    step 2   gives the peak, its composition and the tables of modules
    step 3   must repeat that peak, and tells what is alive at it and which operation made it

The tracker counts bytes of storages, not the allocator's blocks of 512 bytes.
"""

import contextlib
import dataclasses
import gc
import types
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import (
    FSDPMemTracker, _FSDPModState, _FSDPRefType, _FSDPState, _SavedFSDPMethods)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_state import _register_group_forward_hooks
from torch.testing._internal.distributed.fake_pg import FakeStore

from pytorch_llama import Llama, checkpoint, shard

DEVICE = torch.device("cpu")


@dataclasses.dataclass(frozen=True)
class Run:
    shape: str
    world: int
    batch: int
    tokens: int
    units: str = "later"         # later, 2025 or 2024: see `shard`
    reshard: str = "default"     # default, never or always
    precision: str = "bfloat16"  # of parameters in use; float32: no mixed precision
    norm: str = "fused"          # fused or float32 (written out)
    checkpoint: str = "none"     # none, full, op or n (every n-th block)
    lora: bool = False           # a frozen base with adapters at wq and wv
    float8: str = "none"         # none; rounded: products of blocks; gathered: weights before, too


def spell(run):
    words = [run.shape, f"W={run.world}", f"B={run.batch}", f"T={run.tokens}", run.units,
             run.reshard, run.precision, run.norm, run.checkpoint]
    words += ["lora"] * run.lora + ["float8", run.float8] * (run.float8 != "none")
    return " ".join(words)


def parse(words):
    shape, world, batch, tokens, *rest = words.split()
    float8 = "none"
    if rest[-2] == "float8":
        *rest, _, float8 = rest
    lora = rest[-1] == "lora"
    numbers = [int(word.split("=")[1]) for word in (world, batch, tokens)]
    return Run(shape, *numbers, *(rest[:-1] if lora else rest), lora=lora, float8=float8)


class Tracker(FSDPMemTracker):
    """PyTorch's tracker, which here also remembers where the peak stood, and what was alive."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.operation = "before the step"
        self.made_by = {}
        self.peak_at = self.awaited = self.alive = None

    def restart(self):
        """Forgets peak and tables."""
        self.reset_mod_stats()
        self._peak_mem_snap = self.get_tracker_snapshot()
        self._peak_mem = {device: snap["Total"] for device, snap in self._peak_mem_snap.items()}

    def _instrument_fsdp_module(self):
        """Instruments a unit of several modules as one.

        PyTorch's tracker puts the unit's hooks on each of its modules. [norm, output] is then
        reduced and resharded after output's backward, and gathered again for norm's. fully_shard
        itself does not: the hook before backward stands behind its last module, and the hook after
        backward before its first.
        """
        whole, states = self._root_mod, {}
        for module in whole.modules():
            if isinstance(module, FSDPModule):
                states[module._get_fsdp_state()] = module
        single = [state._modules[0] for state in states if len(state._modules) == 1]
        self._root_mod = types.SimpleNamespace(modules=lambda: single, buffers=whole.buffers)
        super()._instrument_fsdp_module()
        self._root_mod = whole
        for state in states:
            if len(state._modules) > 1:
                self.instrument_group(state, state._modules[0])

    def instrument_group(self, state, first):
        state._pre_forward_hook_handle.remove()
        group = state._fsdp_param_group
        self._instrument_fsdp_sharded_params_grads(group)
        state._pre_forward_hook_handle = state._post_forward_hook_handle = (
            _register_group_forward_hooks(
                state._modules, self._fsdp_state_pre_forward(first, state._pre_forward),
                self._fsdp_state_post_forward(first, state._post_forward),
                state._modules_to_run_forward, state._cast_output_dtype))
        self._fsdp_mod_to_saved_methods[first] = _SavedFSDPMethods(
            group.pre_backward, group.post_backward)
        group.pre_backward = self._fsdp_param_group_pre_backward(first, group.pre_backward)
        group.post_backward = self._fsdp_param_group_post_backward(first, group.post_backward)

    def _fsdp_param_group_post_backward(self, module, post_backward):
        """Marks gradients as the parent does, but without keeping the last one alive.

        The parent's own function has it in a local variable while it calls fully_shard's, which
        frees gradients once they have been copied into the reduction's input.
        """
        group = module._get_fsdp_state()._fsdp_param_group
        before, after = _FSDPModState.BEF_POST_BW, _FSDPModState.AFT_POST_BW

        def record(state):
            snapshots = self.memory_tracking[module].snapshots
            snapshots.setdefault(state, []).append(self.get_tracker_snapshot())

        def mark(gradients, kind):
            for gradient in gradients:
                if gradient is not None:
                    self._update_and_maybe_create_winfos(gradient, kind)

        def inner(*arguments, **keywords):
            mark((each._unsharded_param.grad for each in group.fsdp_params),
                 _FSDPRefType.UNSHARDED_GRAD)
            record(before)
            self._fsdp_state = _FSDPState.POST_BW
            post_backward(*arguments, **keywords)
            mark((each.sharded_param.grad for each in group.fsdp_params),
                 _FSDPRefType.SHARDED_GRAD)
            record(after)

        return inner

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        self.operation = str(function)
        before = self._peak_mem.get(DEVICE, 0)
        result = super().__torch_dispatch__(function, kinds, args, kwargs)
        if self._peak_mem.get(DEVICE, 0) > before:
            self.peak_at = {"operation": self.operation, **self.place()}
        total = self._curr_mem_snap.get(DEVICE, {}).get("Total", 0)
        if self.awaited is not None and self.alive is None and total >= self.awaited:
            self.alive = self.living()
        return result

    def place(self):
        phase = ("optimizer" if self._in_opt else
                 "backward" if self._mod_tracker.is_bw else "forward")
        inner = max(self._mod_tracker.parents - {"Global"}, key=lambda name: name.count("."),
                    default="")
        return {"phase": phase, "module": clean(inner)}

    def _update_snap(self, kind, winfo, *arguments, **keywords):
        if kind.name in ("ADD", "SIZE"):
            place = self.place()
            self.made_by[id(winfo)] = f"{self.operation} {place['phase']} {place['module']}"
        super()._update_snap(kind, winfo, *arguments, **keywords)

    def living(self):
        """Bytes of living storages by category and by what made them."""
        rows = defaultdict(lambda: [0, 0])
        for winfo, storage in self._WINFO.values():
            if storage() is not None and winfo.mem_consumed:
                row = rows[winfo.reftype.value, self.made_by.get(id(winfo), "?")]
                row[0] += 1
                row[1] += winfo.mem_consumed
        return sorted(((*key, *row) for key, row in rows.items()), key=lambda row: -row[-1])


def clean(name):
    """A module's name as torchtitan spells it."""
    name = name.replace("._checkpoint_wrapped_module", "")
    return name.partition(".")[2] or "model"


def composition(snapshot):
    """The tracker's categories that are not empty, and their total."""
    return {getattr(key, "value", key): held for key, held in snapshot[DEVICE].items() if held}


def tables(tracker, layers):
    """A row per module that is a unit: the total at each of the tracker's moments.

    Of all blocks, the first, a middle and the last one. The tracker knows a unit of several modules
    by its first ([norm, output] is norm), and would give that one's peaks alone: they are left out.
    """
    chosen = {"layers.0", f"layers.{layers // 2}", f"layers.{layers - 1}"}
    rows = {}
    peaks = _FSDPModState.PEAK_FW, _FSDPModState.PEAK_BW
    for module, stats in tracker.memory_tracking.items():
        name = clean(stats.mod_fqn)
        if name.startswith("layers.") and name not in chosen:
            continue
        rows[name] = {}
        for state, snapshots in stats.snapshots.items():
            if state not in peaks or len(module._get_fsdp_state()._modules) == 1:
                rows[name][state.value] = snapshots[0][DEVICE]["Total"]
    return rows


@contextlib.contextmanager
def world_of(ranks):
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (ranks,))
    finally:
        dist.destroy_process_group()


def round_products(model, gathers):
    """What torchtitan's converter "float8" does, with filter_fqns = ["output"]."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    convert_to_float8_training(
        model, config=Float8LinearConfig(enable_fsdp_float8_all_gather=gathers),
        module_filter_fn=lambda module, name: name != "output")


def measure(run, shape):
    """The peak of the second step, what it consists of, and what is alive at it."""
    with world_of(run.world) as mesh, FakeTensorMode():
        with torch.device("meta"):
            model = Llama(shape, run.tokens, run.norm == "fused", run.lora)
        if run.float8 != "none":
            round_products(model, run.float8 == "gathered")
        checkpoint(model, run.checkpoint)
        shard(model, run, mesh)
        model.to_empty(device="cpu")
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad],
                                      lr=1e-3, fused=True)
        ids, labels = (torch.empty((run.batch, run.tokens), dtype=torch.int64) for _ in range(2))
        tracker = Tracker(model, optimizer)
        tracker.track_inputs((ids, labels))

        def step():
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
            del logits
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        with tracker:
            step()
            tracker.restart()
            step()
            peak = composition(tracker.get_tracker_snapshot("peak"))
            at, modules = tracker.peak_at, tables(tracker, shape.layers)
            tracker.restart()
            tracker.awaited = peak["Total"]
            step()
            again = composition(tracker.get_tracker_snapshot("peak"))
    gc.collect()
    if again != peak:
        raise SystemExit(f"{spell(run)}: step 3 peaks at {again}, but step 2 at {peak}")
    return {"peak": peak, "at": at, "modules": modules}, tracker.alive
