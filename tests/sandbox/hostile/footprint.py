"""A candidate that looks at, or changes, everything in its sandbox that a process could write or set.

`f("look")` returns what is there; `f("leave")` changes all it can. What one test or candidate leaves, the next must not see.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
SKIPPED = (
    "/proc",
    "/sys/kernel",
    "/sys/devices",
    "/sys/bus",
    "/sys/class",
    "/sys/module",
    "/sys/firmware",
    "/usr/share",
    "/usr/lib",
)
OTHERS = sorted({1, os.getppid()})
OPTIONS = {"KEEPCAPS": 7, "TIMERSLACK": 30, "PDEATHSIG": 2, "SUBREAPER": 37, "THP": 42, "DUMPABLE": 3, "TIMING": 13}


def f(what):
    return look() if what == "look" else leave()


def places():
    """Every path of the sandbox but where nothing can be written by design, and the kernel's own trees."""
    for where, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if not os.path.join(where, name).startswith(SKIPPED)]
        yield where
        yield from (os.path.join(where, name) for name in names)


def look():
    found = {}

    def keep(name, get):
        try:
            found[name] = str(get())[:4000]
        except (OSError, ValueError, AttributeError) as error:
            found[name] = type(error).__name__

    def state(path):
        seen = os.lstat(path)
        kept = [stat.filemode(seen.st_mode), seen.st_uid]
        if stat.S_ISDIR(seen.st_mode):
            kept.append(sorted(os.listdir(path)))
        elif stat.S_ISREG(seen.st_mode):
            with open(path, "rb") as file:
                kept.append(file.read(4000))
        return [*kept, sorted(os.listxattr(path, follow_symlinks=False))]

    for path in places():
        if os.access(path, os.W_OK, follow_symlinks=False) or path in ("/tmp", "/dev/shm", "/dev/mqueue"):
            keep(path, lambda path=path: state(path))
    for pid in ("self", *OTHERS):
        for name in ("comm", "oom_score_adj", "coredump_filter", "timerslack_ns", "loginuid", "sessionid"):
            keep(
                f"/proc/{pid if pid == 'self' or pid == 1 else 'parent'}/{name}",
                lambda p=pid, n=name: open(f"/proc/{p}/{n}").read(),
            )
    for pid in ("self", *OTHERS):
        keep(
            f"nice of the group of {'self' if pid == 'self' else 'another'}",
            lambda p=pid: open(f"/proc/{p}/autogroup").read().split("nice")[1],
        )
    for pid in (0, *OTHERS):
        who = {0: "self", 1: "1"}.get(pid, "parent")
        keep(f"priority of {who}", lambda p=pid: os.getpriority(os.PRIO_PROCESS, p))
        keep(f"scheduler of {who}", lambda p=pid: os.sched_getscheduler(p))
        keep(f"affinity of {who}", lambda p=pid: sorted(os.sched_getaffinity(p)))
        keep(f"io priority of {who}", lambda p=pid: libc.syscall(252, 1, p))
    keep("priority of the user", lambda: os.getpriority(os.PRIO_USER, 0))
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            keep(name, lambda n=name: resource.getrlimit(getattr(resource, n)))
    for name, number in OPTIONS.items():
        keep(f"prctl {name}", lambda n=number: libc.prctl(n, 0, 0, 0, 0))
    for number in range(1, 65):
        if number not in (32, 33):
            keep(f"signal {number}", lambda n=number: getattr(signal.getsignal(n), "name", signal.getsignal(n)))
    keep("blocked signals", lambda: sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))
    keep("timer", lambda: signal.getitimer(signal.ITIMER_REAL))
    for name in ("shm", "sem", "msg"):
        keep(f"SysV {name}", lambda n=name: len(open(f"/proc/sysvipc/{n}").read().splitlines()))
    keep("file locks", lambda: len(open("/proc/locks").read().splitlines()))
    keep("keys", lambda: open("/proc/keys").read())
    keep("abstract sockets", lambda: sum("@left" in line for line in open("/proc/net/unix")))
    keep("other processes", lambda: sum(p.isdigit() and int(p) not in (os.getpid(), *OTHERS) for p in os.listdir("/proc")))
    keep("host name", lambda: "left" in socket.gethostname())
    keep("environment", lambda: sorted(pair for pair in os.environ.items() if pair[0] != "HOSTNAME"))
    keep("folder", os.getcwd)
    keep("umask", lambda: os.umask(0))
    keep("path", lambda: sys.path)
    keep("descriptors", lambda: sorted(os.listdir("/proc/self/fd"))[:4])
    return found


def leave():
    done = []

    def attempt(act, *arguments):
        try:
            act(*arguments)
            done.append(getattr(act, "__name__", "") or str(act))
        except (OSError, ValueError, TypeError):
            pass

    def write(path, text):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def lock(path):
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)

    for path in places():
        if os.path.islink(path) or (path.startswith("/dev/") and not os.path.isdir(path)):
            continue
        if os.path.isdir(path):
            for name, make in (("left", lambda p: open(p, "w").write("left")), ("fifo", os.mkfifo), ("folder", os.mkdir)):
                attempt(make, os.path.join(path, name))
            attempt(os.symlink, "/etc/passwd", os.path.join(path, "link"))
        elif os.access(path, os.W_OK):
            attempt(write, path, b"left")
        if path.count("/") < 3:
            attempt(os.setxattr, path, "user.left", b"x")
            attempt(os.chmod, path, 0o777)
            attempt(lock, path)
    for pid in ("self", *OTHERS):
        for name, text in (
            ("comm", b"left"),
            ("autogroup", b"19"),
            ("oom_score_adj", b"500"),
            ("coredump_filter", b"0x7f"),
            ("timerslack_ns", b"99999"),
            ("loginuid", b"1"),
            ("clear_refs", b"1"),
            ("sched", b"0"),
        ):
            attempt(write, f"/proc/{pid}/{name}", text)
    for pid in (0, *OTHERS):
        attempt(os.setpriority, os.PRIO_PROCESS, pid, 9)
        attempt(os.sched_setscheduler, pid, os.SCHED_BATCH, os.sched_param(0))
        attempt(os.sched_setaffinity, pid, {0})
        attempt(libc.syscall, 251, 1, pid, (2 << 13) | 7)
        for name in dir(resource):
            if name.startswith("RLIMIT_") and pid:
                attempt(resource.prlimit, pid, getattr(resource, name), (1, 1))
    attempt(os.setpriority, os.PRIO_USER, 0, 9)
    attempt(os.nice, 7)
    for arguments in (
        (29, 42, 4096, 0o1666),
        (64, 42, 1, 0o1666),
        (68, 42, 0o1666),
        (240, b"left", 0o102, 0o666, None),
        (248, b"user", b"left", b"x", 1, -3),
        (250, 1, b"left"),
        (135, 0x0040000),
    ):
        attempt(libc.syscall, *arguments)
    for option, value in ((8, 1), (29, 99999), (36, 1), (41, 1), (1, 9)):
        attempt(libc.prctl, option, value, 0, 0, 0)
    for number in range(1, 32):
        if number not in (9, 19):
            attempt(signal.signal, number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    attempt(socket.sethostname, "left")
    attempt(os.chdir, "/")
    os.umask(0o777)
    os.environ["LEFT"] = "x"
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0left")
    if os.fork() == 0:
        os.setsid()
        while True:
            signal.pause()
    return sorted(set(done))
