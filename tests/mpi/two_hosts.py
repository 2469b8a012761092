"""Two hosts, which are two network namespaces of this machine with a cable between them.

mpirun starts ranks on the other host as it would by ssh; unshard-launch is started on both. Needs a user who may make namespaces: root,
outside of most containers. Skipped with MPICH: over TCP between hosts, the MPI_Finalize of Debian's
MPICH 4.0 does not return, whatever the program did before.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

import jobs
import trainings

CABLE = "cable"
ADDRESSES = ("10.99.0.1", "10.99.0.2")
# Runs the words behind it on a host.
ON_HOST = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
# Called like ssh: with options, a host and a command.
AGENT = """#!/bin/sh
while [ "$1" != "{host}" ]; do shift; done
shift
exec ip netns exec {namespace} unshare --uts sh -c 'hostname "$0" && eval "$1"' {namespace} "$*"
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def namespace():
    """A network namespace for a moment."""
    name = f"unshard-{os.getpid()}"
    try:
        ip("netns", "add", name)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def why_not() -> str:
    """Why there cannot be two hosts; "" if there can."""
    version = subprocess.run([jobs.MPIRUN, "--version"], capture_output=True, text=True, check=True)
    if version.stdout.startswith("HYDRA"):
        return "this is MPICH, whose programs do not end if their hosts differ"
    for program in ("ip", "unshare"):
        if not shutil.which(program):
            return f"there is no program {program}"
    try:
        with namespace() as name:
            ip("netns", "exec", name, "unshare", "--uts", "hostname", name)
    except subprocess.CalledProcessError:
        return "this user may not make network namespaces"
    return ""


class TwoHostsTest(trainings.TrainingTest):
    """Jobs begin on the first host, which gets the first `slots` ranks; the second gets the next."""

    slots = 2

    def setUp(self):
        super().setUp()
        self.hosts = [f"unshard-{os.getpid()}-{end}" for end in "ab"]
        for host in self.hosts:
            ip("netns", "add", host)
            self.addCleanup(ip, "netns", "del", host)
        a, b = self.hosts
        ip("link", "add", "name", CABLE, "netns", a, "type", "veth",
           "peer", "name", CABLE, "netns", b)
        for host, address in zip(self.hosts, ADDRESSES):
            ip("-n", host, "address", "add", f"{address}/24", "dev", CABLE)
            ip("-n", host, "link", "set", CABLE, "up")
            ip("-n", host, "link", "set", "lo", "up")
        host_file = self.folder / "hosts"
        agent = self.folder / "agent"
        agent.write_text(AGENT.format(host=ADDRESSES[1], namespace=b))
        agent.chmod(0o755)
        self.before = ["ip", "netns", "exec", a, *ON_HOST, a]
        host_file.write_text("".join(f"{address} slots={self.slots}\n" for address in ADDRESSES))
        self.environment |= {"OMPI_MCA_orte_default_hostfile": str(host_file),
                             "OMPI_MCA_plm_rsh_agent": str(agent),
                             "OMPI_MCA_mca_base_env_list": "FSDP_MPI_SILENCE"}

    def start(self, ranks: int, *words: str, program: Sequence[str] = (jobs.PROGRAM,)
              ) -> subprocess.Popen:
        if not jobs.IS_TCP:
            return super().start(ranks, *words, program=program)
        launches = [
            shlex.join(["ip", "netns", "exec", host, *ON_HOST, host, jobs.MPIRUN, "-n",
                        str(ranks // 2), "--machines", "2", "--machine", str(machine), "--meet",
                        f"{ADDRESSES[0]}:29500", *program, *words])
            for machine, host in enumerate(self.hosts)]
        return jobs.popen(["sh", "-c", f"{launches[1]} & exec {launches[0]}"], self.environment)


def main(reason: str):
    """Runs the tests, or says why not."""
    if reason:
        print(f"skipped: {reason}, and this test needs it")
        sys.exit(0)
    jobs.main()
