"""Ranks on two hosts, which are two network namespaces of this machine with a cable between them.

    hosts.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train. mpirun starts it on the other host as it would by ssh. Needs a user who may
make namespaces: root, outside of most containers. Skipped with MPICH: over TCP between hosts, the
MPI_Finalize of Debian's MPICH 4.0 does not return, whatever the program did before.
"""

import os
import shutil
import subprocess
import sys

import jobs
import trainings

CABLE = "cable"
# Called like ssh: with options, a host and a command.
AGENT = """#!/bin/sh
while [ "$1" != "{host}" ]; do shift; done
shift
exec ip netns exec {namespace} unshare --uts sh -c 'hostname "$0" && eval "$1"' {namespace} "$*"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_not() -> str:
    """Why there cannot be two hosts; "" if there can."""
    version = subprocess.run([jobs.MPIRUN, "--version"], capture_output=True, text=True, check=True)
    if version.stdout.startswith("HYDRA"):
        return "this is MPICH, whose programs do not end if their hosts differ"
    for program in ("ip", "unshare"):
        if not shutil.which(program):
            return f"there is no program {program}"
    name = f"unshard-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "exec", name, "unshare", "--uts", "hostname", name)
    except subprocess.CalledProcessError:
        return "this user may not make network namespaces"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return ""


class Hosts(trainings.TrainingTest):
    def setUp(self):
        super().setUp()
        self.hosts = [f"unshard-{os.getpid()}-{end}" for end in "ab"]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "del", host)
        a, b = self.hosts
        ip("link", "add", "name", CABLE, "netns", a, "type", "veth",
           "peer", "name", CABLE, "netns", b)
        addresses = ["10.99.0.1", "10.99.0.2"]
        for host, address in zip(self.hosts, addresses):
            ip("-n", host, "address", "add", f"{address}/24", "dev", CABLE)
            ip("-n", host, "link", "set", CABLE, "up")
            ip("-n", host, "link", "set", "lo", "up")
        host_file = self.folder / "hosts"
        agent = self.folder / "agent"
        agent.write_text(AGENT.format(host=addresses[1], namespace=b))
        agent.chmod(0o755)
        self.before = ["ip", "netns", "exec", a, "unshare", "--uts", "sh", "-c",
                       'hostname "$0" && exec "$@"', a]
        host_file.write_text("".join(f"{address} slots=2\n" for address in addresses))
        self.environment |= {"OMPI_MCA_orte_default_hostfile": str(host_file),
                             "OMPI_MCA_plm_rsh_agent": str(agent),
                             "OMPI_MCA_mca_base_env_list": "FSDP_MPI_SILENCE"}

    def crossed(self) -> int:
        """Bytes that the first host has got through the cable."""
        counter = f"/sys/class/net/{CABLE}/statistics/rx_bytes"
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
        self.environment["FSDP_MPI_SILENCE"] = "10"
        self.environment |= {"OMPI_MCA_oob_tcp_keepalive_time": "2",
                             "OMPI_MCA_oob_tcp_keepalive_intvl": "1"}
        code = self.interrupted(lambda _: ip("-n", self.hosts[0], "link", "set", CABLE, "down"))
        self.assertNotEqual(code, 0)
        # mpirun notices it first, or we do.
        self.assertRegex(self.said, "lost communication with|nothing has been heard from rank")
        self.assert_checkpoint_loads()


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}, and two hosts need it")
        sys.exit(0)
    jobs.main()
