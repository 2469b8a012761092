"""Runs one command that is not trusted: its own user, limits, a clean environment, and an end.

    jail.py --cpu 10 --memory 4G --fd3 -- build/grade/bin/runner_task3 <case 3>observations

Standard input passes through, and with --fd3 file descriptor 3; all others are closed. What the
command prints is passed on up to --output bytes. CPU time decides, wall time only at six times as
much. When nothing of it has run for --asleep seconds it is deadlocked.

When it ends by itself the jail ends in the same way (its exit code, or its signal). When the jail
ended it: exit code 124, and a last line "jail: killed: …" on standard error. Run by root, the
command gets a user of its own (40000 and up), which no other jail of this machine has meanwhile.
All that this user left running is killed afterwards. Its one group is --group. Run by anybody else
there is no isolation, only limits.

No file outlives a run. /tmp and the other folders that everybody may write are the command's own,
and empty but for what --keep names: a mount namespace, if this process may make one. Otherwise (no
root, or a container without that right) TMPDIR is a folder of the run, and root removes besides what
the command's user has left in the shared ones.

With --stay it runs one command after another, each as if it had been started for it alone: standard
input is a socket over which a judge sends them (tests/graded/child.h). Python starts once then, and
not once a graded case. Imports are kept few even so.
"""

import errno
import fcntl
import itertools
import os
import resource
import select
import stat
import struct
import sys
import time

import _signal as signal  # without enum, which would be a quarter of what a jail costs that runs once

KILLED = 124  # exit code: the jail ended the command
BROKEN = 125  # exit code: the command could not be started
FIRST_UID, UIDS = 40000, 20000
_NOBODY = (1 << 31) - 5  # a user whom no system has
TAKEN = "/run/unshard-users"  # root's: byte n of it is locked while a jail has user n
WALL_FACTOR = 6  # wall time allowed for each second of CPU time
KILLS_ALLOWED = 2  # after so many resource kills in one state folder …
SHORTENED = 4  # … the remaining runs get this fraction of the CPU time
HOPELESS_OUTPUT = 16 << 20  # what prints more than this is ended, not only cut off
BY_CLOCK = "by_clock"  # in a state folder: one letter for each run of which that is true
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # everybody may write here
TMPDIR = "@TMPDIR@"  # in a variable of --env: the run's own folder
# Options for a command that starts ranks as processes: MPI keeps what they share in files, and has
# threads of its own. (Shared memory of a process that is killed would stay in /dev/shm.)
FOR_PROCESSES = ("--file", "1G", "--files", "256", "--processes", "512",
                 "--env", f"OMPI_MCA_btl_vader_backing_directory={TMPDIR}",
                 "--env", f"OMPI_MCA_btl_sm_backing_directory={TMPDIR}")
_NEWNS, _NEWIPC = 0x20000, 0x8000000  # unshare()
_NOSUID, _NODEV, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 0x1000, 0x4000, 0x40000  # mount()
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Limits:
    """What one run may use. Bytes and seconds."""

    def __init__(self, cpu=10.0, memory=4 << 30, file=1 << 20, output=60 << 10, processes=128,
                 files=64, asleep=5.0, wall=None, resident=2 << 30):
        self.cpu, self.memory, self.file, self.output = cpu, memory, file, output
        self.processes, self.files, self.asleep = processes, files, asleep
        # What is in memory at one time. The address space (memory) must be larger: each of at most
        # 128 threads reserves 8 MiB for its stack. (Every graded case of the reference runs in 512
        # MiB of it: the allocator of a rank asks for less where less is left.)
        self.resident = resident
        self.wall = wall if wall is not None else WALL_FACTOR * cpu

    def shortened(self):
        """The same, with a part of the time."""
        limits = Limits()
        vars(limits).update(vars(self), cpu=self.cpu / SHORTENED, wall=self.wall / SHORTENED)
        return limits


