"""Tests DEVICE=cuda of the course's tools: which build judges, and what the judge is told."""

from __future__ import annotations

import os
import unittest
from unittest import mock

import course_path  # noqa: F401  must come first
import builder
import devices


class Devices(unittest.TestCase):
    def test_the_cpu_changes_nothing(self) -> None:
        self.assertEqual(devices.preset("cpu"), "grade")
        self.assertEqual(devices.environment("cpu"), {})
        self.assertEqual(builder.Builder.of("threads").build.name, "grade")

    def test_without_a_card_it_is_the_stand_in(self) -> None:
        with mock.patch.object(devices, "has_card", return_value=False):
            tools = builder.Builder.of("threads", device="cuda")
        self.assertEqual((tools.build.name, tools.device), ("grade-cuda-host", "cuda"))
        with mock.patch.object(devices, "has_card", return_value=True):
            self.assertEqual(devices.preset("cuda"), "grade-cuda")

    def test_the_variable_of_the_stand_in_asks_for_it(self) -> None:
        with mock.patch.dict(os.environ, {"CUDA_ON_HOST": "random:3"}):
            self.assertFalse(devices.has_card())
            self.assertEqual(devices.environment("cuda")["CUDA_ON_HOST"], "random:3")
        with mock.patch.dict(os.environ):
            os.environ.pop("CUDA_ON_HOST", None)
            self.assertEqual(devices.environment("cuda")["CUDA_ON_HOST"], "lazy")

    def test_processes_do_not_compute_on_cards(self) -> None:
        with self.assertRaisesRegex(devices.DeviceError, "ranks on CUDA cards are threads"):
            builder.Builder.of("mpi", device="cuda")


if __name__ == "__main__":
    unittest.main()
