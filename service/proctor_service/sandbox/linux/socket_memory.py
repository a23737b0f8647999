"""Memory of sockets that the kernel charges to no cgroup, from the service's side.

A connection that no process has accepted yet belongs to no cgroup, and neither do the data that wait
there. Formats: proc(5), sock_diag(7), and the kernel's uapi/linux/inet_diag.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import threading

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 1 << 16
_SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR, _NLMSG_DONE = 20, 2, 3
_DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_HEADER = struct.Struct("IHHII")  # length, type, flags, sequence, port
_QUESTION = struct.Struct("BBBxI48x")  # family, protocol, extensions, states, any socket
_SKMEMINFO = 7  # INET_DIAG_SKMEMINFO
_INODE_AT, _ANSWER_BYTES = (
    68,
    72,
)  # in `struct inet_diag_msg`; the inode of a socket without file is 0
_ATTRIBUTE = struct.Struct("HH")  # length, type
_MEMORY = struct.Struct("8I")
_SOCKET_BYTES = 4 << 10  # of a socket itself, with its options


class MachineSockets:
    """Memory of all TCP and UDP sockets of the machine; a single small read."""

    def __init__(self) -> None:
        self._file: int | None = None

    def bytes(self) -> int:
        """Return the bytes of their buffers; 0 while unreadable."""
        try:
            if self._file is None:
                self._file = os.open("/proc/self/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)
            words = os.pread(self._file, _MOST_BYTES, 0).split()
        except OSError:
            return 0
        # `TCP: inuse 3 orphan 0 tw 0 alloc 5 mem 7`, and so for UDP: pages of all namespaces.
        pages = [int(words[at + 1]) for at, word in enumerate(words) if word == b"mem"]
        return sum(pages) * _PAGE_BYTES

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class NetworkSockets:
    """The TCP sockets of a network namespace, by a netlink socket from there.

    Each method may be called from any thread.
    """

    def __init__(self, descriptor: int) -> None:
        self._netlink = socket.socket(fileno=descriptor)
        self._netlink.setblocking(False)
        self._lock = threading.Lock()
        self._closed = False

    def unaccepted_bytes(self) -> int:
        """Return the memory of sockets without a file; 0 after `close`, or if the kernel lists none."""
        try:
            with self._lock:
                return sum(self._listed(family) for family in (socket.AF_INET, socket.AF_INET6))
        except OSError:
            return 0
        finally:
            if self._closed:
                self.close()

    def close(self) -> None:
        """Close the netlink socket, at the end of a list in progress; never blocks."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            self._netlink.close()
            self._lock.release()

    def _listed(self, family: int) -> int:
        question = _QUESTION.pack(family, socket.IPPROTO_TCP, 1 << (_SKMEMINFO - 1), 0xFFFF_FFFF)
        size = _HEADER.size + len(question)
        header = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 0, 0)
        self._netlink.send(header + question)
        total = 0
        while True:
            answer = self._netlink.recv(_MOST_BYTES)
            at = 0
            while at < len(answer):
                length, kind, *_ = _HEADER.unpack_from(answer, at)
                if kind == _NLMSG_DONE:
                    return total
                if kind == _NLMSG_ERROR:
                    raise OSError(errno.EOPNOTSUPP, "the kernel lists no sockets")
                total += _unaccepted_bytes(answer[at + _HEADER.size : at + length])
                at += (length + 3) & ~3


def _unaccepted_bytes(answer: bytes) -> int:
    """Return the memory of a listed socket, if it has no file."""
    inode = int.from_bytes(answer[_INODE_AT:_ANSWER_BYTES], sys.byteorder)
    if inode:
        return 0
    at = _ANSWER_BYTES
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _SKMEMINFO:
            received, _, _, _, reserved, queued, options, backlog = map(
                int, _MEMORY.unpack_from(answer, at + _ATTRIBUTE.size)
            )
            return _SOCKET_BYTES + received + reserved + queued + options + backlog
        at += (max(length, _ATTRIBUTE.size) + 3) & ~3
    return 0
