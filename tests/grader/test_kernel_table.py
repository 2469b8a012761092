"""Tests of tests/cuda/kernel_table.py, on what CUDA 13.0 printed for small kernels, without nvcc."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cuda"))

import compiled_kernels  # noqa: E402
import kernel_rules  # noqa: E402
import kernel_table  # noqa: E402
from compiled_kernels import Kernel, MachineCode  # noqa: E402

_SCOPE = "_ZN4fsdp4cuda41_GLOBAL__N__f3d4779c_9_sample_cu_25212a1a"
PLAIN, MAP = f"{_SCOPE}5plainEPf", f"{_SCOPE}10map_kernelILi4EfNS1_3SumIfEEEEvPT0_PK6float4T1_i"
REPORT = f"""ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{MAP}' for 'sm_90'
ptxas info    : Function properties for {MAP}
    24 bytes stack frame, 20 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
ptxas info    : Compile time = 6.338 ms
ptxas info    : Compiling entry function '{PLAIN}' for 'sm_90'
ptxas info    : Function properties for {PLAIN}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 26.212 ms
"""
PTX = f""".version 9.0
.entry {PLAIN}(
\t.param .u64 {PLAIN}_param_0
)
{{
\t.reg .f32 \t%f<4>;
\tld.global.f32 \t%f1, [%rd4];
\t@%p1 st.shared.f32 \t[%r4], %f1;
\t@!%p1 div.rn.f32 \t%f3, %f2, 0f40466666;
\t{{  cvt.rn.f16.f32 %rs1, %f3;}}
$L__BB0_2:
\tsub.s32 \t%r6, %r5, %r1;
\tret;

}}
.visible .entry {MAP}(
\t.param .u64 {MAP}_param_0
)
.maxntid 256, 1, 1
{{
\tld.global.v4.f32 \t{{%f1, %f2, %f3, %f4}}, [%rd6];
\tfma.rn.f32 \t%f9, %f1, %f2, %f3;
\tfma.rn.f32 \t%f9, %f1, %f2, %f3;
}}
"""
CUOBJDUMP = f"""
\t\tFunction : {MAP}
        /*0060*/                   LDG.E.128 R12, desc[UR4][R2.64] ;      /* 0x00000004020c7981 */
        /*0070*/              @!P0 LDG.E.U16 R4, desc[UR4][R2.64+0x4] ;   /* 0x0000000402047981 */
        /*00b0*/                   STG.E.64 desc[UR4][R4.64], R12 ;       /* 0x0000000c04007986 */

\t\tFunction : {PLAIN}
        /*0050*/                   LDG.E.CONSTANT R4, desc[UR6][R2.64] ;  /* 0x0000000602047981 */
        /*0060*/                   LD.E.64 R4, [R2.64] ;                  /* 0x0000000602047981 */
"""
# Two loops: the second has the products, a mask of two instructions that a branch skips, and one that
# never runs. This is as cuobjdump prints it, and what follows as nvdisasm does.
LOOPS = f"""
\t\tFunction : {MAP}
        /*0010*/                   LDS R4, [R2] ;
        /*0020*/               @P0 BRA 0x10 ;
        /*0030*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0040*/              @!PT LDS RZ, [RZ] ;
        /*0050*/               @P1 BRA 0x80 ;
        /*0060*/                   FSEL R4, R4, -INF , P2 ;
        /*0070*/                   ISETP.GE.AND P2, PT, R8, 0x9, PT ;
        /*0080*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0090*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*00a0*/               @P0 BRA 0x30 ;
\t\tFunction : {PLAIN}
        /*0010*/                   LD.E.64 R4, [R2.64] ;
        /*0020*/                   ATOM.E.ADD.STRONG.GPU PT, R3, desc[UR4][R4.64], R3 ;
        /*0030*/                   ST.E [R2.64], R4 ;
        /*0040*/                   LDG.E R4, desc[UR6][R2.64] ;
