"""The inside of the sandbox: drop all rights that the program must not have, then run it. Never imported.

``tool.py`` starts this file as ``python confine.py '{"memory": …, "file": …, "seconds": …}'`` in a folder
that holds ``main.py`` and nothing else. It uses the standard library alone, so that it starts fast, and needs
no privileges: limits (setrlimit), capabilities, files (Landlock), system calls (seccomp). If a right
cannot be dropped, it raises, and the program does not run.
"""

import ctypes
import json
import os
import platform
import resource
import struct
import sys
import traceback
from pathlib import Path

FORBIDDEN = {
    "x86_64": {
        "socket": (41,),
        "new processes and threads": (56, 57, 58, 435),  # clone, fork, vfork, clone3
        "other programs": (59, 322),  # execve, execveat
        "signals": (
            62,
            129,
            200,
            234,
            297,
            424,
        ),  # kill, rt_sigqueueinfo, tkill, tgkill, rt_tgsigqueueinfo, pidfd_…
        "other processes": (
            101,
            141,
            203,
            302,
            310,
            311,
            438,
        ),  # ptrace, setpriority, affinity, prlimit64, vm, fds
        "modes and owners": (90, 91, 92, 93, 94, 260, 268, 452),  # Landlock does not guard them
        "memory that outlives or evades": (
            29,
            64,
            68,
            240,
            319,
            248,
            249,
            250,
        ),  # shmget, semget, msgget, mq_open, memfd_create, add_key, request_key, keyctl
        "namespaces": (272, 308),  # unshare, setns
        "calls that evade this list": (425,),  # io_uring_setup
    },
    "aarch64": {
        "socket": (198,),
        "new processes and threads": (220, 435),
        "other programs": (221, 281),
        "signals": (129, 130, 131, 138, 240, 424),
        "other processes": (117, 122, 140, 261, 270, 271, 438),
        "modes and owners": (52, 53, 54, 55, 452),
        "memory that outlives or evades": (180, 186, 190, 194, 279, 217, 218, 219),
        "namespaces": (97, 268),
        "calls that evade this list": (425,),
    },
}
"""System calls that fail with EPERM, by their numbers in <asm/unistd.h>."""

OWNERS = {"x86_64": {72: (8, 15), 16: (0x8901, 0x8902)}, "aarch64": {25: (8, 15), 29: (0x8901, 0x8902)}}
"""fcntl and ioctl, with the commands that let the kernel send a signal, SIGKILL too, to any of our processes:
F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP."""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
ALL_FILE_RIGHTS = (1 << 15) - 1
"""Landlock's rights up to truncation, its ABI 3; older kernels let a program empty files that it may read."""

_libc = ctypes.CDLL(None, use_errno=True)


def limit(memory: int, file: int, seconds: int) -> None:
    """Cap address space and files (bytes), processor time, open files and core dumps."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))  # a signal, and a second later the end
    for name, cap in {"AS": memory, "FSIZE": file, "NOFILE": 64, "CORE": 0}.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (cap, cap))


def drop_privileges() -> None:
    """Give up all capabilities, for root has some, and every way to gain one."""
    version_3 = 0x20080522
    _check("capset", _libc.capset(struct.pack("Ii", version_3, 0), bytes(24)))
    _check("prctl(no_new_privs)", _libc.prctl(38, 1, 0, 0, 0))


def confine_files() -> None:
    """Reading is for Python and the system's libraries, writing for the current folder alone."""
    create_ruleset, add_rule, restrict_self = 444, 445, 446
    abi = _libc.syscall(create_ruleset, None, 0, 1)
    if abi < 3:
        raise OSError(f"Landlock ABI {abi} is too old or off: Linux 6.2 or newer is needed")
    handled = struct.pack("Q", ALL_FILE_RIGHTS)
    ruleset = _check("landlock_create_ruleset", _libc.syscall(create_ruleset, handled, len(handled), 0))
    read = EXECUTE | READ_FILE | READ_DIR
    allowed = dict.fromkeys((sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64"), read)
    allowed |= {os.devnull: READ_FILE | WRITE_FILE, ".": ALL_FILE_RIGHTS}
    for path, rights in allowed.items():
        if os.path.exists(path):
            handle = os.open(path, os.O_PATH)
            rule = struct.pack("=Qi", rights, handle)
            _check(f"landlock_add_rule({path})", _libc.syscall(add_rule, ruleset, 1, rule, 0))
            os.close(handle)
    _check("landlock_restrict_self", _libc.syscall(restrict_self, ruleset, 0))
    os.close(ruleset)


def forbid_calls() -> None:
    """Make every forbidden system call fail with EPERM, and end a program that calls as another machine."""
    machine = platform.machine()
    if machine not in FORBIDDEN:
        raise OSError(f"no list of system calls for {machine}, only for {', '.join(FORBIDDEN)}")
    numbers = [number for group in FORBIDDEN[machine].values() for number in group]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000
    program = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH[machine]), (give, 0, 0, kill), (load, 0, 0, 0)]
    refused = -1  # stands for the distance to the last line
    # x32 calls have this bit set and other numbers for the same things
    checks = [(at_least, refused, 0, 0x40000000)]
    for number, commands in OWNERS[machine].items():
        checks += [(equal, 0, len(commands) + 2, number), (load, 0, 0, 24)]  # the second argument
        checks += [*((equal, refused, 0, command) for command in commands), (load, 0, 0, 0)]
    checks += [(equal, refused, 0, number) for number in numbers]
    program += [(op, len(checks) - i if t == refused else t, f, k) for i, (op, t, f, k) in enumerate(checks)]
    program += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = struct.pack("HP", len(program), ctypes.addressof(code))
    _check("prctl(seccomp)", _libc.prctl(22, 2, filter_, 0, 0))


def _check(call: str, result: int) -> int:
    """The result of a C call, or an error that names the call."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _show(kind: type[BaseException], error: BaseException, trace: object) -> None:
    """The traceback from the program's own first line on."""
    traceback.print_exception(kind, error, getattr(trace, "tb_next", None))


if __name__ == "__main__":
    limit(**json.loads(sys.argv[1]))
    drop_privileges()
    confine_files()
    forbid_calls()
    sys.argv = ["main.py"]
    sys.excepthook = _show
    exec(compile(Path("main.py").read_bytes(), "main.py", "exec"), {"__name__": "__main__"})
