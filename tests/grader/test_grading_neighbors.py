"""Tests of jails side by side: own users, folders and endings, whatever a neighbor does."""

import os
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import jail
import manifest
from build_submission import Staging, SubmissionBuilder

COURSE_FOLDER = Path(jail.__file__).parent


def python(*words):
    """A program that may use jail.py, in another process."""
    return subprocess.run([sys.executable, "-c", f"import jail, os, sys\n{words[0]}", *words[1:]],
                          cwd=COURSE_FOLDER, capture_output=True, text=True, check=True).stdout


@unittest.skipUnless(jail.is_root(), "only root can give a command a user of its own")
class Users(unittest.TestCase):
    def test_one_is_taken_once(self):
        uid = jail.fresh_uid()
        self.addCleanup(jail.release, uid)
        asked = "print(jail.take(int(sys.argv[1])))"
        self.assertFalse(jail.take(uid))
        self.assertEqual(python(asked, str(uid)), "False\n")
        jail.release(uid)
        self.assertEqual(python(asked, str(uid)), "True\n")  # and given back by its end
        self.assertTrue(jail.take(uid))

    def test_equal_process_ids_make_no_equal_users(self):
        """Of two processes whose numbers are equal but for a multiple of jail.UIDS."""
        uid = jail.fresh_uid()
        self.addCleanup(jail.release, uid)
        first = uid - jail.FIRST_UID + jail.UIDS
        program = f"os.getpid = lambda: {first}; print(jail.fresh_uid())"
        self.assertNotEqual(int(python(program)), uid)

    def test_a_run_gives_its_user_back(self):
        user = int(jail.run(["/bin/sh", "-c", "id -u"], jail.Limits()).out)
        self.addCleanup(jail.release, user)
        self.assertTrue(jail.take(user))

    def test_what_does_not_compile_gives_its_user_back(self):
        staging = Staging.make(manifest.load())
        self.addCleanup(staging.remove)
        users = []

        def fails(_, flags, source, work, uid):
            del flags, source, work
            users.append(uid)
            return jail.Outcome("exited", 1, "", b"", b"", 0, 0)

        with mock.patch.multiple(SubmissionBuilder, _compile_object=fails,
                                 _flags=lambda *_: ["g++"]):
            built = SubmissionBuilder(manifest.ROOT, staging).build_alone(
                "race", "policy.cpp", b"", "race_policy")
        self.assertIn("does not compile", built.problem)
        self.addCleanup(jail.release, users[0])
        self.assertTrue(jail.take(users[0]))

    def test_sweeping_lets_others_alone(self):
        """A state folder names users of long ago; one of them is somebody else's now."""
        uid = jail.fresh_uid()
        self.addCleanup(jail.release, uid)
        read, write = os.pipe()
        runs = subprocess.Popen(["sleep", "1000"], user=uid, group=uid, extra_groups=[],
                                stdout=write)
        self.addCleanup(runs.wait)
        self.addCleanup(runs.kill)
        with tempfile.TemporaryDirectory() as state:
            jail.append(state, "uids", f"{uid}\n")
            sweep = "jail.sweep(sys.argv[1])"
            python(sweep, state)
            self.assertIsNone(runs.poll())
            jail.release(uid)
            python(sweep, state)
            self.assertEqual(runs.wait(timeout=10), -9)
        for each in (read, write):
            os.close(each)

    def test_sweeping_ends_a_jail_that_was_left_alone(self):
        with tempfile.TemporaryDirectory() as state:
            runs = subprocess.Popen(
                [sys.executable, "-I", "-S", jail.__file__, "--asleep", "60", "--state", state,
                 "--", "/bin/sh", "-c", "echo begun; exec 1>&-; sleep 1000"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(runs.kill)
            noted = Path(state) / "uids"
            while not (noted.is_file() and noted.read_text().strip()
                       and any(jail.processes(int(noted.read_text())))):
                os.sched_yield()
            uid = int(noted.read_text())
            jail.sweep(state)
            self.assertEqual(runs.wait(timeout=10), -9)
            self.assertEqual(list(jail.processes(uid)), [])
            self.assertTrue(jail.take(uid))
            jail.release(uid)


# What a submission of others does: works a little, leaves files, and prints what it still finds.
WORK = """
import os, subprocess, sys
own = sys.argv[1]
folder = os.environ["TMPDIR"]
total = 0
for i in range(5):
    with open(f"{folder}/kept-{i}", "w") as file:
        file.write(own * 1000)
    total += sum(k * k for k in range(100000))
    total += int(subprocess.run(["expr", "6", "*", "7"], capture_output=True).stdout)
found = sorted(name for name in os.listdir(folder) if name.startswith("kept-"))
print(own, total, found, all(open(f"{folder}/{each}").read() == own * 1000 for each in found))
print(open(f"{own}/source/mine").read())
"""
# Does what it can against all the others: kills, reads and removes what is theirs, takes processes
# and the processors.
ATTACK = """
import os, signal, sys
got = []
for path in sys.argv[1:]:
    try:
        got += os.listdir(path) and [path]
    except OSError:
        pass
    for name in ("source/mine", "run/runner"):
        try:
            got.append(open(f"{path}/{name}").read())
        except OSError:
            pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        for attempt in (lambda: os.kill(int(pid), signal.SIGKILL),
                        lambda: got.append(open(f"/proc/{pid}/environ").read() and "environ")):
            try:
                attempt()
            except OSError:
                pass
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    for root, folders, files in os.walk(folder):
        for name in files:
            try:
                os.unlink(os.path.join(root, name))
                got.append(name)
            except OSError:
                pass
print("got", got, flush=True)
for _ in range(200):
    try:
        if os.fork() == 0:
            break
    except OSError:
        break
while True:
    pass
"""


def run_one(staging, program, *words, keep=()):
    ended = jail.Jail([jail.find_program("python3"), "-I", "-S", "-c", program, *words],
                      jail.Limits(cpu=2, wall=120, asleep=60, processes=40), group=staging.group,
                      keep=[staging.root, *keep]).run()
    return ended.kind, ended.code, ended.out


def work(staging):
    return run_one(staging, WORK, str(staging.root))


@unittest.skipUnless(jail.is_root(), "only root can give a command a user of its own")
class OneHostileBesideFive(unittest.TestCase):
    """Its neighbors end as they end alone."""

    def setUp(self):
        self.stagings = [Staging.make(manifest.load()) for _ in range(6)]
        for staging in self.stagings:
            self.addCleanup(staging.remove)
            for name in ("source/mine", "run/runner"):
                (staging.root / name).write_text(f"secret of {staging.root.name}", encoding="utf-8")
                (staging.root / name).chmod(0o644)

    def test_side_by_side(self):
        hostile, *others = self.stagings
        alone = [work(each) for each in others]
        for ended, staging in zip(alone, others):
            self.assertEqual(ended[:2], ("exited", 0))
            self.assertIn(f"secret of {staging.root.name}".encode(), ended[2])
        roots = [each.root for each in others]
        # As graders are: processes, and in each one jail after the other.
        with ProcessPoolExecutor(6) as pool:
            # Shown what a container shows that may not mount: only the group is in the way.
            attack = pool.submit(run_one, hostile, ATTACK, *map(str, roots), keep=roots)
            beside = list(pool.map(work, others))
            kind, _, out = attack.result()
        self.assertEqual(beside, alone)
        self.assertEqual((kind, out), ("cpu", b"got []\n"))

    def test_no_two_have_one_group(self):
        self.assertEqual(len({each.group for each in self.stagings}), 6)
        for each in self.stagings:
            info = os.stat(each.root)
            self.assertEqual((info.st_gid, info.st_mode & 0o777), (each.group, 0o710))


if __name__ == "__main__":
    unittest.main()
