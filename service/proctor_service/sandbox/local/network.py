"""The network namespace of a fork server, shared by its sandboxes in turn.

A namespace is too expensive for each fork. Its counters (/proc/PID/net/snmp) survive a sandbox, and so do
measurements of past connections. So the fork server leaves a namespace for a new namespace as soon as the
counters show use by a sandbox. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time

from ..linux import kernel

_SYSCTLS = {
    "net/ipv4/tcp_max_tw_buckets": "0",  # if masked, a port may stay in use for a minute
    # TCP buffers at most as large as other sockets', as `memory.py` assumes.
    "net/ipv4/tcp_rmem": "4096 131072 131072",
    "net/ipv4/tcp_wmem": "4096 16384 131072",
    "net/core/optmem_max": "4096",  # of a socket's options, charged to nobody; before Linux 6.8 for all
}
_COUNTERS = ("snmp", "snmp6")  # each packet and each refused connection changes one of them
_COUNTERS_BYTES = 1 << 13
_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_PREAD64 = kernel.numbers_of("pread64")[0]
# Names of this module: a look into another module touches its objects, too.
_perform, _memcmp = kernel.perform, kernel.libc.memcmp
_TRIES, _PAUSE_SECONDS = 100, 0.01  # the kernel takes a moment to remove namespaces left before


class Network:
    """The current namespace: call `enter` first, then `is_used` after each sandbox.

    `sysctls`: further settings of the namespace.
    """

    def __init__(self, sysctls: dict[str, str]) -> None:
        self._sysctls = {**_SYSCTLS, **sysctls}
        self._files: list[int] = []
        # Each look before a fork writes to the same memory: other memory is shared with sandboxes.
        self._counters = ctypes.create_string_buffer(_COUNTERS_BYTES * len(_COUNTERS))
        self._unused = ctypes.create_string_buffer(_COUNTERS_BYTES * len(_COUNTERS))
        self._both = self._counters, self._unused, _COUNTERS_BYTES * len(_COUNTERS)
        self._reads: list[kernel.Call] = []

    def enter(self, *, new: bool) -> None:
        """Set up this process's namespace, or a new namespace. Raises OSError on failure."""
        if new:
            self._leave()
        kernel.bring_loopback_up()
        for name, value in self._sysctls.items():
            try:
                with open(f"/proc/sys/{name}", "w") as file:
                    file.write(value)
            except OSError:
                pass  # a masked /proc/sys
        for name in _COUNTERS:
            try:
                self._files.append(os.open(f"/proc/self/net/{name}", os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                pass  # a kernel without IPv6
        self._reads = [
            (
                _PREAD64, file, ctypes.byref(self._counters, place * _COUNTERS_BYTES),
                _COUNTERS_BYTES, 0,
            )
            for place, file in enumerate(self._files)
        ]  # fmt: skip
        ctypes.memset(self._counters, 0, _COUNTERS_BYTES * len(_COUNTERS))
        kernel.perform(self._reads)
        ctypes.memmove(self._unused, self._counters, _COUNTERS_BYTES * len(_COUNTERS))

    def is_used(self) -> bool:
        """Return True if a sandbox has used the namespace."""
        _perform(self._reads)
        difference: int = _memcmp(*self._both)
        return difference != 0

    def _leave(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []
        for _ in range(_TRIES):
            try:
                kernel.unshare(kernel.NEWNET)
            except OSError:
                time.sleep(_PAUSE_SECONDS)
            else:
                return
        kernel.unshare(kernel.NEWNET)


def socket_of_sockets() -> socket.socket | None:
    """Return a netlink socket to list this namespace's sockets; None without support in the kernel."""
    try:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG)
    except OSError:
        return None