"""
LABELS = f"""\t.section\t.text.{MAP},"ax",@progbits
.text.{MAP}:
.L_x_0:
        /*0010*/                   MOV R1, c[0x0][0x28] ;
        /*0020*/                   HMMA.16816.F32 R4, R4, R8, R4 ;
        /*0030*/               @P0 BRA `(.L_x_0) ;
"""
NVDISASM = f"""\t.section\t.text.{MAP},"ax",@progbits
.text.{MAP}:
        /*0060*/                   LDG.E.128 R12, desc[UR4][R2.64] ;
        /*00b0*/                   STG.E.64 desc[UR4][R4.64], R12 ;
\t.section\t.text.{PLAIN},"ax",@progbits
        /*0050*/                   LDG.E R4, desc[UR6][R2.64] ;
"""


class Outputs(unittest.TestCase):
    def test_what_a_kernel_needs(self) -> None:
        self.assertEqual(compiled_kernels.resources(REPORT), {
            MAP: {"stack": 24, "spill_stores": 20, "spill_loads": 16, "registers": 18, "shared": 0},
            PLAIN: {"stack": 0, "spill_stores": 0, "spill_loads": 0, "registers": 14,
                    "shared": 1024}})

    def test_how_it_rounds(self) -> None:
        self.assertEqual(compiled_kernels.operations(PTX), {
            PLAIN: Counter({"div.rn.f32": 1, "cvt.rn.f16.f32": 1}),
            MAP: Counter({"fma.rn.f32": 2})})

    def test_how_it_accesses_memory(self) -> None:
        self.assertEqual(compiled_kernels.widths(CUOBJDUMP), {MAP: (128, 64), PLAIN: (32, 0)})
        self.assertEqual(compiled_kernels.widths(NVDISASM), {MAP: (128, 64), PLAIN: (32, 0)})

    def test_what_a_launch_needs(self) -> None:
        noted = PTX.replace("\tfma.rn.f32", "\t// begin inline asm\n\t// dynamic shared memory: 512"
                            "\n\t// end inline asm\n\tfma.rn.f32", 1)
        self.assertEqual(compiled_kernels.launches(noted), {
            PLAIN: {"threads": 0, "dynamic": 0, "is_noted": True},
            MAP: {"threads": 256, "dynamic": 512, "is_noted": True}})
        for line, is_noted in ((".extern .shared .align 16 .b8 dynamic_shared_memory[];", True),
                               ("\tmov.u32 %r1, dynamic_shared_memory;", False)):
            silent = compiled_kernels.launches(PTX.replace("\tret;", f"{line}\n\tret;"))[PLAIN]
            self.assertEqual(silent["is_noted"], is_noted)
            self.assertEqual(len(kernel_rules.unnoted([kernel(is_noted=is_noted)])), not is_noted)

    def test_what_the_machine_code_shows(self) -> None:
        self.assertEqual(compiled_kernels.machine_code(LOOPS), {
            MAP: MachineCode(generic=0, matrix_loads=1, loop=5, products=2),
            PLAIN: MachineCode(generic=3)})
        self.assertEqual(compiled_kernels.machine_code(LABELS), {
            MAP: MachineCode(loop=3, products=1)})

    def test_names(self) -> None:
        scope = "fsdp::cuda::(anonymous namespace)::"
        for full, name in ((f"{scope}plain(float*)", ("plain", ())),
                           (f"void {scope}fill<__half>(__half*, long)", ("fill", ("half",))),
                           (f"void {scope}copy<float, __nv_bfloat16>(float*, __nv_bfloat16 const*)",
                            ("copy", ("float", "bfloat16"))),
                           (f"void {scope}map<(int)4, {scope}Pair<float, int> >(int (*)(float))",
                            ("map", ("4", "Pair<float, int>")))):
            self.assertEqual(compiled_kernels.split_name(full), name)

    @unittest.skipUnless(shutil.which("c++filt"), "c++filt, which belongs to g++, is not installed")
    def test_one_file(self) -> None:
        first, second = compiled_kernels.kernels_of("sample.cu", REPORT, PTX, CUOBJDUMP)
        self.assertEqual(str(first), "sample map_kernel<4, float, Sum<float>>")
        self.assertEqual((first.registers, first.load, first.store), (18, 128, 64))
        self.assertEqual((str(second), second.shared, second.store), ("sample plain", 1024, 0))
        unknown = compiled_kernels.kernels_of("sample.cu", REPORT, PTX, None)
        self.assertEqual([(k.load, k.store, k.machine) for k in unknown], [(None, None, None)] * 2)


def kernel(name: str = "k", *arguments: str, file: str = "new.cu", **what: object) -> Kernel:
    return Kernel(file, name, arguments, **what)


class Rules(unittest.TestCase):
    def test_spills(self) -> None:
        self.assertEqual(kernel_rules.spilling([kernel(registers=255, shared=9)]), [])
        for what in ("stack", "spill_stores", "spill_loads"):
            self.assertIn("new k: ", kernel_rules.spilling([kernel(**{what: 8})])[0])

    def test_operations_with_the_bits_of_the_cpu(self) -> None:
        for good in ("add.rn.f32", "mul.rn.f64", "div.rn.f32", "sqrt.rn.f32", "cvt.rn.f16.f32",
                     "max.f32", "rcp.rn.f32"):
            self.assertIsNone(kernel_rules.fault(good), good)
        for bad in ("add.f32", "mul.f32", "sub.f16", "add.rn.ftz.f32", "fma.rn.f32", "div.full.f32",
                    "div.approx.ftz.f32", "sqrt.approx.f32", "ex2.approx.ftz.f32", "sub.rz.f32",
                    "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32"):
            self.assertIsNotNone(kernel_rules.fault(bad), bad)
            self.assertEqual(len(kernel_rules.inexact([kernel(operations=Counter({bad: 2}))])), 1)

    def test_exceptions_hold_for_what_they_name_only(self) -> None:
        fused = Counter({"fma.rn.f64": 1})
        tanh = kernel("map_kernel", "half", "Tanh", file="elementwise.cu", operations=fused)
        backward = kernel("map_kernel", "half", "TanhBackward", file="elementwise.cu",
                          operations=fused)
        self.assertEqual(kernel_rules.inexact([tanh]), [])
        self.assertEqual(len(kernel_rules.inexact([backward])), 1)
        for operation, count in (("fma.rn.f32", 0), ("mul.f32", 1), ("div.approx.ftz.f32", 1)):
            swiglu = kernel(file="swiglu.cu", operations=Counter({operation: 1}))
            self.assertEqual(len(kernel_rules.inexact([swiglu])), count, operation)
        norm = kernel(file="rms_norm.cu", operations=Counter({"fma.rn.f32": 1}))
        self.assertEqual(len(kernel_rules.inexact([norm])), 1)

    def test_widths(self) -> None:
        for arguments, width in ((("float",), 128), (("half",), 64), (("4", "bfloat16"), 64),
                                 (("long",), 128), (("unsigned short",), 64), ((), 128)):
            with self.subTest(arguments=arguments):
                wide = kernel("k", *arguments, load=width, store=width)
                self.assertEqual(kernel_rules.narrow([wide]), [])
                half = kernel("k", *arguments, load=width // 2, store=0)
                self.assertEqual(len(kernel_rules.narrow([half])), 2)
        self.assertEqual(kernel_rules.narrow([kernel("k", "float")]), [])  # unknown
        cast = kernel("copy_kernel", "half", "float", file="copy.cu", load=128, store=64)
        self.assertEqual(kernel_rules.narrow([cast]), [])
        strided = kernel("copy_strided_kernel", "half", "float", file="copy.cu", load=32, store=16)
        self.assertEqual(kernel_rules.narrow([strided]), [])

    def test_memory_that_nvcc_does_not_know(self) -> None:
        self.assertEqual(kernel_rules.generic([kernel(machine=MachineCode()), kernel()]), [])
        self.assertIn("3 loads", kernel_rules.generic([kernel(machine=MachineCode(generic=3))])[0])

    def test_tensor_cores_without_ldmatrix(self) -> None:
        for operation, loads, count in (("mma.sync.aligned.m16n8k16.f32", 0, 1),
                                        ("wmma.mma.sync.aligned.m16n16k16.f32", 0, 1),
                                        ("mma.sync.aligned.m16n8k16.f32", 4, 0),
                                        ("fma.rn.f32", 0, 0)):
            found = kernel(operations=Counter({operation: 1}),
                           machine=MachineCode(matrix_loads=loads))
            self.assertEqual(len(kernel_rules.unassembled([found])), count, operation)

    def test_instructions_of_a_tile(self) -> None:
        def forward(loop: int, way: str = "true") -> Kernel:
            return kernel("forward_kernel", way, "64", "half", file="attention_tensor_cores.cu",
                          machine=MachineCode(loop=loop, products=128))
        self.assertEqual(kernel_rules.tile(forward(800)), 400)  # two rows of 16
        self.assertIsNone(kernel_rules.tile(kernel("forward_kernel", "2", "float")))
        good = [forward(800), forward(9000, "false"), kernel()]
        self.assertEqual(kernel_rules.slow(good, "sm_90"), [])
        self.assertIn("401 instructions", kernel_rules.slow([forward(802)], "sm_90")[0])
        self.assertEqual(kernel_rules.slow([forward(802)], "sm_80"), [])

    def test_warps_of_a_multiprocessor(self) -> None:
        for registers, shared, threads, arch, warps in (
                (32, 0, 256, "sm_90", 64), (32, 0, 256, "sm_120", 48), (33, 0, 256, "sm_90", 48),
                (255, 0, 128, "sm_90", 8), (16, 0, 32, "sm_86", 16),
                (32, 99 * 1024, 128, "sm_86", 4), (32, 99 * 1024 + 1, 128, "sm_86", 0),
                (32, 113 * 1024, 128, "sm_90", 8),
                (32, 0, 0, "sm_90", None), (32, 0, 32, "sm_70", None)):
            found = kernel(registers=registers, dynamic=shared, threads=threads)
            self.assertEqual(kernel_rules.warps(found, arch), warps, found)
            self.assertEqual(len(kernel_rules.oversized([found], arch)), warps == 0)

    def test_an_exception_without_a_kernel(self) -> None:
        self.assertIn("kernel_rules.py has an exception for swiglu.cu, which does not exist",
                      kernel_rules.stale([kernel()], is_selection=False))
        self.assertEqual(kernel_rules.stale([], is_selection=True), [])


class Table(unittest.TestCase):
    KERNELS = [kernel("k", "half", registers=20, load=64, store=0, dynamic=96, threads=256),
               kernel("k", "float", registers=32, load=128, store=0), kernel("other")]

    def test_one_line_per_kernel(self) -> None:
        rows = kernel_table.rows(self.KERNELS, False, "sm_90")
        lines = kernel_table.table(rows, False).split("\n")
        self.assertEqual([line.split() for line in lines[1:]], [
            ["new.cu", "k<half>", "20", "0", "0", "0", "96", "64", "64", "0", "-"],
            ["new.cu", "k<float>", "32", "0", "0", "0", "0", "-", "128", "0", "-"],
            ["new.cu", "other", "0", "0", "0", "0", "0", "-", "-", "-", "-"]])

    def test_one_line_per_family(self) -> None:
        lines = kernel_table.table(kernel_table.rows(self.KERNELS, True, "sm_90"), True).split("\n")
        self.assertEqual(lines[2], "| new.cu | k × 2 | 20 to 32 | 0 | 0 | 0 | 0 to 96 | 64 "
                         "| 64, 128 | 0 | - |")
        self.assertEqual(len(lines), 4)

    def test_the_options_of_the_build(self) -> None:
        text = (ROOT / "common" / "cmake" / "FsdpCuda.cmake").read_text(encoding="utf-8")
        self.assertIn("-fmad=false", kernel_table.options_of_build(text))
        with self.assertRaises(kernel_table.CompileError):
            kernel_table.options_of_build("set(OTHER -fmad=false)")

    def test_the_architectures_of_the_build(self) -> None:
        text = (ROOT / "common" / "cmake" / "FsdpCuda.cmake").read_text(encoding="utf-8")
        self.assertEqual(kernel_table.architectures_of_build(text),
                         ["sm_90", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"])
        with self.assertRaises(kernel_table.CompileError):
            kernel_table.architectures_of_build("set(OTHER 80)")

    def test_an_architecture_that_nvcc_does_not_know(self) -> None:
        with mock.patch("builtins.print") as out:
            # This "nvcc" prints its argument, and nothing else.
            found = kernel_table.known(["sm_90", "--list-gpu-code"], "echo")
            self.assertEqual(found, ["--list-gpu-code"])
            out.assert_called_once_with("skipped: sm_90, which this nvcc does not know")
            with self.assertRaisesRegex(kernel_table.CompileError, "name a card by --arch"):
                kernel_table.known(["sm_90"], "echo")

    def test_a_disassembler_of_a_package(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder]), \
                mock.patch("shutil.which", return_value=None):
            self.assertIsNone(kernel_table.disassembler([]))
            for name, option in (("cuobjdump", "-sass"), ("nvdisasm", "-c")):  # the latter is first
                program = Path(folder, "nvidia", "cu13", "bin", name)
                program.parent.mkdir(parents=True, exist_ok=True)
                program.touch(0o755)
                self.assertEqual(kernel_table.disassembler([]), [str(program), option])

    def test_without_nvcc_it_is_skipped(self) -> None:
        with mock.patch.object(kernel_table, "tool", return_value=None), \
                mock.patch.object(sys, "argv", ["kernel_table.py"]), \
                mock.patch("builtins.print") as out:
            self.assertEqual(kernel_table.main(), 0)
        self.assertRegex(out.call_args[0][0], "^skipped: nvcc is not installed")

    def test_a_compiler_that_fails(self) -> None:
        done = subprocess.run([sys.executable, kernel_table.__file__, "--nvcc", "false", "--arch",
                               "sm_90", "none.cu"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "^kernel_table: false -std=c\\+\\+20 -fmad=false .* -arch=sm_90")


if __name__ == "__main__":
    unittest.main()
