"""Prints what the CUDA compiler made of each kernel, and checks it: make cuda-kernels.

    kernel_table.py [--arch sm_90]… [--markdown] [--families] [--tools FOLDER] [--nvcc FILE]
                    [FILE.cu …]

It needs nvcc, but no card. One line per kernel: registers, bytes on the stack, bytes spilled and
loaded again, bytes of shared memory that are static and that the launch adds, the warps that a
multiprocessor can have of it, the bits of the widest load and store of global memory, and
attention's instructions per tile. --families prints one line for all instances of a template. The
table is for the first --arch, and the rules of kernel_rules.py are checked for each: the exit
status is 1 if one is broken. Without --arch they are sm_90 and the others that the build compiles
for. What the machine code shows needs cuobjdump or nvdisasm, in PATH, beside nvcc or in --tools.
CUDA's full toolkit has both; pip install nvidia-cuda-nvdisasm, or the same with cuobjdump, puts
one into nvidia/cu13/bin, which is found if this Python can import it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kernel_rules
from compiled_kernels import Kernel, kernels_of

ROOT = Path(__file__).resolve().parents[2]
TABLE_ARCH = "sm_90"  # of the table in docs/gpu.md
_COLUMNS = ("file", "kernel", "registers", "stack", "spilled", "shared", "dynamic", "warps", "load",
            "store", "tile")


class CompileError(Exception):
    """A tool failed; the message is what it printed."""


def options_of_build(text: str) -> list[str]:
    """The options that FsdpCuda.cmake passes to nvcc: set(FSDP_NVCC_OPTIONS …)."""
    match = re.search(r"set\(FSDP_NVCC_OPTIONS ([^)]*)\)", text)
    if match is None:
        raise CompileError("common/cmake/FsdpCuda.cmake does not set FSDP_NVCC_OPTIONS")
    return shlex.split(match[1])


def architectures_of_build(text: str) -> list[str]:
    """What FsdpCuda.cmake compiles for, with that of the table first."""
    match = re.search(r'set\(CMAKE_CUDA_ARCHITECTURES "([^"]*)"', text)
    if match is None:
        raise CompileError("common/cmake/FsdpCuda.cmake does not set CMAKE_CUDA_ARCHITECTURES")
    found = [f"sm_{number}" for number in re.findall(r"\d+", match[1])]
    return sorted(found, key=lambda arch: arch != TABLE_ARCH)


def packaged_tools() -> list[Path]:
    """Where packages of PyPI put NVIDIA's programs, for the Python that runs this."""
    return [bin for folder in sys.path for bin in sorted(Path(folder, "nvidia").glob("cu*/bin"))]


def tool(name: str, folders: list[Path]) -> str | None:
    """A program in one of the folders, or in PATH."""
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    return shutil.which(name)


def disassembler(folders: list[Path]) -> list[str] | None:
    """The command that prints a cubin's machine code; none if no program for it is installed."""
    for name, option in (("nvdisasm", "-c"), ("cuobjdump", "-sass")):
        found = tool(name, [*folders, *packaged_tools()])
        if found:
            return [found, option]
    return None


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def known(architectures: list[str], nvcc: str) -> list[str]:
    """Those that this nvcc knows; it prints what it leaves out."""
    codes = output_of([nvcc, "--list-gpu-code"]).split()
    for arch in architectures:
        if arch not in codes:
            print(f"skipped: {arch}, which this nvcc does not know")
    if not set(architectures) & set(codes):
        raise CompileError("nothing is compiled: name a card by --arch")
    return [arch for arch in architectures if arch in codes]


