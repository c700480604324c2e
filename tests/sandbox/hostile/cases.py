"""Programs that attack their sandbox, as data: (name, source, entry, inputs, expected verdict or answer per test).

Each runs in one container, test by test. A tuple lists results that are all right.
"""

ONE_TWO_THREE = [b"[1]", b"[2]", b"[3]"]
GOOD = ["2", "3", "4"]


def _only_second(body: str) -> str:
    """A right program that does `body` when x is 2."""
    return (
        "import os, sys, time\ndef f(x):\n    if x == 2:\n        "
        + body.replace("\n", "\n        ")
        + "\n    return x + 1\n"
    )


def _case(name, source, expected, entry="f", inputs=ONE_TWO_THREE):
    return (name, source, entry, inputs, expected)


def _second(name, body, verdict):
    return _case(name, _only_second(body), ["2", verdict, "4"])


CASES = [
    _case("good", "def f(x): return x + 1", GOOD),
    _second("loop on one input", "while True: pass", "cpu"),
    _second("sleep", "time.sleep(60)", "timeout"),
    _case("loop at import", "while True: pass", ["cpu"] * 3),
    _second(
        "loop swallowing signals",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "while True: pass",
        "cpu",
    ),
    _second("fork bomb", "while True: os.fork()", ("exception", "timeout", "memory", "cpu")),
    _second("memory at once", "x = [b'x' * (1 << 30)]", "memory"),
    _second("memory slowly", "hoard = []\nwhile True: hoard.append(bytearray(1 << 20))", "memory"),
    _second(
        "memory in children",
        "for _ in range(20):\n    if os.fork() == 0:\n        hoard = b'x' * (60 << 20)\n        time.sleep(2)\n        os._exit(0)\n"
        "os.wait()",
        "memory",
    ),
    _second(
        "memory in small programs",  # each smaller than the supervisor, which a kernel would choose by size
        "import subprocess  # numpy, named here, makes the supervisor larger than they are\nhog = 'x = bytearray(9 << 20); import time; time.sleep(3)'\n"
        "for _ in range(40): subprocess.Popen(['python3', '-S', '-c', hog])\ntime.sleep(2)",
        ("memory", "exception", "cpu"),
    ),
    _second(
        "thread bomb",
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()",
        ("exception", "memory", "cpu"),
    ),
    _second("stdout flood", "while True: os.write(1, b'x' * 65536)", "output"),
    _second("stderr flood", "while True: os.write(2, b'x' * 65536)", "output"),
    _second("1 MB print, then right", "print('x' * 1000000)", "3"),
    _second("junk without a newline, then right", "os.write(1, bytes(range(256)) * 1000)", "3"),
    _second("forged raw answer", "os.write(3, b'A999')\nos._exit(0)", "999"),  # worth what a return is worth
    _second("forged failure, then right", "os.write(3, b'E')", "exception"),
    _second("large return", "return 'x' * 50000000", ("output", "memory")),
    _second("os._exit", "os._exit(0)", "exit"),
    _case("os._exit at import", "import os\nos._exit(0)", ["exit"] * 3),
    _second("sys.exit in the function", "sys.exit(0)", "exit"),
    _case("SystemExit at import", "raise SystemExit", ["exit"] * 3),
    _second("kill everyone", "os.kill(-1, 9)", ("exception", "3")),
    _second(
        "kill the supervisor",
        "for n in (9, 15, 19, 2, 11):\n    for pid in {1, os.getppid()}:\n        try: os.kill(pid, n)\n"
        "        except PermissionError: pass",
        "3",
    ),
    _second("kill itself", "os.kill(os.getpid(), 11)", "signal"),
    _second("abort", "os.abort()", "signal"),
    _second("ctypes NULL", "import ctypes\nctypes.string_at(0)", "signal"),
    _second(
        "frame forged on every open descriptor",
        "import struct, json\nh = json.dumps({'id': 1, 'verdict': None, 'detail': '', 'stderr': '', 'loaded': True, 'cpu': 0,"
        " 'wall': 0, 'clean': True}).encode()\nfor fd in range(256):\n    try: os.write(fd, struct.pack('>II', len(h), 3)"
        " + h + b'999')\n    except OSError: pass",
        ("exit", "invalid", "exception", "{x}"),
    ),
    _second(
        "write to the supervisor's descriptors",
        "for fd in range(8):\n    try:\n        open(f'/proc/1/fd/{fd}', 'wb').write(b'x')\n        return 'wrote'\n"
        "    except OSError: pass",
        "3",
    ),
    _second(
        "trace and read the supervisor",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, 1, 0, 0) != -1: return 'traced'\n"
        "try: open('/proc/1/mem', 'rb').read(1); return 'read'\nexcept OSError: pass",
        "3",
    ),
    _second(
        "steal the supervisor's descriptors and memory",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nbuffer = ctypes.create_string_buffer(64)\n"
        "for pid in (1, os.getppid()):\n"
        "    fd = os.pidfd_open(pid) if hasattr(os, 'pidfd_open') else -1\n"
        "    if libc.syscall(438, fd, 1, 0) != -1: return 'descriptor'\n"
        "    iov = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)\n"
        "    if libc.syscall(310, pid, iov, 1, iov, 1, 0) > 0: return 'memory'\n"
        "    if libc.syscall(311, pid, iov, 1, iov, 1, 0) > 0: return 'wrote'",
        ("3", "exception"),
    ),
    _second(
        "limit the supervisor",
        "import resource\ntry:\n    resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)); return 'limited'\nexcept OSError: pass",
        "3",
    ),
    _second(
        "re-nice the supervisor",
        "try: os.setpriority(os.PRIO_PROCESS, 1, 19); return 'reniced'\nexcept OSError: pass",
        "3",
    ),
    _second("always equal", "class A:\n    def __eq__(self, other): return True\nreturn A()", "invalid"),
    _second("str subclass", "class S(str): pass\nreturn S('3')", "invalid"),
    _second("float subclass", "class F(float):\n    def __repr__(self): return '3'\nreturn F(9)", "invalid"),
    _second("NaN", "return float('nan')", "invalid"),
    _second("infinity", "return 1e999", "invalid"),
    _second("set", "return {3}", "invalid"),
    _second("bytes", "return b'3'", "invalid"),
    _second("generator", "return (i for i in [3])", "invalid"),
    _second("complex", "return 3j", "invalid"),
    _second("cycle", "a = []\na.append(a)\nreturn a", "invalid"),
    _second("deep list", "a = []\nfor _ in range(100000): a = [a]\nreturn a", "invalid"),
    _second("huge integer", "return 2 ** 200000", "exception"),
    _case(
        "patches for later tests",
        "import json, time, os, builtins\ndef f(x):\n    r = x + 1\n    json.dumps = lambda *a, **k: '999'\n"
        "    builtins.len = lambda x: 0\n    os.fork = lambda: 1 / 0\n    time.monotonic = lambda: 0\n    return r",
        [("999", "exception", "2"), ("999", "exception", "3"), ("999", "exception", "4")],
    ),
    _case("state in a global", "seen = []\ndef f(x):\n    seen.append(x)\n    return x + len(seen)", GOOD),
    _case(
        "state in a file",
        "import os\ndef f(x):\n    extra = len(os.listdir('/tmp'))\n    open(f'/tmp/{x}', 'w').write('x')\n"
        "    os.makedirs('/tmp/a/b/c', exist_ok=True)\n    os.symlink('/etc/passwd', '/tmp/link')\n    os.mkfifo('/tmp/fifo')\n"
        "    return x + 1 + extra",
        GOOD,
    ),
    _case(
        "daemon that outlives its test",
        "import os, time\ndef f(x):\n    if x == 1 and os.fork() == 0:\n        os.setsid()\n        if os.fork(): os._exit(0)\n"
        "        while True: time.sleep(0.01)\n    time.sleep(0.1)\n"
        "    others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid())]\n"
        "    return x + 1 + (len(others) if x > 1 else 0)",
        GOOD,
    ),
    _second(
        "survivor holding the result pipe", "if os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)", "3"
    ),
    _second("thread that never ends", "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()", "3"),
    _second("recursion", "def r(): r()\nr()", "exception"),
    _second(
        "recursion without Python's limit",
        "sys.setrecursionlimit(10 ** 9)\ndef r(x): return r([x]) + 1\nr(0)",
        ("signal", "memory", "cpu", "exception"),
    ),
    _second("recursion in C", "a = ()\nfor _ in range(100000): a = (a, len)\nhash(a)\nrepr(a)", ("exception", "signal")),
    _second("AF_VSOCK", "import socket\ntry: socket.socket(40, socket.SOCK_STREAM); return 'opened'\nexcept OSError: pass", "3"),
    _second(
        "connect",
        "import socket\ntry: socket.create_connection(('127.0.0.1', 80), 1); return 'connected'\nexcept OSError: pass",
        "3",
    ),
    _second("resolve a name", "import socket\ntry: socket.gethostbyname('localhost.example')\nexcept OSError: pass", "3"),
    _second("fill the disk", "open('/tmp/big', 'wb').write(b'x' * (100 << 20))", ("exception", "signal", "memory")),
    _second(
        "write outside /tmp",
        "for p in ('/x', '/opt/vector-evolve/runner.py', '/usr/x', '/dev/mqueue/x', '/proc/sys/kernel/core_pattern'):\n"
        "    try: open(p, 'w'); return p\n    except OSError: pass",
        "3",
    ),
    _second(
        "programs that are setuid",
        "import subprocess\nfor p in ('/bin/su', '/bin/mount', '/usr/bin/passwd', '/usr/bin/newgrp'):\n"
        "    try: out = subprocess.run([p, '-c', 'id -u'], capture_output=True, stdin=subprocess.DEVNULL, timeout=2).stdout\n"
        "    except OSError: continue\n    if out.strip() == b'0': return 'root'",
        "3",
    ),
    _second("become root", "try: os.setuid(0); return 'root'\nexcept OSError: pass", "3"),
    _second(
        "unshare, mount, keyctl, bpf",
        "import ctypes\nl = ctypes.CDLL(None)\n"
        "for a in ((272, 0x10000000), (56, 0x10000011, 0, 0, 0, 0), (165, 0, 0, 0, 0), (250, 0, 0), (321, 0, 0, 0), (425, 1, 0)):\n"
        "    if l.syscall(*a) != -1: return a[0]",
        "3",
    ),
    _second(
        "protect itself from the memory killer",
        "try:\n    os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'0'); return 'lowered'\nexcept OSError: pass",
        "3",
    ),
    _second(
        "lower its standing with the memory killer, once dumpable",
        "import ctypes\nctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "try: open('/proc/self/oom_score_adj', 'w').write('0'); return 'lowered'\nexcept OSError: pass",
        "3",
    ),
    _second(
        "memory in a program of its own, unprotected from the killer",  # it may take the supervisor instead
        "import subprocess  # numpy, named here, makes the supervisor larger than they are\n"
        "hog = 'open(\"/proc/self/oom_score_adj\", \"w\").write(\"0\"); x = bytearray(9 << 20); import time; time.sleep(3)'\n"
        "for _ in range(40): subprocess.Popen(['python3', '-S', '-c', hog])\ntime.sleep(2)",
        ("memory", "exception"),
    ),
    _second("raw answer over the cap, without its letter", "os.write(3, b'A' * (1 << 18) + b'xx')\nos._exit(0)", "output"),
    _case(
        "raw report over the cap at import", "import os\nos.write(3, b'A' * ((1 << 18) + 1))\ndef f(x): return x + 1", ["output"] * 3
    ),
    _case(
        "shared memory for a process pool",
        "import multiprocessing\ndef g(x): return x + 1\ndef f(x):\n    with multiprocessing.Pool(2) as pool: return pool.map(g, [x])[0]",
        GOOD,
    ),
    _case(
        "state in shared memory",
        "import os\ndef f(x):\n    extra = len(os.listdir('/dev/shm'))\n    open(f'/dev/shm/{x}', 'w').write('x')\n    return x + 1 + extra",
        GOOD,
    ),
    _case(
        "search its own memory for earlier tests' output",
        "import ctypes, re, sys\ndef f(x):\n    pattern = re.compile(b'old' + b'-([0-9])' * 3)\n    seen = set()\n"
        "    for line in open('/proc/self/maps'):\n        place, rights = line.split()[:2]\n"
        "        if 'rw' not in rights or '[v' in line: continue\n        low, high = (int(p, 16) for p in place.split('-'))\n"
        "        try: seen |= set(pattern.findall(ctypes.string_at(low, high - low)))\n        except OSError: pass\n"
        "    mark = 'old' + f'-{x}' * 3\n    sys.stderr.write(mark * 300)\n    print(mark * 9)\n"
        "    return mark * 8000 if x < 3 else len(seen)",  # more than a pipe holds: the supervisor moves it
        ['"' + "old-1-1-1" * 8000 + '"', '"' + "old-2-2-2" * 8000 + '"', "0"],
    ),
    _second("all descriptors", "h = []\ntry:\n    while True: h.append(open('/dev/null'))\nexcept OSError: pass", "3"),
    _second(
        "SysV shared memory and message queues left behind",
        "import ctypes\nl = ctypes.CDLL(None)\nif l.shmget(42, 4096, 0o1666) != -1: return 'memory'\n"
        "if l.syscall(240, b'left', 0o102, 0o666, None) != -1: return 'queue'",
        "3",
    ),
    _case(
        "search its own memory for other inputs",
        "import ctypes, re\ndef f(x):\n    mine, seen = x[:8].encode(), set()\n    pattern = re.compile(b'need' + b'le-[0-9]')\n"
        "    for line in open('/proc/self/maps'):\n        place, rights = line.split()[:2]\n"
        "        if 'rw' not in rights or '[v' in line: continue\n        low, high = (int(p, 16) for p in place.split('-'))\n"
        "        try: seen |= set(pattern.findall(ctypes.string_at(low, high - low)))\n        except OSError: pass\n"
        "    return sorted(s.decode() for s in seen - {mine})",
        ["[]"] * 3,
        inputs=[b'["' + b"needle-%d" % number * size + b'"]' for number, size in ((1, 6000), (2, 600), (3, 6))],
    ),
    _case(
        "search frames, modules, files and the environment for expected values",
        "import gc, glob, os, sys\ndef f(x):\n    found = []\n    frame = sys._getframe()\n    while frame:\n"
        "        found += [k for k in (*frame.f_locals, *frame.f_globals) if 'expect' in k.lower()]\n        frame = frame.f_back\n"
        "    found += [k for k in os.environ if 'expect' in k.lower()] + sys.argv[1:]\n"
        "    found += [o for o in gc.get_objects() if type(o) is dict and 'expected' in o]\n"
        "    found += [p for p in glob.glob('/tmp/**', recursive=True) if p != '/tmp/']\n    return x + 1 + len(found)",
        GOOD,
    ),
    _case("NUL in the source", "def f(x):\n    return x + 1\n\0", ["exception"] * 3),
    _case("lone surrogate in the source", "def f(x):\n    return '\ud800'\n", ["exception"] * 3),
    _case("lone surrogate returned", "def f(x):\n    return chr(0xd800)\n", ['"\\ud800"'] * 3),
    _case("identifiers beyond ASCII", "def f(número):\n    return número + 1  # \u202e right\n", GOOD),
    _case("nested parentheses", "x = " + "(" * 100000 + ")" * 100000 + "\ndef f(x): return x + 1", ["exception"] * 3),
    _case(
        "5000 nested ifs",
        "def f(x):\n" + "".join(" " * (d + 1) + "if x:\n" for d in range(5000)) + " " * 5002 + "return 1\n",
        ["exception"] * 3,
    ),
    _case("mutated globals", "count = [0]\ndef f(x):\n    global f\n    count[0] += 1\n    f = None\n    return x + count[0]", GOOD),
    _case("constant bomb", "x = 2 ** (10 ** 9)\ndef f(x): return x + 1", [("cpu", "memory")] * 3),
    _case("missing module", "import no_such_module\ndef f(x): return x + 1", ["exception"] * 3),
    _case("missing function", "def g(x): return x + 1", ["exception"] * 3),
    _case("syntax error", "def f(x) return x", ["exception"] * 3),
    _case("mutated arguments", "def f(x):\n    x.append(1)\n    return x", ["[1, 1]", "[2, 1]", "[1]"],
          inputs=[b"[[1]]", b"[[2]]", b"[[]]"]),
    _second("second answer at exit", "import atexit\natexit.register(lambda: os.write(3, b'A9'))", "3"),
    _second(
        "second answer from a finaliser",
        "class Late:\n    def __del__(self): os.write(3, b'A9')\nglobals()['late'] = Late()",
        "3",
    ),
    _second("two answers", "os.write(3, b'A9')", ("9A3",)),
    _case("a thread that is not joined", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('late'))).start()",
          ["late\n"], entry=None, inputs=[b""]),
    _case("output at exit", "import atexit\natexit.register(print, 'bye')", ["bye\n"], entry=None, inputs=[b""]),
    _case("output in a file of its own", "import os\nout = os.fdopen(1, 'w')\nout.write('here')", ["here"], entry=None, inputs=[b""]),
    _case("output, then os._exit(0)", "import os\nprint('done', flush=True)\nos._exit(0)", ["done\n"], entry=None, inputs=[b""]),
    _case("output, then an exit that fails", "print('done')\nraise SystemExit(3)", ["exit"], entry=None, inputs=[b""]),
    _case("output, then an exception", "print('done', flush=True)\n1 / 0", ["exception"], entry=None, inputs=[b""]),
    _case("an exit handler that never ends", "import atexit\n@atexit.register\ndef g():\n    while True: pass",
          ["cpu"], entry=None, inputs=[b""]),
    _case("reads too little input", "print('ok')", ["ok\n"] * 2, entry=None, inputs=[b"x" * 300000, b"y"]),
    _case("patched clock", "import time\ntime.sleep = lambda s: None\ndef f(x):\n    time.sleep(9)\n    return x + 1", GOOD),
    _second("hang up on the supervisor", "os.closerange(0, 256)\nwhile True: pass", "cpu"),
]  # fmt: skip

