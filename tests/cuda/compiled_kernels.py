"""What the CUDA compiler made of each kernel, read from the outputs of its tools.

nvcc leaves three things for every file of kernels: PTX, which says how each operation rounds; the
report of `ptxas -v`, which says what a kernel needs; and a cubin, whose SASS says how it accesses
memory. The functions here read texts and run nothing but c++filt.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class MachineCode:
    """What the SASS of a kernel shows."""

    generic: int = 0  # accesses whose memory is only known when they run
    matrix_loads: int = 0  # ldmatrix
    loop: int = 0  # instructions of one turn of the loop of its products, without masking
    products: int = 0  # of tensor cores, in that turn


@dataclass
class Kernel:
    """One kernel of one file. Widths are in bits: 0 for no access, None for unknown."""

    file: str  # without its folder: copy.cu
    name: str  # copy_kernel
    arguments: tuple[str, ...] = ()  # of its template: half, float
    registers: int = 0
    stack: int = 0  # bytes, like the three below
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0  # static shared memory
    dynamic: int = 0  # dynamic shared memory, at most
    is_noted: bool = True  # that memory, by note_shared_memory()
    threads: int = 0  # of a block, at most
    load: int | None = None
    store: int | None = None
    machine: MachineCode | None = None
    operations: Counter[str] = field(default_factory=Counter)  # on floats, of its PTX

    def __str__(self) -> str:
        arguments = f"<{', '.join(self.arguments)}>" if self.arguments else ""
        return f"{self.file.removesuffix('.cu')} {self.name}{arguments}"


def resources(report: str) -> dict[str, dict[str, int]]:
    """The numbers in what `ptxas -v` prints, by a kernel's mangled name."""
    found: dict[str, dict[str, int]] = {}
    patterns = {"stack": r"(\d+) bytes stack frame", "spill_stores": r"(\d+) bytes spill stores",
                "spill_loads": r"(\d+) bytes spill loads", "registers": r"Used (\d+) registers",
                "shared": r"(\d+) bytes smem"}
    for part in re.split(r"Compiling entry function '", report)[1:]:
        numbers = {}
        for key, pattern in patterns.items():
            match = re.search(pattern, part)
            numbers[key] = int(match[1]) if match else 0
        found[part.split("'", 1)[0]] = numbers
    return found


def operations(ptx: str) -> dict[str, Counter[str]]:
    """How often each operation on floats stands in a kernel or function of a PTX file."""
    found: dict[str, Counter[str]] = {}
    parts = re.split(r"^[ \t]*(?:\.\w+[ \t]+)*\.(?:entry|func)\b", ptx, flags=re.M)
    for part in parts[1:]:
        name = re.match(r"\s*(?:\([^)]*\)\s*)?([\w$]+)", part)
        if name is None:
            continue
        opcodes = re.findall(r"(?:^|[;{}])[ \t]*(?:@!?%\w+[ \t]+)?([a-z]\w*(?:\.[\w:]+)+)", part,
                             flags=re.M)
        floats = (code for code in opcodes if re.search(r"\.(?:b?f16(?:x2)?|tf32|f32|f64)\b", code)
                  and not re.match(r"(?:ld|st|mov|selp|setp|neg|abs)\.(?!.*ftz)", code))
        found.setdefault(name[1], Counter()).update(floats)
    return found


def launches(ptx: str) -> dict[str, dict[str, Any]]:
    """The threads of a block and the dynamic shared memory, as the PTX of each kernel says them."""
    found: dict[str, dict[str, int]] = {}
    for part in re.split(r"^[ \t]*(?:\.\w+[ \t]+)*\.entry\b", ptx, flags=re.M)[1:]:
        name = re.match(r"\s*([\w$]+)", part)
        threads = re.search(r"^\.(?:maxntid|reqntid)\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?", part,
                            flags=re.M)
        dynamic = re.search(r"// dynamic shared memory: (\d+)", part)
        is_named = re.search(r"^(?!.*\.extern).*\bdynamic_shared_memory\b", part, flags=re.M)
        if name is not None:
            sizes = [int(size) for size in threads.groups(default="1")] if threads else [0]
            found[name[1]] = {"threads": math.prod(sizes),
                              "dynamic": int(dynamic[1]) if dynamic else 0,
                              "is_noted": bool(dynamic) or not is_named}
    return found


def widths(sass: str) -> dict[str, tuple[int, int]]:
    """The widest global load and store of each kernel, in bits: cuobjdump -sass, nvdisasm -c.

    Accesses whose memory is only known when they run (LD, ST) are not counted.
    """
    found: dict[str, tuple[int, int]] = {}
    for part in re.split(r"^\s*(?:Function : |\.section\s+\.text\.)", sass, flags=re.M)[1:]:
        name = re.match(r"[\w$]+", part)
        if name is None:
            continue
        widest = {"LDG": 0, "STG": 0}
        for kind, suffixes in re.findall(r"\b(LDG|STG)((?:\.\w+)*)\s", part):
            size = re.search(r"\.(?:[US]?(8|16)|(64|128|256))(?=\.|$)", suffixes)
            bits = int(size[1] or size[2]) if size else 32
            widest[kind] = max(widest[kind], bits)
        found[name[0]] = (widest["LDG"], widest["STG"])
    return found