def compiled(source: Path, nvcc: list[str], disassemble: list[str] | None) -> list[Kernel]:
    """The kernels of a file, compiled as the build compiles them."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = f"{folder}/{source.stem}.cubin"
        report = output_of([*nvcc, "-Xptxas", "-v", "-keep", "-keep-dir", folder, "-cubin",
                            str(source), "-o", cubin])
        ptx = Path(folder, f"{source.stem}.ptx").read_text(encoding="utf-8")
        sass = output_of([*disassemble, cubin]) if disassemble else None
    return kernels_of(source.name, report, ptx, sass)


def compiled_for(arch: str, sources: list[Path], nvcc: list[str],
                 disassemble: list[str] | None) -> list[Kernel]:
    """The kernels of all files, in their order."""
    command = [*nvcc, f"-arch={arch}", "-I", str(ROOT / "common")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda source: compiled(source, command, disassemble), sources)
        return [kernel for of_file in found for kernel in of_file]


def _range(values: list[int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    least, most = min(known), max(known)
    return str(least) if least == most else f"{least} to {most}"


def _each(values: list[int | None]) -> str:
    known = sorted({value for value in values if value is not None})
    return ", ".join(map(str, known)) or "-"


def row(kernels: list[Kernel], name: str, arch: str) -> tuple[str, ...]:
    """The line of one kernel, or of several under one name."""
    return (kernels[0].file, name, _range([k.registers for k in kernels]),
            _range([k.stack for k in kernels]),
            _range([k.spill_stores + k.spill_loads for k in kernels]),
            _range([k.shared for k in kernels]), _range([k.dynamic for k in kernels]),
            _range([kernel_rules.warps(k, arch) for k in kernels]),
            _each([k.load for k in kernels]), _each([k.store for k in kernels]),
            _range([kernel_rules.tile(k) for k in kernels]))


def rows(kernels: list[Kernel], families: bool, arch: str) -> list[tuple[str, ...]]:
    if not families:
        return [row([k], str(k).split(" ", 1)[1], arch) for k in kernels]
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.file, kernel.name), []).append(kernel)
    return [row(group, f"{name} × {len(group)}" if len(group) > 1 else name, arch)
            for (_, name), group in groups.items()]


def table(lines: list[tuple[str, ...]], markdown: bool) -> str:
    if markdown:
        text = [_COLUMNS, ("---",) * 2 + ("--:",) * (len(_COLUMNS) - 2), *lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in text)
    text = [_COLUMNS, *lines]
    wide = [max(len(line[c]) for line in text) for c in range(len(_COLUMNS))]
    return "\n".join("  ".join(cell.ljust(w) if c < 2 else cell.rjust(w)
                               for c, (cell, w) in enumerate(zip(line, wide))) for line in text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path, metavar="FILE.cu",
                        help="default: every file of kernels in common/")
    parser.add_argument("--arch", action="append", metavar=TABLE_ARCH,
                        help="a card to compile for; the table is for the first")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--families", action="store_true", help="one line per kernel template")
    parser.add_argument("--nvcc", help="default: that of PATH, or of /usr/local/cuda/bin")
    parser.add_argument("--tools", type=Path, help="a folder with cuobjdump or nvdisasm")
    options = parser.parse_args()
    nvcc = options.nvcc or tool("nvcc", []) or tool("nvcc", [Path("/usr/local/cuda/bin")])
    if nvcc is None:
        print("skipped: nvcc is not installed, so there is no table of kernels")
        return 0
    if tool("c++filt", []) is None:
        print("skipped: c++filt, which belongs to g++, is not installed, so kernels have no names")
        return 0
    disassemble = disassembler([*([options.tools] if options.tools else []), Path(nvcc).parent])
    sources = options.sources or sorted(ROOT.glob("common/*/cuda/*.cu"))
    try:
        build = (ROOT / "common/cmake/FsdpCuda.cmake").read_text(encoding="utf-8")
        flags = options_of_build(build)
        architectures = options.arch or known(architectures_of_build(build), nvcc)
        broken = []
        for arch in architectures:
            kernels = compiled_for(arch, sources, [nvcc, "-std=c++20", *flags], disassemble)
            if arch == architectures[0]:
                lines = rows(kernels, options.families, arch)
                print(table(lines, options.markdown), end="\n\n")
            print(f"{len(kernels)} kernels for {arch}, compiled with {shlex.join(flags)}")
            faults = kernel_rules.broken(kernels, arch, is_selection=bool(options.sources))
            broken += [f"{arch} {fault}" for fault in faults]
    except (CompileError, OSError) as error:
        print(f"kernel_table: {error}", file=sys.stderr)
        return 2
    if disassemble is None:
        print("skipped: what the machine code shows, for there is no cuobjdump and no nvdisasm: "
              "pip install nvidia-cuda-nvdisasm, or name a folder that has one by --tools")
    for line in broken:
        print(f"broken: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