BURN = """
import ctypes, os, signal, threading, time
def burn(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds: pass
def answered(child):
    r, w = os.pipe()
    pid = child(lambda: (burn(SECONDS), os.write(w, b'x'), os._exit(0)))
    if pid is not None: os.read(r, 1)
def forked(work):
    if (pid := os.fork()) == 0: work()
    return pid
def f(x):
    BODY
    return x + 1
"""


def _burner(name, body):
    return name, BURN.replace("BODY", body.replace("\n", "\n    "))


# Programs that use CPU time and try to hide it: SECONDS of it are to be seen, and the limit must hold.
BURNERS = [
    _burner("in the function itself", "burn(SECONDS)"),
    _burner("in a thread", "t = threading.Thread(target=burn, args=(SECONDS,))\nt.start()\nt.join()"),
    _burner("in a child that is waited for", "os.waitpid(forked(lambda: (burn(SECONDS), os._exit(0))), 0)"),
    _burner("in a child that is never waited for", "answered(forked)"),
    _burner("in a child that nobody reaps", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nanswered(forked)"),
    _burner(
        "in a grandchild that nobody reaps",
        "def twice(work):\n    def inner():\n        signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n        forked(work)\n"
        "        signal.pause()\n    return forked(inner)\nanswered(twice)",
    ),
    _burner("in an orphan", "answered(lambda work: forked(lambda: (forked(lambda: (os.setsid(), work())), os._exit(0))))"),
    _burner(
        "in a sibling",
        "def sibling(work):\n    pid = ctypes.CDLL(None).syscall(56, 0x8000 | 17, 0, 0, 0, 0)\n"
        "    if pid == -1: return burn(SECONDS)\n    if pid == 0: work()\n    return pid\nanswered(sibling)",
    ),
    _burner(
        "in many short children",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(10):\n    r, w = os.pipe()\n"
        "    if os.fork() == 0: burn(SECONDS / 10), os._exit(0)\n    os.close(w)\n    os.read(r, 1)\n    os.close(r)",
    ),
]

SEARCH = (
    "import ctypes, re\nfound, pattern = [], re.compile(b'NEEDLE-OF-THE-FIRST[N]EEDLE')\nfor line in open('/proc/self/maps'):\n"
    "    place, rights = line.split()[:2]\n    if 'rw' not in rights or '[v' in line: continue\n"
    "    low, high = (int(p, 16) for p in place.split('-'))\n    if pattern.search(ctypes.string_at(low, high - low)): found.append(place)"
)  # fmt: skip

# What one program leaves for the next, and how the next looks for it: it must find `[]`.
ACCOMPLICES = [
    ("file", "open('/tmp/left', 'w').write('x')", "import os\nfound = os.listdir('/tmp')"),
    (
        "file in a folder of its own",
        "import os\nos.makedirs('/tmp/a/b', mode=0o700)\nopen('/tmp/a/b/c', 'w').write('x')\nos.chmod('/tmp/a', 0)",
        "import os\nfound = os.listdir('/tmp')",
    ),
    (
        "process that answers on an abstract socket",
        "import os, socket\nif os.fork() == 0:\n    os.setsid()\n    s = socket.socket(socket.AF_UNIX)\n    s.bind('\\0left')\n"
        "    s.listen()\n    while True: s.accept()[0].send(b'x')",
        "import socket\ntry:\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('\\0left')\n    found = [s.recv(1).decode()]\n"
        "except OSError: found = []",
    ),
    (
        "its text in memory",
        "needle = 'NEEDLE' + '-OF-THE-FIRST'\nkept = '" + "NEEDLE-OF-THE-FIRST" * 4000 + "'",
        SEARCH,
    ),
    ("its output in memory", "import sys\nsys.stderr.write('NEEDLE-OF-THE-FIRST' * 100)", SEARCH),
    (
        "SysV shared memory",
        "import ctypes\nctypes.CDLL(None).shmget(42, 4096, 0o1666)",
        "import ctypes\nfound = [] if ctypes.CDLL(None).shmget(42, 4096, 0) == -1 else [1]",
    ),
    (
        "a supervisor with a lower priority, or stopped",
        "import os\nfor pid in (1, os.getppid()):\n    for act in (lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.kill(pid, 19)):\n"
        "        try: act()\n        except OSError: pass",
        "import os\nfound = [pid for pid in (0, 1, os.getppid()) if os.getpriority(os.PRIO_PROCESS, pid) != 0]",
    ),
    (
        "a message queue",
        "open('/dev/mqueue/left', 'w')" + " if __import__('os').access('/dev/mqueue', 2) else None",
        "import os\nfound = os.listdir('/dev/mqueue') if os.path.isdir('/dev/mqueue') else []",
    ),
    ("a file in shared memory", "open('/dev/shm/left', 'w').write('x')", "import os\nfound = os.listdir('/dev/shm')"),
    ("an environment variable", "import os\nos.environ['LEFT'] = 'x'", "import os\nfound = [k for k in os.environ if k == 'LEFT']"),
]  # fmt: skip

# Answers that attack the checker of a problem (`check` gives 1 - |got - expected| / 10 to a number, else 0), and their scores.
CHECKER = """
def check(input, expected, got):
    if type(got) not in (int, float):
        return 0
    return max(0.0, 1 - abs(got - expected) / 10)
"""
CHECKED = [
    ("right", "def f(x): return x + 1", 1.0),
    ("nearly right", "def f(x): return x + 2", 0.9),
    ("true", "def f(x): return True", 0.0),
    ("a list", "def f(x): return [x + 1] * 3", 0.0),
    ("text of code", "def f(x): return \"__import__('os')._exit(0)\"", 0.0),
    ("always equal", "class A(float):\n    def __sub__(self, o): return 0.0\ndef f(x): return A(x)", 0.0),
    ("raw NaN", "import os\ndef f(x):\n    os.write(3, b'ANaN')\n    os._exit(0)", 0.0),
    ("raw overflow", "import os\ndef f(x):\n    os.write(3, b'A1e999')\n    os._exit(0)", 0.0),
    ("raw huge integer", "import os\ndef f(x):\n    os.write(3, b'A' + b'9' * 6000)\n    os._exit(0)", 0.0),
    ("raw depth", "import os\ndef f(x):\n    os.write(3, b'A' + b'[' * 100000 + b']' * 100000)\n    os._exit(0)", 0.0),
    ("raw bytes that are no text", "import os\ndef f(x):\n    os.write(3, b'A\"\\xff\"')\n    os._exit(0)", 0.0),
    (
        "files for the checker",
        "def f(x):\n    for name in ('checker.py', 'json.py', 'program.py', 'sitecustomize.py', 'score'):\n"
        "        open('/tmp/' + name, 'w').write('def check(*a): return 1.0')\n    return x + 2",
        0.9,
    ),
    (
        "a daemon that waits for the checker",
        "import os, time\ndef f(x):\n    known = os.listdir('/proc')\n    if os.fork() == 0:\n        os.setsid()\n        while True:\n"
        "            for p in os.listdir('/proc'):\n                try: p in known or int(p) == os.getpid() or open(f'/proc/{p}/fd/3', 'wb').write(b'A1.0')\n"
        "                except OSError: pass\n    return x + 2",
        0.9,
    ),
    ("patches", "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.max = lambda *a: 1.0\ndef f(x): return x + 2", 0.9),
]  # fmt: skip