class Outcome:
    """How a run ended: kind is exited, signal, cpu, wall, asleep, output, memory or broken."""

    def __init__(self, kind, code, says, out, err, cpu, wall):
        self.kind, self.code, self.says = kind, code, says
        self.out, self.err, self.cpu, self.wall = out, err, cpu, wall

    @property
    def killed(self):
        return self.kind in ("cpu", "wall", "asleep", "output", "memory")

    @property
    def by_clock(self):
        """Whether it might have ended otherwise on a machine with less to do: the clock ended it,
        or somebody else did, as a system that has no memory left."""
        return self.kind == "wall" or self.kind == "signal" and self.code == -signal.SIGKILL


def is_root():
    return os.geteuid() == 0


def environment(extra=()):
    """The whole environment of a jailed command: nothing is inherited."""
    clean = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent",
             # Keeps the address space small: it is limited.
             "MALLOC_ARENA_MAX": "2"}
    clean.update(each.split("=", 1) for each in extra)
    return clean


def lower(what, soft, hard):
    """Sets a limit of this process. A lower one that holds already stays: root of a container may
    not raise it."""
    most = resource.getrlimit(what)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = (most if each == resource.RLIM_INFINITY else min(each, most)
                      for each in (soft, hard))
    resource.setrlimit(what, (soft, hard))


def own_folders(kept, nbytes):
    """Empty folders in place of SHARED for this process and what it starts; of what was there, only
    `kept`. False, and nothing changed: it may not do that."""
    import ctypes  # not needed otherwise

    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source, target, kind, flags, options=None):
        words = [each and os.fsencode(each) for each in (source, target, kind)]
        return libc.mount(*words, flags, options and options.encode()) == 0

    if libc.unshare(_NEWNS | _NEWIPC) != 0 or not mount("none", "/", None, _RECURSIVE | _PRIVATE):
        return False
    handles = {path: os.open(path, os.O_PATH | os.O_DIRECTORY)
               for path in map(os.path.realpath, kept)}
    folders = [folder for folder in SHARED if os.path.isdir(folder)]
    for folder in folders:
        if not mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV,
                     f"mode=1777,size={nbytes},nr_inodes=8192"):
            if folder == folders[0]:
                return False
            raise OSError(ctypes.get_errno(), f"{folder}: no folder of its own")
    for path, handle in handles.items():
        if not os.path.isdir(path):
            os.makedirs(path, 0o711)
            if not mount(f"/proc/self/fd/{handle}", path, None, _BIND):
                raise OSError(ctypes.get_errno(), f"{path}: cannot be kept")
        os.close(handle)
    return True


def remove(path):
    """A file or a folder with all that is in it. Nobody writes there any more."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            for name in os.listdir(path):
                remove(os.path.join(path, name))
            os.rmdir(path)
        else:
            os.unlink(path)
    except OSError:
        pass


def remove_files_of(uid, folder):
    """What a user of the jail has left in a folder that everybody may write."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            info = os.lstat(path)
        except OSError:
            continue
        if info.st_uid == uid:
            remove(path)
        elif stat.S_ISDIR(info.st_mode) and info.st_mode & 0o002:
            remove_files_of(uid, path)


def find_program(name):
    """The path of a command, by the jail's own PATH. Looked up outside: imports fail inside."""
    if "/" in name:
        return os.path.abspath(name)
    for folder in environment()["PATH"].split(":"):
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return name


_asked = itertools.count()  # how often this process looked at a user
_taken = {}  # by user, the open file that holds the lock


def take(uid):
    """Whether this process now has `uid` for itself, until release() or its end. Process ids do not
    see to that: there are more of them than users."""
    handle = os.open(TAKEN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK,
                    struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, uid, 1, 0))
    except OSError as error:
        os.close(handle)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    _taken[uid] = handle
    return True


def release(uid):
    """Another jail may have this user. Nothing of it must be left."""
    if uid in _taken:
        os.close(_taken.pop(uid))


