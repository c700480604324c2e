"""The supervisor refuses to run on a host and touches nothing there."""

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

from sandbox.guest import machine as guest
from sandbox.guest import pump, runner, seccomp

FILE = Path(runner.__file__)


def test_it_refuses_on_a_host(tmp_path):
    keep = tmp_path / "keep"
    keep.write_text("mine")
    done = subprocess.run([sys.executable, FILE], input=b"\0" * 64, capture_output=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"only as PID 1" in done.stderr
    assert keep.read_text() == "mine"


def test_its_destructive_steps_are_inert_on_a_host(tmp_path, monkeypatch):
    (tmp_path / "keep").write_text("mine")
    monkeypatch.setattr(guest, "SCRATCH", str(tmp_path))
    assert os.getpid() != 1
    machine = guest.Machine(str(tmp_path / "keep"))
    child = subprocess.Popen(["sleep", "60"])
    assert machine.clean_scratch() is False
    assert machine.kill_all() == (0, 0.0)
    assert child.poll() is None
    child.kill()
    child.wait()
    assert (tmp_path / "keep").exists()


def test_a_call_is_timed_from_before_it_is_passed_on(monkeypatch):
    """The candidate may have answered before its supervisor has the processor again."""

    now = [10.0]

    def passed_on_and_answered(*given, flags):
        now[0] += 5.0
        return 3

    monkeypatch.setattr(pump.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pump.os, "splice", passed_on_and_answered)
    assert pump.Pump(3, (1, 1, 1), answers_calls=True).fed_at == 10.0


def test_it_needs_only_the_standard_library():
    code = f"import sys; sys.path.insert(0, {str(FILE.parent.parent)!r}); import guest.supervisor"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_filter_denies_every_call_of_the_table():
    program = seccomp.build_filter()
    text = ctypes.string_at(ctypes.cast(ctypes.pointer(program), ctypes.POINTER(ctypes.c_void_p))[1], program.len * 8)
    code = [struct.unpack_from("HBBI", text, 8 * i) for i in range(program.len)]

    def verdict(number, flags=0, arch=0xC000003E):
        """Run the program as the kernel would, for x86_64 and a first argument."""
        data = struct.pack("IIQQQQ", number, arch, 0, flags, 0, 0)
        at = value = 0
        while True:
            instruction, yes, no, k = code[at]
            at += 1
            if instruction == 0x20:
                value = struct.unpack_from("I", data, k)[0]
            elif instruction == 0x06:
                return k
            else:
                holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[instruction]
                at += yes if holds else no

    allow = 0x7FFF0000
    assert all(verdict(numbers[0]) != allow for numbers in seccomp.DENIED.values())
    assert [verdict(number) for number in (0, 1, 2, 9, 57, 59, 231)] == [allow] * 7  # read ... fork, execve, exit_group
    assert (verdict(41, flags=1), verdict(41, flags=2) != allow, verdict(41, flags=40) != allow) == (allow, True, True)
    assert (verdict(56, flags=17), verdict(56, flags=0x10000011) != allow) == (allow, True)
    assert verdict(0, arch=0) == 0x80000000
    assert verdict(0x40000000 + 59) != allow
