"""What has to hold of every compiled kernel. Each rule lists its exceptions, and why.

A kernel is named as the table names it: "copy copy_kernel<int, long>". Exceptions name a kernel by
the first letters of that, so that one line holds for all template arguments.
"""

from __future__ import annotations

import re

from compiled_kernels import Kernel

# Files whose kernels equal the CPU's within a tolerance (docs/gpu.md). They may call what CUDA
# computes in its own way. All other files, and any that is added, give the CPU's bits.
WITHIN_TOLERANCE = {
    "attention_plain.cu": r"fma\.r[nm]\.f32|ex2\.approx\.ftz\.f32",  # fmaf() and expf()
    "attention_tensor_cores.cu": r"fma\.r[nm]\.f32|ex2\.approx\.ftz\.f32|mma\.sync.*",
    "attention_tensor_cores_backward.cu": r"fma\.r[nm]\.f32|ex2\.approx\.ftz\.f32|mma\.sync.*",
    "cross_entropy.cu": r"fma\.r[nm]\.f32|ex2\.approx\.ftz\.f32",  # expf() and logf()
    "swiglu.cu": r"fma\.r[nm]\.f32|ex2\.approx\.ftz\.f32",  # expf()
    "rms_norm.cu": r"",  # its order of additions is its own, but nothing else
}
# What a kernel of the other files may do, because its source says so and the CPU does it too.
EXPLICIT = {
    "elementwise map_kernel<%, Tanh>": r"fma\.rn\.f64",  # std::fma of fixed_formulas.h
}
# No kernel may spill.
MAY_SPILL: dict[str, str] = {}
# Kernels that do not load or do not store several elements by one instruction.
NARROW_LOADS = {
    "attention_tensor_cores forward_kernel<true": "cp.async copies 16 bytes past the registers",
    "attention_tensor_cores forward_kernel<false": "for addresses that fit no vector",
    "attention_tensor_cores_backward key_kernel<true": "cp.async, as in the forward",
    "attention_tensor_cores_backward query_kernel<true": "cp.async, as in the forward",
    "copy copy_strided_kernel": "elements have strides",
    "copy copy_kernel<int, long>": "of each element only the lower half is loaded",
    "copy fill_kernel": "it loads nothing",
    "cross_entropy loss_kernel": "it reads one number per thread and row",
    "cross_entropy count_kernel": "it counts one target per thread and row",
    "elementwise add_row_kernel<1": "for addresses that fit no vector",
    "init draw_kernel": "it loads nothing",
    "reductions sum_kernel": "the CPU's lanes are neighbors, and a thread has one",
    "reductions sum_rows_kernel": "a warp has 32 neighboring columns",
    "rms_norm sum_parts_kernel": "a warp has 32 neighboring columns",
    "scalar fill_kernel": "it loads one value",
}
NARROW_STORES = {
    "attention_tensor_cores forward_kernel<false": "for addresses that fit no vector",
    "attention_tensor_cores_backward key_kernel<false": "for addresses that fit no vector",
    "attention_tensor_cores_backward query_kernel<false": "for addresses that fit no vector",
    "copy copy_strided_kernel": "elements have strides",
    "copy equal_bits_kernel": "its result is one number",
    "copy all_finite_kernel": "its result is one number",
    "cross_entropy loss_kernel": "its result is one number",
    "cross_entropy count_kernel": "its result is two numbers",
    "elementwise add_row_kernel<1": "for addresses that fit no vector",
    "exact_norm add_squares_kernel": "it adds to counters",
    "reductions sum_kernel": "its result is one number",
    "reductions sum_rows_kernel": "a thread has one column",
    "rms_norm sum_parts_kernel": "a thread has one column",
    "rms_norm weight_kernel": "a thread has one column",
}
# The most instructions per tile(), for sm_90: heads of 32, 64, 96 and 128.
MOST_PER_TILE = {
    "attention_tensor_cores forward_kernel<true, 32": 300,
    "attention_tensor_cores forward_kernel<true, 64": 400,
    "attention_tensor_cores forward_kernel<true, 96": 500,
    "attention_tensor_cores forward_kernel<true, 128": 600,
    "attention_tensor_cores_backward query_kernel<true, 32": 255,
    "attention_tensor_cores_backward query_kernel<true, 64": 321,
    "attention_tensor_cores_backward query_kernel<true, 96": 485,
    "attention_tensor_cores_backward query_kernel<true, 128": 530,
    "attention_tensor_cores_backward key_kernel<true, 32": 343,
    "attention_tensor_cores_backward key_kernel<true, 64": 471,
    "attention_tensor_cores_backward key_kernel<true, 96": 660,
    "attention_tensor_cores_backward key_kernel<true, 128": 747,
}
# Of a multiprocessor, by the CUDA Programming Guide: KiB of shared memory, warps, blocks. A block can
# have all of that memory but the KiB which CUDA keeps per block.
PROCESSORS = {"sm_80": (164, 64, 32), "sm_86": (100, 48, 16), "sm_89": (100, 48, 24),
              "sm_90": (228, 64, 32), "sm_100": (228, 64, 32), "sm_120": (100, 48, 24)}
