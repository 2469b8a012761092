"""Tests of jail.py: limits, endings, what a jailed command sees. Isolation is tested as root."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import course_path  # noqa: F401  must come first
import jail

JAIL = [sys.executable, "-I", "-S", str(Path(jail.__file__).resolve())]


def may_mount():
    """Whether a process of ours may have folders of its own: not in a chroot, even as root."""
    probe = f"import jail, sys; sys.exit(not jail.own_folders([], {1 << 20}))"
    return jail.is_root() and subprocess.run(
        [sys.executable, "-c", probe], cwd=Path(jail.__file__).parent, check=False).returncode == 0


def shell(text, **limits):
    return jail.run(["/bin/sh", "-c", text], jail.Limits(**limits))


class Endings(unittest.TestCase):
    def test_exit_codes_and_signals_pass_through(self):
        self.assertEqual((shell("exit 7").kind, shell("exit 7").code), ("exited", 7))
        crashed = shell("kill -SEGV $$")
        self.assertEqual((crashed.kind, crashed.code), ("signal", -signal.SIGSEGV))
        self.assertEqual(shell("echo out; echo err >&2").out, b"out\n")
        self.assertEqual(shell("echo out; echo err >&2").err, b"err\n")

    def test_processor_time(self):
        ended = shell("while :; do :; done", cpu=1, wall=60)
        self.assertEqual(ended.kind, "cpu")
        self.assertIn("CPU time", ended.says)

    def test_wall_time(self):
        ended = shell("while :; do sleep 0.2; done", cpu=5, wall=1)
        self.assertEqual(ended.kind, "wall")

    def test_what_sleeps_is_deadlocked(self):
        ended = shell("sleep 1000", asleep=1)
        self.assertEqual(ended.kind, "asleep")
        self.assertIn("deadlocked", ended.says)

    def test_output_is_cut_and_ended(self):
        ended = shell("head -c 200000 /dev/zero")
        self.assertEqual((ended.kind, len(ended.out)), ("exited", 60 << 10))
        self.assertEqual(jail.run(["yes"], jail.Limits(cpu=20)).kind, "output")

    def test_what_cannot_be_started(self):
        self.assertEqual(jail.run(["/nonexistent/program"], jail.Limits()).kind, "broken")

    def test_memory(self):
        ended = jail.run([jail.find_program("python3"), "-I", "-S", "-c", "bytearray(1 << 30)"],
                         jail.Limits(memory=300 << 20))
        self.assertNotEqual(ended.code, 0)

    def test_memory_that_is_used(self):
        program = "import time; held = b'x' * (200 << 20); time.sleep(30)"
        ended = jail.run([jail.find_program("python3"), "-I", "-S", "-c", program],
                         jail.Limits(resident=100 << 20))
        self.assertEqual((ended.kind, ended.killed), ("memory", True))
        self.assertIn("more than 100 MiB", ended.says)

    def test_files(self):
        for size, code in ((100000, 0), (1000, None)):
            ended = shell('head -c 100000 /dev/zero > "$TMPDIR/x"', file=size)
            self.assertEqual((ended.kind, ended.code) == ("exited", 0), code == 0, size)


class Surroundings(unittest.TestCase):
    def test_nothing_is_inherited(self):
        os.environ["SECRET_OF_THE_GRADER"] = "x"
        self.addCleanup(os.environ.pop, "SECRET_OF_THE_GRADER")
        names = {line.split("=")[0] for line in shell("env; pwd").out.decode().splitlines()}
        self.assertNotIn("SECRET_OF_THE_GRADER", names)
        self.assertNotIn("LD_PRELOAD", names)
        self.assertIn("/", names)

    def test_other_descriptors_are_closed(self):
        with open(__file__, "rb") as file:
            os.set_inheritable(file.fileno(), True)
            ended = shell("ls /proc/self/fd | wc -l")
        self.assertEqual(ended.out.split(), [b"4"])  # 0, 1, 2 and the folder itself

    def test_standard_input_and_descriptor_3_pass_through(self):
        read, write = os.pipe()
        script = f"exec 3>&{write}; exec " + " ".join(
            f"'{word}'" for word in [*JAIL, "--fd3", "--", "/bin/sh", "-c", "cat >&3"])
        done = subprocess.run(["/bin/bash", "-c", script], input=b"the case", pass_fds=[write],
                              check=False)
        os.close(write)
        with os.fdopen(read, "rb") as observations:
            self.assertEqual((done.returncode, observations.read()), (0, b"the case"))


# Writes wherever everybody may, says where it could, and opens that to everybody.
LEAVE = """for folder in /tmp /var/tmp /dev/shm "$TMPDIR"; do
  echo secret > $folder/left-%s && chmod 666 $folder/left-%s && echo $folder
