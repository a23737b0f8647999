"""Program trying every 20 ms whether the kernel still grants its user the resources counted by user.

The program runs in an interpreter of its own, since a trial needs a low limit on open files, given as its
argument. For each byte on stdin the answer is `=` and a letter; unasked, the program sends `+` and a
letter during a shortage, and once at its end. The letter is `@` plus the bits of the short resources.
Standard library only.
"""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import os
import resource
import select
import socket
import sys

PIPES, IN_TRANSIT, EPOLL, INOTIFY, PROCESSES = 1, 2, 4, 8, 16
LETTER = 64
_PAUSE_MS = 20
_PIPES, _LEAST_BYTES, _MOST_BYTES = 4, 4096, 1 << 20
_STACK_BYTES = 1 << 16
_MODIFY = 2  # IN_MODIFY


class Probe:
    """Takes a little of each kind, and gives the piece back; a refused kind is short."""

    def __init__(self, open_files: int) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        self._pipes = [os.pipe() for _ in range(_PIPES)]
        self._largest = _largest_pipe()
        self._sending, self._receiving = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._epoll = select.epoll()
        self._libc = ctypes.CDLL(None, use_errno=True)
        _thread.stack_size(_STACK_BYTES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, most))

    def short(self) -> int:
        """Return the bits of the short resources."""
        found = 0
        for bit, look in (
            (PIPES, self._look_at_pipes),
            (IN_TRANSIT, self._look_in_transit),
            (EPOLL, self._look_at_epoll),
            (INOTIFY, self._look_at_inotify),
            (PROCESSES, self._look_at_processes),
        ):
            try:
                look()
            except (OSError, RuntimeError):
                found |= bit
        return found

    def _look_at_pipes(self) -> None:
        """Enlarge the pipes: refused above the soft limit, beyond which new pipes have two pages."""
        try:
            for reading, _ in self._pipes:
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, self._largest)
        finally:
            for reading, _ in self._pipes:
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, _LEAST_BYTES)

    def _look_in_transit(self) -> None:
        socket.send_fds(self._sending, [b"x"], [0])
        self._receiving.recv(1)  # without room for the descriptor, which is then closed

    def _look_at_epoll(self) -> None:
        reading = self._pipes[0][0]
        self._epoll.register(reading, select.EPOLLIN)
        self._epoll.unregister(reading)

    def _look_at_inotify(self) -> None:
        descriptor = self._libc.inotify_init1(os.O_CLOEXEC)
        if descriptor < 0:
            raise OSError("inotify_init1")
        try:
            if self._libc.inotify_add_watch(descriptor, b"/", _MODIFY) < 0:
                raise OSError("inotify_add_watch")
        finally:
            os.close(descriptor)

    def _look_at_processes(self) -> None:
        _thread.start_new_thread(_pass, ())  # a RuntimeError if refused


def _pass() -> None:
    """End a thread."""


def _largest_pipe() -> int:
    try:
        with open("/proc/sys/fs/pipe-max-size") as file:
            return min(_MOST_BYTES, int(file.read()))
    except OSError:
        return _MOST_BYTES


def main() -> None:
    """Look and report until stdin ends."""
    probe = Probe(int(sys.argv[1]))
    poll = select.poll()
    poll.register(0, select.POLLIN)
    short = 0
    while True:
        questions = 0
        if poll.poll(_PAUSE_MS):
            questions = len(os.read(0, 1 << 12))
            if not questions:
                return
        before, short = short, probe.short()
        report = (b"=%c" % (LETTER + short)) * questions
        if short or before:
            report += b"+%c" % (LETTER + short)
        if report:
            os.write(1, report)


if __name__ == "__main__":
    main()
