"""Ranks on two hosts, which are two network namespaces of this machine with a cable between them.

    hosts.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train.
"""

import subprocess
import time

import jobs
import two_hosts

LIMIT = 10  # seconds, as docs/running.md says: a limit of the system's, and no speed of ours
MARGIN = 10  # for the launchers to end the other ranks, on a busy machine


class Hosts(two_hosts.TwoHostsTest):
    def crossed(self) -> int:
        """Bytes that the first host has got through the cable."""
        counter = f"/sys/class/net/{two_hosts.CABLE}/statistics/rx_bytes"
        done = subprocess.run(["ip", "netns", "exec", self.hosts[0], "cat", counter], check=True,
                              capture_output=True, text=True)
        return int(done.stdout)

    def test_a_training_over_two_hosts(self):
        tiny = ("--model.preset=tiny", "--training.seq_len=64")
        threads = self.train("fsdp", *tiny, threads=4)
        before = self.crossed()
        hosts = self.train("fsdp", *tiny, processes=4)
        # Of each gather and reduction half of the bytes that a rank receives come from its neighbor's
        # host, at least.
        self.assertGreater(self.crossed() - before, hosts["comm_bytes"] // 4)
        for key in ("losses", "param_sha256", "comm_bytes"):
            self.assertEqual(hosts[key], threads[key])

    def test_a_cable_that_is_cut(self):
        # The connections tell, of the ranks or of mpirun, long before a silence would.
        self.environment["FSDP_MPI_SILENCE"] = "300"
        cut_at = 0.0

        def cut(_):
            nonlocal cut_at
            two_hosts.ip("-n", self.hosts[0], "link", "set", two_hosts.CABLE, "down")
            cut_at = time.monotonic()

        code = self.interrupted(cut)
        took = time.monotonic() - cut_at
        print(f"all ranks have ended {took:.1f} s after the cable was cut", flush=True)
        self.assertLess(took, LIMIT + MARGIN)
        self.assertNotEqual(code, 0)
        self.assertRegex(self.said, r"has lost rank \d: its machine, or the network between, has failed"
                         if jobs.IS_TCP else "lost communication with")
        self.assert_checkpoint_loads()


if __name__ == "__main__":
    two_hosts.main(two_hosts.why_not())