done"""
LOOK = 'ls -A /tmp /var/tmp /dev/shm "$TMPDIR" | grep left-%s; echo looked'


class OneRunAfterAnother(unittest.TestCase):
    """No file of a run is there for the next one."""

    def setUp(self):
        self.mark = f"{os.getpid()}-{self.id().rpartition('.')[2]}"
        self.addCleanup(self.remove)

    def remove(self):
        for folder in jail.SHARED:
            jail.remove(f"{folder}/left-{self.mark}")

    def call(self, script, *before):
        # From a copy: another user may not be able to read the tree.
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            copy = Path(folder) / "jail.py"
            copy.write_bytes(Path(jail.__file__).read_bytes())
            copy.chmod(0o644)
            done = subprocess.run([*before, jail.find_program("python3"), "-I", "-S", str(copy),
                                   "--", "/bin/sh", "-c", script], capture_output=True, text=True,
                                  check=False, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def check(self, *before):
        wrote = self.call(LEAVE % (self.mark, self.mark), *before)
        own = wrote[-1]
        self.assertEqual(self.call(LOOK % self.mark, *before), ["looked"])
        return wrote, own

    def left_here(self):
        return [folder for folder in jail.SHARED
                if os.path.exists(f"{folder}/left-{self.mark}")]

    @unittest.skipUnless(may_mount(), "only root can mount here, and not in a chroot")
    def test_folders_of_its_own(self):
        wrote, own = self.check()
        self.assertEqual((wrote, own), (["/tmp", "/var/tmp", "/dev/shm", "/tmp"], "/tmp"))
        self.assertEqual(self.left_here(), [])

    @unittest.skipUnless(jail.is_root() and shutil.which("setpriv"), "needs root, and setpriv")
    def test_root_in_a_container_without_the_right_to_mount(self):
        wrote, own = self.check("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
        self.assertIn("/tmp", wrote)
        self.assertTrue(own.startswith("/tmp/unshard-run-"), own)
        self.assertEqual(self.left_here(), [])
        self.assertFalse(os.path.exists(own))

    def test_not_root(self):
        before = (["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
                  if jail.is_root() and shutil.which("setpriv") else [])
        if jail.is_root() and not before:
            self.skipTest("needs setpriv to be somebody else")
        own = self.call('echo x > "$TMPDIR/x"; ls "$TMPDIR"; echo "$TMPDIR"', *before)
        self.assertEqual(own[0], "x")
        self.assertTrue(os.path.basename(own[1]).startswith("unshard-run-"), own)
        self.assertFalse(os.path.exists(own[1]))

    @unittest.skipUnless(may_mount(), "only root can mount here, and not in a chroot")
    def test_what_it_needs_of_them_is_kept(self):
        with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as other:
            for folder in (kept, other):
                os.chmod(folder, 0o755)
                path = Path(folder) / "file"
                path.write_text(folder, encoding="ascii")
                path.chmod(0o644)
            ended = jail.run(["/bin/sh", "-c", f"cat {kept}/file; cat {other}/file"], jail.Limits(),
                             keep=[kept])
            self.assertEqual(ended.out.decode(), kept)


class CommandLine(unittest.TestCase):
    def call(self, *words):
        return subprocess.run([*JAIL, *words], capture_output=True, check=False)

    def test_it_ends_as_the_command_ends(self):
        self.assertEqual(self.call("--", "/bin/sh", "-c", "exit 5").returncode, 5)
        self.assertEqual(self.call("--", "/bin/sh", "-c", "kill -ABRT $$").returncode,
                         -signal.SIGABRT)

    def test_last_words(self):
        done = self.call("--asleep", "1", "--", "sleep", "100")
        self.assertEqual(done.returncode, jail.KILLED)
        self.assertTrue(done.stderr.splitlines()[-1].startswith(b"jail: killed: deadlocked"))

    def test_two_kills_shorten_what_comes(self):
        with tempfile.TemporaryDirectory() as state:
            options = ("--state", state, "--cpu", "2", "--asleep", "0.5", "--")
            for _ in range(2):
                self.assertEqual(self.call(*options, "sleep", "50").returncode, jail.KILLED)
            self.assertEqual(jail.read_kills(state), 2)
            done = self.call("--state", state, "--cpu", "2", "--wall", "60", "--", "/bin/sh", "-c",
                             "ulimit -t")
            self.assertEqual(done.stdout.strip(), b"1")

    def test_nonsense(self):
        for words in ((), ("--cpu", "1"), ("--color", "1", "--", "true"), ("--",)):
            done = self.call(*words)
            self.assertEqual(done.returncode, jail.BROKEN)
            self.assertIn(b"jail: ", done.stderr)


class Staying(unittest.TestCase):
    """One jail, and one command after another over its socket."""

    def setUp(self):
        self.state = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.state)
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.jail = subprocess.Popen(
            [*JAIL, "--stay", "--fd3", "--cpu", "4", "--asleep", "1", "--state", self.state, "--",
             "/bin/sh", "-c"], stdin=theirs, stderr=subprocess.PIPE)
        theirs.close()
        self.ends_with = 0
        self.addCleanup(self.end)

    def end(self):
        self.line.close()
        self.assertEqual((self.jail.wait(), self.jail.stderr.read()), (self.ends_with, b""))
        self.jail.stderr.close()

    def call(self, script, given=b"", *words):
        """(the answer's code, what was printed, what came through descriptor 3)."""
        pipes = [os.pipe() for _ in range(3)]
        (given_out, given_in), (printed_out, printed_in), (seen_out, seen_in) = pipes
        os.write(given_in, given)
        os.close(given_in)
        socket.send_fds(self.line, ["\0".join([script, *words]).encode()],
                        [given_out, printed_in, seen_in])
        for each in (given_out, printed_in, seen_in):
            os.close(each)
        answer = self.line.recv(100).split()
        with os.fdopen(printed_out, "rb") as printed, os.fdopen(seen_out, "rb") as seen:
            self.assertEqual(len(answer), 2)
            self.assertGreaterEqual(float(answer[1]), 0)
            return int(answer[0]), printed.read().decode(), seen.read()

    def test_each_run_is_like_the_only_one(self):
        seen = 'cat >&3; echo "$1"; echo two >&2; ls /proc/self/fd | wc -l; exit 5'
        for given in (b"a case", b"another"):
            self.assertEqual(self.call(seen, given, "sh", given.decode()),
                             (5, f"{given.decode()}\n5\ntwo\n", given))
        self.assertEqual(self.call("kill -SEGV $$")[0], -signal.SIGSEGV)
        self.assertEqual(self.call("exit 0"), (0, "", b""))

    def test_what_does_not_end_is_ended_and_the_next_runs(self):
        code, said, _ = self.call("echo begun; sleep 1000")
        self.assertEqual(code, jail.KILLED)
        self.assertTrue(said.startswith("begun\n"), said)
        self.assertTrue(said.splitlines()[-1].startswith("jail: killed: deadlocked"), said)
        self.assertEqual(self.call("ulimit -t")[1], "4\n")
        self.assertEqual(self.call("sleep 1000")[0], jail.KILLED)
        self.assertEqual(self.call("ulimit -t")[1], "1\n")  # after two kills
        self.assertEqual(self.call("ulimit -t")[1], "1\n")  # no shorter

    @unittest.skipUnless(jail.is_root(), "only root can give a command a user of its own")
    def test_each_run_has_a_user_of_its_own(self):
        users = [int(self.call("id -u; sleep 1000 &")[1]) for _ in range(3)]
        self.assertEqual(len(set(users)), 3)
        noted = Path(self.state, "uids").read_text(encoding="ascii").split()
        self.assertEqual(noted, [str(user) for user in users])
        self.assertEqual([pid for pid, uid, _ in jail.processes() if uid in users], [])

    def test_nothing_of_a_run_is_there_for_the_next(self):
        self.call('echo x > "$TMPDIR/left"; export LEFT=1; umask 0; cd /tmp')
        self.assertEqual(self.call('ls -A "$TMPDIR"; echo "$LEFT"; umask; pwd')[1],
                         "\n0077\n/\n")

    def test_it_opens_no_more_with_each_run(self):
        def opened():
            return sorted(os.listdir(f"/proc/{self.jail.pid}/fd"))
        self.call("exit 0")
        before = opened()
        for script in ("exit 0", "kill -SEGV $$", "echo out; echo err >&2"):
            self.call(script)
        self.assertEqual(opened(), before)

    def test_a_run_that_cannot_be_made_ends_it_after_the_answer(self):
        shutil.rmtree(self.state)
        code, said, _ = self.call("exit 0")
        os.mkdir(self.state)
        self.assertEqual(code, jail.BROKEN)
        self.assertIn("jail: [Errno 2]", said)
        with self.assertRaises(BrokenPipeError):
            self.line.send(b"exit 0")
        self.assertEqual(self.jail.wait(), jail.BROKEN)
        self.ends_with = jail.BROKEN

    @unittest.skipUnless(jail.is_root(), "only root can give a command a user of its own")
    def test_told_to_end_it_ends_nothing_that_is_not_its_own(self):
        """Its last run's user may be another jail's by now."""
        user = int(self.call("id -u")[1])
        self.assertTrue(jail.take(user))
        self.addCleanup(jail.release, user)
        other = subprocess.Popen(["sleep", "1000"], user=user, group=user, extra_groups=[])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        self.jail.terminate()
        self.ends_with = -signal.SIGTERM
        self.assertEqual(self.jail.wait(), self.ends_with)
        self.assertIsNone(other.poll())

    def test_it_ends_when_nobody_hears_its_answer(self):
        read, write = os.pipe()
        socket.send_fds(self.line, [b"echo begun; read line"], [read, write, write])
        self.line.close()  # end() waits for it
        os.close(read)
        os.close(write)


@unittest.skipUnless(jail.is_root(), "only root can give a command a user of its own")
class Isolation(unittest.TestCase):
    def test_a_user_of_its_own(self):
        user, *groups = map(int, shell("id -u; id -G").out.split())
        self.assertTrue(jail.FIRST_UID <= user < jail.FIRST_UID + jail.UIDS)
        self.assertEqual(groups, [user])
        self.assertNotEqual(int(shell("id -u").out), user)

    def test_a_kernel_that_does_not_look_for_users(self):
        """gVisor's getpriority() finds everybody."""
        with mock.patch("os.getpriority", return_value=0):
            uid = jail.fresh_uid()
            self.addCleanup(jail.release, uid)
            self.assertFalse(jail.has_processes(uid))
            self.assertTrue(jail.has_processes(0))
            self.assertEqual(shell("id -u; sleep 1000 & exit 3").code, 3)

    def test_secrets_cannot_be_read(self):
        with tempfile.TemporaryDirectory() as folder:
            secret = Path(folder) / "hidden_cases.cpp"
            secret.write_text("secret", encoding="utf-8")
            self.assertNotIn(b"secret", shell(f"cat {secret}").out)

    def test_what_it_leaves_running_is_killed(self):
        ended = shell("setsid sleep 1000 & setsid sleep 1000 & id -u")
        user = int(ended.out)
        self.assertEqual([pid for pid, uid, _ in jail.processes() if uid == user], [])

    def test_a_fork_bomb(self):
        bomb = jail.Jail(["/bin/bash", "-c", "f() { f | f & }; f; sleep 100"],
                         jail.Limits(cpu=2, wall=4, processes=40))
        self.assertTrue(bomb.run().killed)
        self.assertEqual([pid for pid, uid, _ in jail.processes() if uid == bomb.uid], [])


if __name__ == "__main__":
    unittest.main()
