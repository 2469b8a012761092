"""What `make doctor` says of CUDA, with programs in PATH that stand for CUDA's own."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cuda"))

import kernel_table  # noqa: E402

NVCC = "Cuda compilation tools, release 13.0, V13.0.88"


class Doctor(unittest.TestCase):
    def said(self, nvcc: str, card: str, has_nccl: bool, package: str = "") -> dict[str, str]:
        """The lines about CUDA, by their first words."""
        with tempfile.TemporaryDirectory() as folder:
            if package:
                program = Path(folder, "packages", package)
                program.parent.mkdir(parents=True)
                program.touch(0o755)
            for name, output in (("nvcc", nvcc), ("nvidia-smi", card)):
                program = Path(folder, "bin", name)
                program.parent.mkdir(exist_ok=True)
                program.write_text(f"#!/bin/sh\nprintf '%s' '{output}'\n", encoding="utf-8")
                program.chmod(0o755)
            if has_nccl:
                header = Path(folder, "include", "nccl.h")
                header.parent.mkdir()
                header.write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n"
                                  "#define NCCL_PATCH 3\n", encoding="utf-8")
            path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(["sh", "common/scripts/doctor.sh"], cwd=ROOT, text=True,
                                  capture_output=True, check=True, timeout=60,
                                  env={**os.environ, "PATH": path,
                                       "PYTHONPATH": f"{folder}/packages"})
        self.assertEqual(done.stderr, "")
        lines = done.stdout.split("CUDA: ")[1].split("\n\n")[0].split("\n")[1:]
        return {line[2:16].strip(): line[16:] for line in lines}

    def test_a_machine_with_a_card(self) -> None:
        self.assertEqual(self.said(NVCC, "NVIDIA H100\nNVIDIA H100\n", True,
                                   "nvidia/cu13/bin/nvdisasm"), {
            "nvcc": "13.0.88", "disassembler": "nvdisasm", "NCCL": "2.27.3", "CUDA card": "2 NVIDIA H100",
            "It can": "compute on a card: `cmake --preset cuda`"})

    def test_a_machine_without_a_card(self) -> None:
        said = self.said(NVCC, "", True)
        self.assertEqual(said["CUDA card"], "absent: the kernels run on the stand-in only")
        self.assertEqual(said["It can"], "compile for a card, and run the kernels on the stand-in")

    @unittest.skipIf(kernel_table.disassembler([]), "a disassembler is installed")
    def test_a_machine_without_a_disassembler(self) -> None:
        self.assertRegex(self.said(NVCC, "", True)["disassembler"],
                         "^absent: .*`pip install nvidia-cuda-nvdisasm`$")

    def test_a_machine_without_a_compiler(self) -> None:
        said = self.said("", "", True)
        self.assertEqual(said["nvcc"], "absent: the kernels are not compiled for a card")
        self.assertEqual(said["It can"], "run the kernels on the stand-in")


if __name__ == "__main__":
    unittest.main()
