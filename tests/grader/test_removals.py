"""Tests of tests/cuda/removals.py and what finds its sites, without a build."""

import itertools
import sys
import unittest
import unittest.mock
from pathlib import Path

import course_path  # noqa: F401  must come first
import manifest

sys.path.insert(0, str(manifest.ROOT / "tests" / "cuda"))
import removal_sites  # noqa: E402  found since the line above
import removals  # noqa: E402

SAMPLE = """\
// A comment: __syncthreads(); and device.make_wait(a, b);
__global__ void kernel() {
  __shared__ float sums[32];
  sums[threadIdx.x] = 0;
  __syncthreads();  // all have written
  for (int i = 0; i < 2; ++i) __syncwarp();
  cp_async_wait();  // before the barrier
}
__device__ __forceinline__ void cp_async_wait() { asm volatile("cp.async.wait_all;"); }
void synchronize() override {
  require(cudaStreamSynchronize(compute_), "synchronize();");
}
virtual void finish_copies() = 0;
void run() {
  if (rank > 0) first.make_wait(collecting,
                                *own.record(stream));
  const auto begun = first.record(collecting);
  ended_ = first.record(collecting);
  for (Work& gather : gathers_) gather.wait();
  case DeviceType::cpu:
    if (device.is_host()) finish_copies();
  return start(a, [&] { return b; }).wait();
  group->barrier({"save"}).wait();
  while (!is_ready()) std::this_thread::yield();
}
"""
STATEMENTS = [
    (5, "__syncthreads();"),
    (6, "__syncwarp();"),
    (7, "cp_async_wait();"),
    (11, 'require(cudaStreamSynchronize(compute_), "synchronize();");'),
    (15, "first.make_wait(collecting, *own.record(stream));"),
    (18, "ended_ = first.record(collecting);"),
    (19, "gather.wait();"),
    (21, "finish_copies();"),
    (22, "return start(a, [&] { return b; }).wait();"),
    (24, "while (!is_ready()) std::this_thread::yield();"),
]


class SitesTest(unittest.TestCase):
    def setUp(self):
        self.sites = removal_sites.sites_of("a.cpp", SAMPLE)

    def test_finds_each_statement_and_no_declaration(self):
        self.assertEqual([(site.line, site.statement) for site in self.sites], STATEMENTS)

    def test_removal_changes_the_statement_alone(self):
        lines = SAMPLE.splitlines()
        for site in self.sites:
            with self.subTest(site=str(site)):
                text = removal_sites.removed(SAMPLE, site)
                left = text.splitlines()
                self.assertEqual(len(left), len(lines))
                self.assertEqual(left[:site.line - 1], lines[:site.line - 1])
                after = site.line + SAMPLE[site.begin:site.end].count("\n")
                self.assertEqual(left[after:], lines[after:])
                again = removal_sites.sites_of("a.cpp", text)
                self.assertEqual(len(again), len(self.sites) - 1)

    def test_what_is_waited_for_stays(self):
        text = removal_sites.removed(SAMPLE, self.sites[6])
        self.assertIn("for (Work& gather : gathers_) static_cast<void>(gather);\n", text)
        text = removal_sites.removed(SAMPLE, self.sites[8])
        self.assertIn("  return static_cast<void>(start(a, [&] { return b; }));\n", text)
        text = removal_sites.removed(SAMPLE, self.sites[0])
        self.assertIn("  {}  // all have written\n", text)

    def test_finds_those_of_this_tree(self):
        found = removal_sites.find(manifest.ROOT)
        self.assertGreater(len(found), 80)
        files = {site.path for site in found}
        for path in ("common/comm/cuda/canonical_plane.cpp", "common/tensor/cuda/rows.h",
                     "common/tensor/dispatch.h", "common/tensor/host_copy.cpp"):
            self.assertIn(path, files)
        waiting = {site.path for site in found if site.statement == "cp_async_wait();"}
        self.assertEqual(waiting, {"common/tensor/cuda/attention_tensor_cores.cu",
                                   "common/tensor/cuda/attention_tensor_cores_backward.cu"})


class ExemptTest(unittest.TestCase):
    def test_each_names_a_site_and_a_reason(self):
        found = {(site.path, site.statement) for site in removal_sites.find(manifest.ROOT)}
        for key, reason in removals.EXEMPT.items():
            self.assertIn(key, found)
            self.assertGreater(len(reason.split()), 5)

    def test_a_survivor_is_right_only_if_it_is_exempt(self):
        site, other = removal_sites.sites_of("a.cpp", SAMPLE)[:2]
        with unittest.mock.patch.dict(removals.EXEMPT, {("a.cpp", site.statement): "proven"}):
            self.assertEqual(removals.verdict(site, ""), (True, "survived, as it may"))
            self.assertEqual(removals.verdict(other, ""), (False, "SURVIVED"))
            self.assertEqual(removals.verdict(other, "x"), (True, "x"))
            self.assertFalse(removals.verdict(site, "x")[0])


class FailureTest(unittest.TestCase):
    def failing(self, runs: set[int]) -> str:
        """What fails_again() says of a test that fails in these of its runs, from 1 on."""
        count = itertools.count(1)
        with unittest.mock.patch.object(removals, "fails",
                                        lambda _, test: test if next(count) in runs else ""):
            return removals.fails_again(Path("test_cuda"), "a test")

    def test_counts_if_it_comes_again(self):
        self.assertEqual(self.failing(set()), "")
        self.assertEqual(self.failing({1, 2}), "a test")
        self.assertEqual(self.failing({1, removals.TRIES}), "a test")
        self.assertEqual(self.failing({1}), "")

    def test_that_does_not_end_counts_at_once(self):
        with unittest.mock.patch.object(removals, "fails", side_effect=["a test (no end in 9 s)"]):
            self.assertEqual(removals.fails_again(Path("test_cuda"), "a test"),
                             "a test (no end in 9 s)")


if __name__ == "__main__":
    unittest.main()
