"""Where ranks compute: what differs when a runner is judged with DEVICE=cuda.

Cases, judge and messages stay the same. The build links the runner and the judge with CUDA or, on a
machine without a card, with the stand-in for one: the judge too, since what it compares with must be
computed on the same device.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import manifest

DEVICES = ("cpu", "cuda")
# Of processor time a run: the stand-in looks at every load and store.
SECONDS = "40"
# How its streams run: nothing before something waits for it, so a forgotten wait shows every time.
PLAN = "lazy"
SCRIPT = manifest.ROOT / "common" / "scripts" / "cuda_card.sh"


class DeviceError(Exception):
    """The tests that were asked for do not run on this device."""


def has_card() -> bool:
    """Whether a card, nvcc and NCCL are here. With CUDA_ON_HOST set the stand-in is wanted in any case."""
    if os.environ.get("CUDA_ON_HOST"):
        return False
    found = subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, check=False)
    return found.stdout.strip() == "yes"


def preset(device: str) -> str:
    """The preset whose programs compute on `device`: its build folder has the same name."""
    if device == "cpu":
        return "grade"
    return "grade-cuda" if has_card() else "grade-cuda-host"


def environment(device: str) -> dict[str, str]:
    """What a judge must be told of the device; nothing if it is the cpu."""
    if device == "cpu":
        return {}
    return {"FSDP_DEVICE": device, "CUDA_ON_HOST": os.environ.get("CUDA_ON_HOST") or PLAN,
            "FSDP_SECONDS": os.environ.get("FSDP_SECONDS") or SECONDS}