_WORK = re.compile(r"HMMA|LD|ST|ATOM|RED|MUFU|SHFL|BAR|F(?:FMA|MUL|ADD|MNMX)\b")


def _turn(code: list[tuple[int, str]], jumps: list[tuple[int, int]]) -> tuple[int, int]:
    """The instructions of one turn of the loop that has the most products, and its products.

    What a branch may skip and only selects floats is left out: it masks tiles on the diagonal.
    """
    best = (0, 0)
    for end, begin in sorted(jumps, key=lambda jump: jump[0] - jump[1]):
        inside = [(at, op) for at, op in code if begin <= at <= end]
        products = sum(op.startswith("HMMA") for _, op in inside)
        if begin >= end or products <= best[1]:
            continue
        masks: set[int] = set()
        for at, to in jumps:
            part = [(a, op) for a, op in inside if at < a < to]
            if begin <= at < to <= end and any(op.startswith("FSEL") for _, op in part) \
                    and not any(_WORK.match(op) for _, op in part):
                masks.update(a for a, _ in part)
        best = (len(inside) - len(masks), products)
    return best


def machine_code(sass: str) -> dict[str, MachineCode]:
    """What the instructions of each kernel show: cuobjdump -sass, nvdisasm -c."""
    found: dict[str, MachineCode] = {}
    for part in re.split(r"^\s*(?:Function : |\.section\s+\.text\.)", sass, flags=re.M)[1:]:
        name = re.match(r"[\w$]+", part)
        if name is None:
            continue
        code: list[tuple[int, str]] = []
        labels: dict[str, int] = {}
        branches: list[tuple[int, str]] = []
        pending: list[str] = []
        for line in part.splitlines():
            label = re.match(r"\s*(\.L_x_\d+):", line)
            if label:
                pending.append(label[1])
            match = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);",
                             line)
            if match is None or (match[2] or "").startswith("@!PT"):  # that one never runs
                continue
            at = int(match[1], 16)
            labels.update((each, at) for each in pending)
            pending = []
            code.append((at, match[3]))
            target = re.search(r"(\.L_x_\d+)|\b(0x[0-9a-f]+)\b", match[4])
            if match[3].startswith("BRA") and target:
                branches.append((at, target[0]))
        jumps = [(at, labels.get(to, int(to, 16) if to.startswith("0x") else at))
                 for at, to in branches]
        loop, products = _turn(code, jumps)
        found[name[0]] = MachineCode(
            generic=sum(bool(re.match(r"(?:LD|ST|ATOM)(?:\.|$)", op)) for _, op in code),
            matrix_loads=sum(op.startswith("LDSM") for _, op in code), loop=loop, products=products)
    return found


def demangled(names: list[str]) -> list[str]:
    """What c++filt makes of the names. @throws OSError if it is not installed."""
    done = subprocess.run(["c++filt"], input="\n".join(names) + "\n", capture_output=True,
                          text=True, check=True)
    return done.stdout.splitlines()


def split_name(full: str) -> tuple[str, tuple[str, ...]]:
    """copy_kernel and (half, float), of a demangled kernel with namespaces and parameters."""
    short = full.replace("(anonymous namespace)::", "").replace("__nv_bfloat16", "bfloat16")
    short = re.sub(r"\(([\w ]+)\)(?=\d)", "", short.replace("__half", "half"))  # a cast: (int)4
    short = re.sub(r"\b(?:\w+::)+", "", short).replace("> >", ">>")
    depth, begin, at = 0, 0, 0
    for at, letter in enumerate(short):  # to the bracket of its parameters
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == " " and depth == 0:
            begin = at + 1  # its result is before it
        if letter == "(" and depth == 0:
            break
    else:
        at += 1
    name, _, arguments = short[begin:at].partition("<")
    pieces: list[str] = []
    for piece in arguments.removesuffix(">").split(", "):
        if pieces and pieces[-1].count("<") > pieces[-1].count(">"):
            pieces[-1] += f", {piece}"
        elif piece:
            pieces.append(piece)
    return name, tuple(pieces)


def kernels_of(file: str, report: str, ptx: str, sass: str | None) -> list[Kernel]:
    """The kernels of one file, in alphabetical order, and functions that are not inlined."""
    needed, rounded, launched = resources(report), operations(ptx), launches(ptx)
    accessed = widths(sass) if sass is not None else {}
    machine = machine_code(sass) if sass is not None else {}
    names = sorted(needed.keys() | rounded.keys())
    found = []
    for mangled, full in zip(names, demangled(names) if names else []):
        kernel = Kernel(file, *split_name(full), **needed.get(mangled, {}),
                        **launched.get(mangled, {}))
        kernel.operations = rounded.get(mangled, Counter())
        kernel.machine = machine.get(mangled)
        if mangled in accessed:
            kernel.load, kernel.store = accessed[mangled]
        found.append(kernel)
    return sorted(found, key=str)