def fresh_uid():
    """A user nobody runs as, taken."""
    for _ in range(UIDS):
        uid = FIRST_UID + (os.getpid() + next(_asked)) % UIDS
        if not has_processes(uid) and take(uid):
            return uid
    raise OSError(errno.EAGAIN, "every user of the jail is busy")


def has_processes(uid):
    """Whether anything is there whose user is `uid`, be it a zombie. One look of the kernel at its
    whole list, to whose end a new process is added: none can slip past."""
    if _has_priority(_NOBODY):  # a kernel that does not look (gVisor)
        return any(each == uid for _, each in owners())
    return _has_priority(uid)


def _has_priority(uid):
    try:
        os.getpriority(os.PRIO_USER, uid)
        return True
    except ProcessLookupError:
        return False


def owners():
    """(process id, user) of all there are."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield int(name), os.stat(f"/proc/{name}").st_uid
            except OSError:
                pass  # it has just ended


def processes(of=None):
    """(process id, user, session) of all that run (as user `of`). What has ended, a zombie, does
    not run."""
    for pid, uid in owners():
        if of is not None and uid != of:
            continue
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                yield pid, uid, int(fields[3])
        except (OSError, IndexError, ValueError):
            pass  # it has just ended


def look_at(pid):
    """(CPU seconds used by a process, are all its threads asleep, bytes in memory)."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    asleep = True
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/stat", "rb") as stat:
            asleep &= stat.read().rpartition(b")")[2].split()[0] in (b"S", b"T", b"t", b"Z", b"X")
    return sum(int(fields[i]) for i in (11, 12)) / TICKS, asleep, int(fields[21]) * PAGE


def kill_user(uid):
    """Ends all processes of `uid`, however fast they multiply."""
    for _ in range(100):
        if not has_processes(uid):
            return
        child = os.fork()
        if child == 0:
            try:
                os.setuid(uid)
                os.kill(-1, signal.SIGKILL)  # all that this user may signal: its own
            except OSError:
                pass
            os._exit(0)
        os.waitpid(child, 0)
        if not any(processes(uid)):
            return
        time.sleep(0.01)


def sweep(state):
    """Ends what an interrupted jail with this state folder may have left running. A user may be
    another jail's by now: that one is let alone."""
    try:
        with open(os.path.join(state, "uids"), encoding="ascii") as uids:
            noted = {int(line) for line in uids}
    except FileNotFoundError:
        return
    if not is_root():
        return
    alive = {uid for _, uid in owners()} & noted
    if alive:
        _kill_jails_of(state)
    for uid in noted:
        if not FIRST_UID <= uid < FIRST_UID + UIDS or not take(uid):
            continue
        if uid in alive:
            kill_user(uid)
        for folder in SHARED:
            remove_files_of(uid, folder)
        release(uid)


def _kill_jails_of(state):
    """Ends jails with this state folder, which outlive who started them. Afterwards nobody has
    their users."""
    words = b"\0--state\0" + os.fsencode(state) + b"\0"
    for pid, uid in owners():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                if uid != 0 or words not in command.read():
                    continue
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], 5)
            os.close(handle)
        except OSError:
            pass  # it has just ended