_REGISTERS = 64 * 1024  # of each
_PRODUCTS = {"forward_kernel": 2, "query_kernel": 3, "key_kernel": 4}  # of a tile and a head's rows
_NBYTES = {"half": 2, "bfloat16": 2, "unsigned short": 2, "float": 4, "int": 4, "unsigned int": 4,
           "long": 8, "unsigned long": 8}


def _names(pattern: str, kernel: Kernel) -> bool:
    """Whether an exception is for this kernel; % stands for any one argument."""
    return re.match(re.escape(pattern).replace("%", "[^,<>]+"), str(kernel)) is not None


def _is_listed(kernel: Kernel, exceptions: dict[str, str]) -> bool:
    return any(_names(pattern, kernel) for pattern in exceptions)


def tile(kernel: Kernel) -> int | None:
    """Attention's instructions per warp for 16 rows and 64 columns of scores, off the diagonal."""
    machine = kernel.machine
    if machine is None or machine.products == 0 or kernel.name not in _PRODUCTS:
        return None
    products = _PRODUCTS[kernel.name] * int(kernel.arguments[1]) // 2  # each is 16 x 8 x 16
    return round(machine.loop / machine.products * products)


def warps(kernel: Kernel, arch: str) -> int | None:
    """Warps that a multiprocessor can have at once; none where that is unknown."""
    if arch not in PROCESSORS or kernel.threads == 0:
        return None
    kibibytes, most_warps, most_blocks = PROCESSORS[arch]
    of_block = -(-kernel.threads // 32)
    of_warp = -(-kernel.registers * 32 // 256) * 256  # they are given out so, to four warps at once
    by_registers = _REGISTERS // max(of_warp, 1) // 4 * 4
    nbytes = -(-(kernel.shared + kernel.dynamic + 1024) // 128) * 128
    return of_block * min(most_blocks, most_warps // of_block, by_registers // of_block,
                          kibibytes * 1024 // nbytes)


def oversized(kernels: list[Kernel], arch: str) -> list[str]:
    """Kernels whose blocks need more than a multiprocessor has."""
    return [f"{k}: no block of {k.threads} threads fits a multiprocessor, with {k.registers} "
            f"registers and {k.shared + k.dynamic} bytes of shared memory"
            for k in kernels if warps(k, arch) == 0]


def unnoted(kernels: list[Kernel]) -> list[str]:
    """Kernels that do not say how much dynamic shared memory they are launched with."""
    return [f"{k}: uses dynamic shared memory, and does not call note_shared_memory()"
            for k in kernels if not k.is_noted]


def generic(kernels: list[Kernel]) -> list[str]:
    """Kernels that leave it to the card to find out which memory an address belongs to."""
    return [f"{k}: {k.machine.generic} loads and stores of memory that nvcc does not know (LD, ST)"
            for k in kernels if k.machine and k.machine.generic]


def unassembled(kernels: list[Kernel]) -> list[str]:
    """Kernels that use tensor cores, and load no operand of them by ldmatrix."""
    return [f"{k}: uses tensor cores, but has no ldmatrix (LDSM)" for k in kernels
            if any(re.match(r"w?g?mma\.", operation) for operation in k.operations)
            and k.machine and k.machine.matrix_loads == 0]


def slow(kernels: list[Kernel], arch: str) -> list[str]:
    """Kernels of attention with more instructions per tile than they are known to need."""
    if arch != "sm_90":
        return []
    found = []
    for kernel in kernels:
        most = [most for name, most in MOST_PER_TILE.items() if _names(f"{name},", kernel)]
        count = tile(kernel)
        if most and count is not None and count > most[0]:
            found.append(f"{kernel}: {count} instructions for a tile, but {most[0]} are enough")
    return found


def spilling(kernels: list[Kernel]) -> list[str]:
    """Kernels that move registers to memory, or have an array there."""
    return [f"{k}: {k.spill_stores} bytes of spill stores, {k.spill_loads} of spill loads, and "
            f"{k.stack} bytes on the stack" for k in kernels
            if (k.spill_stores or k.spill_loads or k.stack) and not _is_listed(k, MAY_SPILL)]


def fault(operation: str) -> str | None:
    """What is wrong with an operation of PTX, if the CPU's bits are wanted."""
    first, *rest = operation.split(".")
    if "ftz" in rest:
        return "sets subnormal numbers to zero"
    if "approx" in rest or "full" in rest:
        return "is not rounded correctly"
    if first in ("fma", "mad", "wmma", "mma", "wgmma"):
        return "rounds once for two operations"
    # Without a word about its rounding, ptxas may fuse it with its neighbor.
    if first in ("add", "sub", "mul", "div", "sqrt", "rcp") and "rn" not in rest:
        return "does not say how it rounds"
    return None


def inexact(kernels: list[Kernel]) -> list[str]:
    """Operations that -fmad=false, and no --use_fast_math, rule out."""
    found = []
    for kernel in kernels:
        allowed = [pattern for name, pattern in EXPLICIT.items() if _names(name, kernel)]
        allowed += filter(None, [WITHIN_TOLERANCE.get(kernel.file, "")])
        for operation, count in sorted(kernel.operations.items()):
            why = fault(operation)
            if why and not any(re.fullmatch(pattern, operation) for pattern in allowed):
                found.append(f"{kernel}: {count} × {operation} in its PTX, which {why}")
    return found


def expected_width(kernel: Kernel, is_store: bool) -> int:
    """The bits of four elements, at most 128: 64 for 16-bit floats."""
    types = [argument for argument in kernel.arguments if argument in _NBYTES]
    if not types:
        return 128
    to_from = kernel.name == "copy_kernel" and not is_store
    return min(128, 4 * 8 * _NBYTES[types[1] if to_from else types[0]])


def narrow(kernels: list[Kernel]) -> list[str]:
    """Kernels without one load, or one store, of four elements; none where widths are unknown."""
    found = []
    for kernel in kernels:
        for word, width, exceptions in (("load", kernel.load, NARROW_LOADS),
                                        ("store", kernel.store, NARROW_STORES)):
            wanted = expected_width(kernel, word == "store")
            if width is not None and width < wanted and not _is_listed(kernel, exceptions):
                found.append(f"{kernel}: its widest {word} has {width} bits, but {wanted} are "
                             "possible")
    return found


def stale(kernels: list[Kernel], is_selection: bool) -> list[str]:
    """Exceptions for kernels and files that do not exist; none if only some files were compiled."""
    if is_selection:
        return []
    lists = {**EXPLICIT, **MAY_SPILL, **NARROW_LOADS, **NARROW_STORES, **MOST_PER_TILE}
    unused = [name for name in lists if not any(_names(name, kernel) for kernel in kernels)]
    unused += sorted(WITHIN_TOLERANCE.keys() - {kernel.file for kernel in kernels})
    return [f"kernel_rules.py has an exception for {name}, which does not exist" for name in unused]


def broken(kernels: list[Kernel], arch: str, is_selection: bool) -> list[str]:
    """What breaks any of the rules, in all kernels of one architecture or in some files' only."""
    return [*spilling(kernels), *inexact(kernels), *oversized(kernels, arch), *unnoted(kernels),
            *generic(kernels), *unassembled(kernels), *narrow(kernels), *slow(kernels, arch),
            *stale(kernels, is_selection)]
