"""Isolates this process in a new network namespace with only a loopback. Linux.

TensorFlow binds a worker's port to all interfaces and lets anyone who reaches
it run operations (`docs/security.md`). In the namespace there is one interface,
which only processes of the namespace can reach. Root creates it directly. Other
users create it inside a user namespace that maps only their user id: file
access is unchanged.
"""

import ctypes
import errno
import fcntl
import os
import pathlib
import socket
import struct
import sys

from kerasmgpu.errors import InputError

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_INTERFACE = "16sH14x"  # The first two fields of C's `struct ifreq`.

_REASONS = {
    errno.ENOSPC: "the limit on their number is reached",
    errno.EUSERS: "the limit on their depth is reached",
    errno.EINVAL: "this process has several threads, or the kernel has none",
}
_SWITCHES = {
    "user.max_user_namespaces": ("0", "10000"),
    "user.max_net_namespaces": ("0", "10000"),
    "kernel.unprivileged_userns_clone": ("0", "1"),  # Debian's.
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),  # Ubuntu's.
}
"""Kernel settings: the value that forbids namespaces, and one that allows."""


def enter() -> None:
    """Moves this process and its later child processes into a new namespace.

    Can't be undone. Call it before other threads are started.

    Raises:
        InputError: If the system does not allow this user a namespace.
    """
    if not sys.platform.startswith("linux"):
        raise InputError("--isolate needs Linux's network namespaces")
    number = None
    try:
        _unshare()
        _bring_up("lo")
    except OSError as error:
        number = error.errno
    if number is not None:  # ENOSPC's own text would blame a full disk.
        reason = _REASONS.get(number, os.strerror(number))
        raise InputError(
            "--isolate needs a network namespace, and this system lets this "
            f"user have none ({reason}). {_advice()}"
        )


def _unshare() -> None:
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) == 0:
        return
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _write("setgroups", "deny")  # Required to map a group without root.
    _write("uid_map", f"{user} {user} 1")
    _write("gid_map", f"{group} {group} 1")


def _write(name: str, text: str) -> None:
    pathlib.Path("/proc/self", name).write_text(text, "utf-8")


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack(_INTERFACE, interface.encode(), 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        _, flags = struct.unpack(_INTERFACE, answer)
        request = struct.pack(_INTERFACE, interface.encode(), flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _advice() -> str:
    """Returns advice for the administrator: how to allow a namespace."""
    for name, (forbids, allows) in _SWITCHES.items():
        path = pathlib.Path("/proc/sys", *name.split("."))
        try:
            value = path.read_text("utf-8").strip()
        except OSError:  # This kernel has no such setting.
            continue
        if value == forbids:
            return f"Root can allow it: sysctl {name}={allows}"
    return (
        "A container may have them with --cap-add=SYS_ADMIN, or with a seccomp "
        "profile that lets it call unshare"
    )
