"""Jobs of mpirun or unshard-launch, as tests start and watch them.

The main program of a test is called with MPIRUN_SCRIPT MPIRUN PROGRAM. Only ctest has a clock: a job
that hangs is a test that does not end.
"""

import os
import select
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path

SCRIPT, MPIRUN, PROGRAM = sys.argv[1:4]
IS_TCP = Path(MPIRUN).name == "unshard-launch"
COMMAND = "unshard-launch -n" if IS_TCP else "mpirun -np"


def processes(mark: str) -> list[int]:
    """The processes whose command line holds `mark`, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has just ended
            pass
    return found


def ranks(mark: str) -> dict[int, int]:
    """The processes of PROGRAM among them, by their rank."""
    found = {}
    for process in processes(mark):
        if os.readlink(f"/proc/{process}/exe") != os.path.realpath(PROGRAM):
            continue
        for setting in Path(f"/proc/{process}/environ").read_text().split("\0"):
            name, _, value = setting.partition("=")
            if name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"):
                found[int(value)] = process
    return found


def popen(words: Sequence[str], environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=environment)


class JobTest(unittest.TestCase):
    """A folder of its own, which every process names on its command line."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

        self.before: list[str] = []  # words before the command of every job
        self.environment = dict(os.environ)

    def start(self, ranks: int, *words: str, program: Sequence[str] = (PROGRAM,)
              ) -> subprocess.Popen:
        return popen([*self.before, "sh", SCRIPT, MPIRUN, str(ranks), *program, *words],
                     self.environment)

    def run_job(self, ranks: int, *words: str, program: Sequence[str] = (PROGRAM,)
                ) -> tuple[int, str]:
        """The exit code, and what was said on both streams."""
        job = self.start(ranks, *words, program=program)
        said, _ = job.communicate()
        self.assert_all_gone()
        return job.returncode, said

    def assert_all_gone(self):
        while left := processes(str(self.folder)):  # they may still be on their way out
            for process in left:
                try:
                    descriptor = os.pidfd_open(process)
                except OSError:
                    continue
                select.select([descriptor], [], [])  # until it ends
                os.close(descriptor)


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
