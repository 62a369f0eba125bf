"""Which calls to the kernel a confined command may not make, as a filter that the kernel runs for each (seccomp).

Denied is what makes namespaces and mounts, since in a new user namespace a command would have every capability
again; what takes memory that counts for no process; and doors to the kernel that training a model has no need of.
"""

import errno
import platform
import struct
from collections.abc import Sequence

# <linux/bpf_common.h>, <linux/seccomp.h>, <linux/audit.h>; seccomp(2) describes a filter like this one.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32 = 0x40000000  # marks calls of another way to call the same kernel
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMNS = ("x86_64", "aarch64")
_MEMFD_CREATE = (319, 279)
_CLONE, _CLONE3 = (56, 220), (435, 435)
_DENIED = {  # numbers by _COLUMNS
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "shmget": (29, 194), "memfd_secret": (447, 447),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip


def has_filter() -> bool:
    """Return whether calls can be denied here: their numbers are known for 64-bit x86 and ARM."""
    return platform.machine() in _ARCHITECTURES


def denied_calls(*, gpu: bool) -> bytes:
    """Return the filter, a program of classic BPF.

    Args:
        gpu: Whether a GPU is seen; its driver needs memory without a name (`memfd_create`).
    """
    column = _COLUMNS.index(platform.machine())
    numbers = [both[column] for both in _DENIED.values()]
    if not gpu:
        numbers.append(_MEMFD_CREATE[column])
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),  # 32-bit programs have other numbers
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        # The C library makes threads by `clone` where there is no `clone3`, whose flags no filter can see.
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        *((_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
    ]
    return _assembled(program)


def _assembled(program: Sequence[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