class Jail:
    """One run of one command."""

    def __init__(self, command, limits, folder="/", extra=(), fd3=False, uid=None, stdin=0,
                 keep=(), group=None):
        self.command, self.limits, self.folder, self.extra = command, limits, folder, extra
        self.keep, self.scratch = keep, None
        self.fd3, self.stdin = fd3, stdin
        self.uid = (uid if uid is not None else fresh_uid()) if is_root() else None
        self.groups = [] if group is None else [group]
        self.is_users_end = uid is None
        self.program = find_program(command[0])
        self.child = None
        self.kept = {1: b"", 2: b""}
        self.printed = 0

    def run(self):
        try:
            return self._run()
        finally:
            if self.is_users_end:
                release(self.uid)

    def _run(self):
        started = time.monotonic()
        pipes = {1: os.pipe(), 2: os.pipe()}
        failure = os.pipe()
        self._make_scratch()
        self.child = os.fork()
        if self.child == 0:
            self._become_command(pipes, failure[1])
        for pipe in (*pipes.values(), failure):
            os.close(pipe[1])
        readers = {pipes[1][0]: 1, pipes[2][0]: 2}
        try:
            why = self._watch(readers, started)
        finally:
            self._end_all()
        broken = os.read(failure[0], 4096).decode(errors="replace")
        _, status, usage = os.wait4(self.child, 0)
        self._drain(readers)
        for reader in (*readers, failure[0]):
            os.close(reader)
        cpu = usage.ru_utime + usage.ru_stime
        return self._outcome(why, status, broken, cpu, time.monotonic() - started)

    def _make_scratch(self):
        """A folder for TMPDIR, for where /tmp cannot be the run's own."""
        folder = os.environ.get("TMPDIR") or "/tmp"
        path = os.path.join(folder, f"unshard-run-{os.getpid()}-{time.monotonic_ns()}")
        try:
            os.mkdir(path, 0o700)
            if self.uid is not None:
                os.chown(path, self.uid, self.uid)
            self.scratch = path
        except OSError:
            pass  # what needs it says so

    def _environment(self):
        is_own = self.uid is not None and own_folders(self.keep, max(64 << 20, self.limits.file))
        temporary = "/tmp" if is_own or self.scratch is None else self.scratch
        return environment([f"TMPDIR={temporary}", *(each.replace(TMPDIR, temporary)
                                                     for each in self.extra)])

    def _become_command(self, pipes, failure):
        try:
            os.setsid()
            if self.stdin != 0:
                os.dup2(self.stdin, 0)
            # Away from the low numbers first: any of the pipes may be one of them.
            high = [os.dup(pipes[1][1]), os.dup(pipes[2][1]), failure]
            os.dup2(high[0], 1)
            os.dup2(high[1], 2)
            if failure <= 3:
                raise OSError(errno.EBADF, "file descriptors 0, 1 and 2 must be open")
            first = 4 if self.fd3 else 3
            os.closerange(first, failure)
            os.closerange(failure + 1, 1 << 16)
            os.set_inheritable(failure, False)
            variables = self._environment()
            os.chdir(self.folder)
            os.umask(0o077)
            limits = self.limits
            seconds = max(1, int(limits.cpu + 0.999))
            for what, soft, hard in (
                    (resource.RLIMIT_CPU, seconds, seconds + 1),
                    (resource.RLIMIT_AS, limits.memory, limits.memory),
                    (resource.RLIMIT_FSIZE, limits.file, limits.file),
                    (resource.RLIMIT_CORE, 0, 0),
                    (resource.RLIMIT_NOFILE, limits.files, limits.files)):
                lower(what, soft, hard)
            if self.uid is not None:
                # Counts the threads of the whole user: only for a user who has nothing else.
                lower(resource.RLIMIT_NPROC, limits.processes, limits.processes)
                if self.fd3:  # a process of it may open the other's (run_case.sh)
                    os.chown("/proc/self/fd/3", self.uid, self.uid)
                os.setgroups(self.groups)
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.execve(self.program, self.command, variables)
        except BaseException as error:  # pylint: disable=broad-except
            os.write(failure, f"{self.command[0]}: {error}".encode()[:4000])
        finally:
            os._exit(BROKEN)

    def _members(self):
        """The processes of this run."""
        for pid, _, session in processes(self.uid):
            if self.uid is not None or session == self.child:
                yield pid

    def _watch(self, readers, started):
        """Reads and waits until the command ends, or has to be ended: then says why."""
        limits = self.limits
        handle = os.pidfd_open(self.child)
        poll = select.poll()
        for reader in readers:
            os.set_blocking(reader, False)
            poll.register(reader, select.POLLIN)
        poll.register(handle, select.POLLIN)
        used, asleep_since, next_look = {}, None, started + 0.5
        try:
            while True:
                now = time.monotonic()
                for ready, _ in poll.poll(max(0, (next_look - now) * 1000) + 1):
                    if ready == handle:
                        return None
                    if not self._read(ready, readers[ready]):
                        poll.unregister(ready)
                if self.printed > HOPELESS_OUTPUT:
                    return "output"
                now = time.monotonic()
                if now - started > limits.wall:
                    return "wall"
                if now < next_look:
                    continue
                next_look = now + 0.25
                before, all_asleep, resident = sum(used.values()), True, 0
                for pid in self._members():
                    try:
                        used[pid], asleep, bytes_there = look_at(pid)
                        all_asleep &= asleep
                        resident += bytes_there
                    except OSError:
                        pass  # it has just ended
                if sum(used.values()) > limits.cpu:
                    return "cpu"
                if resident > limits.resident:
                    return "memory"
                if not all_asleep or sum(used.values()) > before + 0.02:
                    asleep_since = None
                elif asleep_since is None:
                    asleep_since = now
                elif now - asleep_since >= limits.asleep:
                    return "asleep"
        finally:
            os.close(handle)

    def _read(self, reader, which):
        try:
            data = os.read(reader, 1 << 16)
        except BlockingIOError:
            return True
        room = self.limits.output - len(self.kept[1]) - len(self.kept[2])
        self.kept[which] += data[:max(0, room)]
        self.printed += len(data)
        return bool(data)

    def _drain(self, readers):
        """What was printed and not yet read. Nobody is left to print more."""
        for reader, which in readers.items():
            os.set_blocking(reader, False)
            before = -1
            while self.printed != before and self.printed <= HOPELESS_OUTPUT:
                before = self.printed
                self._read(reader, which)

    def _end_all(self):
        for end in (os.killpg, os.kill) if self.child is not None else ():
            try:
                end(self.child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.uid is not None:
            kill_user(self.uid)
            for folder in SHARED:
                remove_files_of(self.uid, folder)
        if self.scratch is not None:
            remove(self.scratch)

    def _outcome(self, why, status, broken, cpu, wall):
        limits = self.limits
        code = os.waitstatus_to_exitcode(status)
        if broken:
            return Outcome("broken", BROKEN, broken, b"", b"", cpu, wall)
        if code == -signal.SIGXCPU or (why is None and code == -signal.SIGKILL and
                                       cpu >= limits.cpu):
            why = "cpu"
        says = {
            "cpu": f"used up its {limits.cpu:g} s of CPU time (an endless loop?)",
            "wall": f"was not done after {limits.wall:g} s",
            "asleep": f"deadlocked: no thread of it ran for {limits.asleep:g} s",
            "memory": f"used more than {limits.resident >> 20} MiB of memory",
            "output": f"printed more than {HOPELESS_OUTPUT >> 20} MiB",
        }.get(why, "")
        kind = why or ("signal" if code < 0 else "exited")
        return Outcome(kind, code, says, self.kept[1], self.kept[2], cpu, wall)


def run(command, limits, **options):
    """Runs `command` in a jail; see Jail for the options."""
    return Jail([str(word) for word in command], limits, **options).run()


def nbytes(text):
    """'2G', '64K', '1000' in bytes; 'none' is no limit."""
    if text == "none":
        return resource.RLIM_INFINITY
    factor = SUFFIXES.get(text[-1:].upper(), 1)
    return int(float(text.rstrip("KMGkmg")) * factor)


def read_kills(state):
    try:
        with open(os.path.join(state, "kills"), encoding="ascii") as file:
            return len(file.read())
    except FileNotFoundError:
        return 0


def append(state, name, text):
    with open(os.path.join(state, name), "a", encoding="ascii") as file:
        file.write(text)


def parse(arguments):
    """(limits, options, command). By hand: argparse takes longer to import than a run takes."""
    readers = {"cpu": float, "wall": float, "memory": nbytes, "file": nbytes, "output": nbytes,
               "resident": nbytes, "processes": int, "files": int, "asleep": float}
    limits, options = {}, {"state": None, "folder": "/", "extra": [], "keep": [], "fd3": False,
                       "stay": False}
    words = list(arguments)
    while words and words[0] != "--":
        name = words.pop(0).removeprefix("--")
        if name in ("fd3", "stay"):
            options[name] = True
        elif not words or name not in (*readers, "state", "folder", "env", "keep", "group"):
            raise ValueError(f"unknown option '{name}'")
        elif name in readers:
            limits[name] = readers[name](words.pop(0))
        elif name in ("env", "keep"):
            options["extra" if name == "env" else name].append(words.pop(0))
        elif name == "group":
            options[name] = int(words.pop(0))
        else:
            options[name] = words.pop(0)
    if len(words) < 2 and not options["stay"]:
        raise ValueError("no command: write it after --")
    return Limits(**limits), options, words[1:]


def once(limits, options, command, streams=(1, 2)):
    """Runs `command`, and passes on what it printed. Returns its exit code, or minus its signal, and
    the CPU seconds that it used."""
    options = dict(options)
    state = options.pop("state")
    if state is not None and read_kills(state) >= KILLS_ALLOWED:
        limits = limits.shortened()
    jail = Jail(command, limits, **options)
    if state is not None and jail.uid is not None:
        append(state, "uids", f"{jail.uid}\n")

    def stop(number, _frame):
        jail._end_all()
        os._exit(128 + number)

    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    try:
        for number in ends:
            signal.signal(number, stop)
        outcome = jail.run()
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
    if state is not None and outcome.by_clock:
        append(state, BY_CLOCK, "x")
    if state is not None and outcome.killed:
        append(state, "kills", "x")
    last = {"broken": f"jail: could not start {outcome.says}\n"}.get(
        outcome.kind, f"\njail: killed: {outcome.says}\n" if outcome.killed else "")
    for stream, data in zip(streams, (outcome.out, outcome.err + last.encode())):
        while data:
            data = data[os.write(stream, data):]
    return KILLED if outcome.killed else outcome.code, outcome.cpu


def stay(limits, options, command):
    """Runs one command after another, as they come over standard input: tests/graded/child.h says
    what comes and what is answered."""
    import ctypes  # pylint: disable=unused-import  # once, and not again in each run
    import socket  # neither is needed otherwise

    line = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10))
    os.dup2(2, 3)  # 3 is never free: what comes gets higher numbers
    try:
        while True:
            words, handles, _, _ = socket.recv_fds(line, 1 << 16, 3)
            if not words:
                return 0
            given, printed, observations = handles
            os.dup2(observations, 3)
            try:
                ended = once(limits, {**options, "stdin": given},
                             [*command, *words.decode().split("\0")], (printed, printed))
            except OSError as error:
                # What this run has left open here is closed by the end; the next gets a new jail.
                os.write(printed, f"jail: {error}\n".encode())
                line.shutdown(socket.SHUT_RD)
                line.send(b"%d 0" % BROKEN)
                return BROKEN
            for handle in handles:
                os.close(handle)
            os.dup2(2, 3)
            line.send(b"%d %f" % ended)
    except BrokenPipeError:
        return 0  # who asked is gone


def main():
    try:
        limits, options, command = parse(sys.argv[1:])
    except ValueError as error:
        print(f"jail: {error}\n\n{__doc__}", file=sys.stderr)
        return BROKEN
    if options.pop("stay"):
        return stay(limits, options, command)
    code, _ = once(limits, options, command)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
