"""Memory of sockets that the kernel charges to no cgroup, from the service's side.

An unaccepted connection and its waiting data belong to no cgroup. And the kernel fills pages of 32 KB
with the data of all connections of a thread: a single unread byte holds an uncharged page. These pages
are missing in all counters. They are at most as many as the queues of a network namespace may hold, as
the namespace has sent, and as the memory that the kernel lists under no use has grown.

Formats: proc(5), sock_diag(7), and the kernel's uapi/linux/inet_diag.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from dataclasses import dataclass

from proctor_service.sandbox.linux.procfs import read

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_BYTES = 1 << 16
_SOCK_DIAG_BY_FAMILY, _NLMSG_ERROR, _NLMSG_DONE = 20, 2, 3
_DUMP_REQUEST = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_HEADER = struct.Struct("IHHII")  # length, type, flags, sequence, port
_QUESTION = struct.Struct("BBBxI48x")  # family, protocol, extensions, states, any socket
_SKMEMINFO = 7  # INET_DIAG_SKMEMINFO
# In `struct inet_diag_msg`: bytes unread, bytes unsent, the user, and the inode, 0 without a file.
_QUEUES, _QUEUES_AT, _ANSWER_BYTES = struct.Struct("4I"), 56, 72
_ATTRIBUTE = struct.Struct("HH")  # length, type
_MEMORY = struct.Struct("8I")
_LEAST_PIECE_BYTES = 512  # overhead of a piece in a queue,
_PAGES_OF_PIECE = 17  # which has data in so many pages at most
_SHARED_PAGE_BYTES = 32 << 10
_NAMED = (
    b"MemFree:", b"Buffers:", b"Cached:", b"SwapCached:", b"AnonPages:", b"Slab:", b"KernelStack:",
    b"PageTables:", b"SecPageTables:", b"Percpu:", b"VmallocUsed:",
)  # fmt: skip
_SOCKET_BYTES = 4 << 10  # of a socket itself, with its options


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """Memory of the whole machine, in bytes.

    `sockets`: buffers of TCP and UDP. `unnamed`: memory in use without a use named by the kernel, with
    the pages of these buffers. Both 0 while unreadable.
    """

    sockets: int = 0
    unnamed: int = 0


class MachineFiles:
    """Reads `MachineMemory` from two small files, held open."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def read(self) -> MachineMemory:
        """Return the current values."""
        try:
            return MachineMemory(self._socket_bytes(), self._unnamed_bytes())
        except (OSError, ValueError):
            return MachineMemory()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files = {}

    def _words(self, path: str) -> list[bytes]:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._files[path], _MOST_BYTES, 0).split()

    def _socket_bytes(self) -> int:
        # `TCP: inuse 3 orphan 0 tw 0 alloc 5 mem 7`, and so for UDP: pages of all namespaces.
        words = self._words("/proc/self/net/sockstat")
        return (
            sum(int(words[at + 1]) for at, word in enumerate(words) if word == b"mem") * _PAGE_BYTES
        )

    def _unnamed_bytes(self) -> int:
        words = self._words("/proc/meminfo")  # `MemFree:  12303312 kB`
        found = {words[at - 1]: int(word) for at, word in enumerate(words) if word.isdigit()}
        return (found.get(b"MemTotal:", 0) - sum(found.get(name, 0) for name in _NAMED)) << 10


@dataclass(frozen=True, slots=True)
class SocketMemory:
    """Sums over the TCP and UDP sockets of a network namespace, in bytes.

    `unaccepted`: of connections without a file. `most_held`: the most memory of shared pages for the
    waiting data in queues.
    """

    unaccepted: int = 0
    most_held: int = 0


class NetworkSockets:
    """The TCP and UDP sockets of a network namespace, by a netlink socket from there.

    Each method may be called from any thread.
    """

    def __init__(self, descriptor: int) -> None:
        self._netlink = socket.socket(fileno=descriptor)
        self._netlink.setblocking(False)
        self._lock = threading.Lock()
        self._closed = False

    def memory(self) -> SocketMemory | None:
        """Return the sums over all sockets; None after `close`, or if the kernel lacks the list."""
        try:
            with self._lock:
                found = [
                    self._listed(family, protocol)
                    for family in (socket.AF_INET, socket.AF_INET6)
                    for protocol in (socket.IPPROTO_TCP, socket.IPPROTO_UDP)
                ]
        except OSError:
            return None
        finally:
            if self._closed:
                self.close()
        return SocketMemory(
            sum(each.unaccepted for each in found), sum(each.most_held for each in found)
        )

    def close(self) -> None:
        """Close the netlink socket, at the end of a list in progress; returns at once."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            self._netlink.close()
            self._lock.release()

    def _listed(self, family: int, protocol: int) -> SocketMemory:
        question = _QUESTION.pack(family, protocol, 1 << (_SKMEMINFO - 1), 0xFFFF_FFFF)
        size = _HEADER.size + len(question)
        header = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 0, 0)
        self._netlink.send(header + question)
        unaccepted = most_held = 0
        while True:
            answer = self._netlink.recv(_MOST_BYTES)
            at = 0
            while at < len(answer):
                length, kind, *_ = _HEADER.unpack_from(answer, at)
                if kind == _NLMSG_DONE:
                    return SocketMemory(unaccepted, most_held)
                if kind == _NLMSG_ERROR:
                    raise OSError(errno.EOPNOTSUPP, "the kernel lists no sockets")
                of_one = _memory_of(answer[at + _HEADER.size : at + length], protocol)
                unaccepted += of_one.unaccepted
                most_held += of_one.most_held
                at += (length + 3) & ~3


def _memory_of(answer: bytes, protocol: int) -> SocketMemory:
    """Return the memory of a listed socket."""
    unread, unsent, _, inode = _QUEUES.unpack_from(answer, _QUEUES_AT)
    at = _ANSWER_BYTES
    while at + _ATTRIBUTE.size <= len(answer):
        length, kind = _ATTRIBUTE.unpack_from(answer, at)
        if kind == _SKMEMINFO:
            received, _, _, _, reserved, queued, options, backlog = map(
                int, _MEMORY.unpack_from(answer, at + _ATTRIBUTE.size)
            )
            held = received + queued
            # Of UDP, the kernel gives no number of bytes that wait.
            waiting = unread + unsent if protocol == socket.IPPROTO_TCP else 0
            pieces = max(0, held - waiting) // _LEAST_PIECE_BYTES * _PAGES_OF_PIECE
            return SocketMemory(
                0 if inode else _SOCKET_BYTES + held + reserved + options + backlog,
                pieces * _SHARED_PAGE_BYTES,
            )
        at += (max(length, _ATTRIBUTE.size) + 3) & ~3
    return SocketMemory()


def sent_bytes(pid: int) -> int:
    """Return the bytes sent so far in the network namespace of a process; 0 if unreadable."""
    words = read(f"/proc/{pid}/net/dev").split()  # `lo: 840 10 0 0 0 0 0 0 840 …`: received, sent
    return int(words[words.index(b"lo:") + 9]) if b"lo:" in words else 0
