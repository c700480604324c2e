"""The system calls that no candidate needs, as a seccomp filter on top of the container engine's."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22
libc = ctypes.CDLL(None, use_errno=True)

# name: (x86_64, aarch64); -1 where an architecture lacks it.
DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "pivot_root": (155, 41), "chroot": (161, 51), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122), "personality": (135, 92), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "memfd_secret": (447, 447),
    "ioprio_set": (251, 30), "sched_setparam": (142, 118), "kcmp": (312, 272), "process_madvise": (440, 440),
}  # fmt: skip
SOCKET = (41, 198)
PRLIMIT = (302, 261)
CLONE = (56, 220)
CLONE3 = (435, 435)
PRCTL = (157, 167)
PR_SET_DUMPABLE = 4  # a process that is dumpable may write its own oom_score_adj
FORBIDDEN_CLONES = 0x7E028000  # CLONE_NEW* and CLONE_PARENT of clone's flags: namespaces, and children of one's parent
AF_UNIX = 1


class Filter(ctypes.Structure):
    """The kernel's `sock_fprog`."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def build_filter(network: bool = False) -> Filter:
    """Return a seccomp BPF program that denies `DENIED`, new namespaces, siblings, limits of others, sockets but AF_UNIX.

    With `network`, sockets are left to the network that the sandbox has.
    """
    machine = os.uname().machine
    column = {"x86_64": 0, "aarch64": 1}.get(machine)
    if column is None:
        raise SystemExit(f"the sandbox knows no system call table for {machine}")
    audit_arch = (0xC000003E, 0xC00000B7)[column]
    kill, allow, deny = 0x80000000, 0x7FFF0000, 0x00050000
    load, jeq, jge, jset, ret = 0x20, 0x15, 0x35, 0x45, 0x06

    def statement(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    program = [
        statement(load, 4), statement(jeq, audit_arch, 1, 0), statement(ret, kill),
        statement(load, 0), statement(jge, 0x40000000, 0, 1), statement(ret, deny | errno.EPERM),  # the x32 table
        statement(jeq, CLONE3[column], 0, 1), statement(ret, deny | errno.ENOSYS),  # glibc falls back to clone
    ]  # fmt: skip
    for numbers in DENIED.values():
        program += [statement(jeq, numbers[column], 0, 1), statement(ret, deny | errno.EPERM)]
    program += [  # prlimit64 is for the caller itself only (pid 0), which may only lower its limits
        statement(jeq, PRLIMIT[column], 0, 4), statement(load, 16), statement(jeq, 0, 1, 0),
        statement(ret, deny | errno.EPERM), statement(ret, allow),
    ]  # fmt: skip
    program += [
        statement(jeq, PRCTL[column], 0, 4), statement(load, 16), statement(jeq, PR_SET_DUMPABLE, 0, 1),
        statement(ret, deny | errno.EPERM), statement(ret, allow),
    ]  # fmt: skip
    if not network:
        program += [
            statement(jeq, SOCKET[column], 0, 4), statement(load, 16), statement(jeq, AF_UNIX, 1, 0),
            statement(ret, deny | errno.EACCES), statement(ret, allow),
        ]  # fmt: skip
    program += [
        statement(jeq, CLONE[column], 0, 3), statement(load, 16), statement(jset, FORBIDDEN_CLONES, 0, 1),
        statement(ret, deny | errno.EPERM), statement(ret, allow),
    ]  # fmt: skip
    return Filter(len(program), b"".join(program))


def install_filter(program: Filter) -> None:
    """Bind the calling process and its descendants to a seccomp filter, for good."""
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
