"""Ranks on two hosts, which are two network namespaces of this machine with a cable between them.

    hosts.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train.
"""

import subprocess

import jobs
import two_hosts


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
        # Without MPI the connection itself tells, long before a silence would.
        self.environment["FSDP_MPI_SILENCE"] = "300" if jobs.IS_TCP else "10"
        self.environment |= {"OMPI_MCA_oob_tcp_keepalive_time": "2",
                             "OMPI_MCA_oob_tcp_keepalive_intvl": "1"}
        code = self.interrupted(
            lambda _: two_hosts.ip("-n", self.hosts[0], "link", "set", two_hosts.CABLE, "down"))
        self.assertNotEqual(code, 0)
        # mpirun notices it first, or we do.
        self.assertRegex(self.said, r"has lost rank \d: its machine, or the network between, has failed"
                         if jobs.IS_TCP else
                         "lost communication with|nothing has been heard from rank")
        self.assert_checkpoint_loads()


if __name__ == "__main__":
    two_hosts.main(two_hosts.why_not())
