"""Runs a program that the kernel refuses system calls: seccomp.py CALL,CALL PROGRAM WORD...

As a container's seccomp profile does: the call fails with EPERM.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

#: By machine; -1 for what does not exist there.
NUMBERS = {
    "x86_64": {"socket": 41, "sendmsg": 46, "setsockopt": 54, "clone": 56, "vfork": 58},
    "aarch64": {"socket": 198, "sendmsg": 211, "setsockopt": 208, "clone": 220, "vfork": -1},
}
CLONE3 = 435
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def program(numbers: list[int]) -> bytes:
    """Return a BPF program that refuses system calls by number."""
    instruction = struct.Struct("=HBBI")
    code = [instruction.pack(LOAD, 0, 0, 0)]
    for at, number in enumerate(numbers):
        code.append(instruction.pack(JUMP_EQUAL, len(numbers) - at, 0, number))
    code.append(instruction.pack(RETURN, 0, 0, ALLOW))
    code.append(instruction.pack(RETURN, 0, 0, REFUSE | errno.EPERM))
    return b"".join(code)


def main(calls: str, *argv: str) -> None:
    known = NUMBERS[platform.machine()]
    numbers = [known[name] for name in calls.split(",") if known[name] >= 0]
    code = program([*numbers, CLONE3] if "clone" in calls else numbers)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, argument in (
        (PR_SET_NO_NEW_PRIVS, 1),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER),
    ):
        filtered = header if option == PR_SET_SECCOMP else None
        if libc.prctl(option, argument, filtered, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(argv[0], argv)  # noqa: S606 - there is no shell to be had


if __name__ == "__main__":
    main(*sys.argv[1:])
