"""The listener of test events: takes them through a Unix socket and records them as JSON lines.

Runs beside the tests in the sandbox, in an interpreter from outside the image, with the standard library
alone: `python3 listener.py SOCKET RECORD`. SIGTERM ends the listener.

A record has a line for each message: [process, role, kind, field, …]. `process` numbers the connections.
Recorded are processes that claim a session, and their workers: descendants naming the session's token.
Messages of other processes leave a line with the kind `refused`. A claimant descends from the command of the
tests, and never from another running claimant: programs started by tests are no runners.

Programs without packets connect at SOCKET-lines; connecting is a claim. They send lines of JSON.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import secrets
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import IO

LINES = "-lines"
"""Ends the path of the socket for lines."""
RESTART = bytes([signal.SIGUSR1])
HOLD = "-hold"
"""Ends the path of a file for which programs wait that claim: until it is gone."""
RESTARTED = "-restarted"
"""Ends the path of a file that is there after a restart."""
MOST_CONNECTIONS = 256
MOST_BYTES = 64 * 1024 * 1024
"""Of all messages of a run; what comes after is not recorded."""
PACKET_BYTES = 256 * 1024
MOST_LINE_BYTES = 1024 * 1024
CODE_BYTES = 16
KINDS = frozenset(["test", "failed", "repeat", "raw", "reported", "collect", "doubt", "end"])
PR_SET_DUMPABLE = 4


def fields_of(body: bytes) -> list[bytes]:
    """Read netstrings: b"3:abc,0:," gives [b"abc", b""]. Raises ValueError."""
    fields, at = [], 0
    while at < len(body):
        colon = body.index(b":", at, at + 8)
        end = colon + 1 + int(body[at:colon])
        if body[end : end + 1] != b",":
            raise ValueError("a field without its end")
        fields.append(body[colon + 1 : end])
        at = end + 1
    return fields


class Connection:
    """A process sending events."""

    def __init__(self, channel: socket.socket, number: int) -> None:
        self.channel = channel
        self.number = number
        self.process_id = peer_of(channel)
        self.role = ""
        self.messages = 0
        self._key = secrets.token_bytes(32)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        channel.send(self._key)

    def receive(self) -> list[bytes] | None:
        """Read a message; None at the end. Raises ValueError for a foreign or unordered message."""
        data, ancillary, _, _ = self.channel.recvmsg(PACKET_BYTES, socket.CMSG_SPACE(12))
        if not data:
            return None
        senders = {
            struct.unpack("3i", value[:12])[0]
            for level, kind, value in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        }
        code, body = data[:CODE_BYTES], data[CODE_BYTES:]
        right = hashlib.blake2b(body, key=self._key, digest_size=CODE_BYTES).digest()
        fields = fields_of(body)
        self.messages += 1
        if senders != {self.process_id} or not secrets.compare_digest(code, right):
            raise ValueError("a message of another process")
        if not fields or fields[0] != b"%d" % self.messages:
            raise ValueError("a message out of order")
        self._key = hashlib.blake2b(b"next", key=self._key).digest()[:32]
        return fields[1:]


class LineConnection:
    """A process sending lines."""

    def __init__(self, channel: socket.socket, number: int) -> None:
        self.channel = channel
        self.number = number
        self.process_id = peer_of(channel)
        self.role = ""
        self._rest = b""

    def receive(self) -> list[bytes] | None:
        """Read complete lines; None at the end. Raises ValueError for too long a line."""
        data = self.channel.recv(PACKET_BYTES)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise ValueError("a line of too many bytes")
        return lines


def peer_of(channel: socket.socket) -> int:
    """Return the number of the connected process."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[0])


class Listener:
    """Accepts connections at `path` and hands each event to `record` as a line.

    `command`: returns the process number of the tests' command, None if unknown. `runner`: returns a digest
    of the runner's files, unchanged by honest builds.
    """

    def __init__(
        self,
        path: str,
        record: Callable[[bytes], object],
        command: Callable[[], int | None] = lambda: None,
        runner: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._path = path
        self._runner = runner
        self._runner_before = runner()
        self._record = record
        self._command = command
        self._token = b""
        self._tokens: set[bytes] = set()
        self._connections: dict[int, Connection | LineConnection] = {}
        self._has_ended: dict[tuple[int, bytes], bool] = {}
        self._total = 0
        self._total_bytes = 0
        self._selector = selectors.DefaultSelector()
        self._server = self._listening(path, socket.SOCK_SEQPACKET)
        self._line_server = self._listening(path + LINES, socket.SOCK_STREAM)

    def _listening(self, path: str, kind: int) -> socket.socket:
        server = socket.socket(socket.AF_UNIX, kind)
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen(64)
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)
        return server

    def serve(self, stop: int) -> None:
        """Take events until `stop` ends or has a byte other than RESTART, then take the waiting events."""
        self._selector.register(stop, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            self._take(ready)
            if stop in ready:
                if os.read(stop, 1) != RESTART:
                    break
                self._restart()
        while ready := [key.fileobj for key, _ in self._selector.select(0) if key.fileobj != stop]:
            self._take(ready)
        for connection in list(self._connections.values()):
            self._close(connection)
        self._server.close()
        self._line_server.close()
        self._selector.close()

    def _restart(self) -> None:
        """Discard all messages so far: a build ran the submission's code, before any test."""
        for connection in list(self._connections.values()):
            self._close(connection)
        self._has_ended.clear()
        self._tokens.clear()
        self._record(b'[0, "", "restart"]\n')
        if self._runner() != self._runner_before:
            self._record(b'[0, "", "doubt", "", "runner_changed"]\n')
        with open(self._path + RESTARTED, "wb"):
            pass

    def _take(self, ready: Sequence[object]) -> None:
        for each in ready:
            if each is self._server:
                self._accept(self._server, Connection)
            elif each is self._line_server:
                self._accept(self._line_server, LineConnection)
            elif isinstance(each, socket.socket) and each.fileno() in self._connections:
                self._read(self._connections[each.fileno()])

    def _accept(self, server: socket.socket, make: type[Connection] | type[LineConnection]) -> None:
        channel, _ = server.accept()
        if len(self._connections) >= MOST_CONNECTIONS:
            channel.close()
            return
        self._total += 1
        try:
            connection = make(channel, self._total)
        except OSError:
            channel.close()
            return
        if isinstance(connection, LineConnection) and not self._admit(connection, b"", b"main"):
            channel.close()
            return
        if connection.role:
            self._note(connection, [b"claim", b"lines"])
        self._connections[channel.fileno()] = connection
        self._selector.register(channel, selectors.EVENT_READ)

    def _close(self, connection: Connection | LineConnection) -> None:
        self._selector.unregister(connection.channel)
        del self._connections[connection.channel.fileno()]
        connection.channel.close()

    def _read(self, connection: Connection | LineConnection) -> None:
        try:
            fields = connection.receive()
            if fields is None:
                self._close(connection)
            elif isinstance(connection, LineConnection):
                for line in fields:
                    self._note(connection, [b"line", line])
            else:
                self._handle(connection, fields)
        except (OSError, ValueError, IndexError) as error:
            if isinstance(error, ValueError):
                self._note(connection, [b"refused", str(error).encode()])
            self._close(connection)

    def _handle(self, connection: Connection, fields: list[bytes]) -> None:
        kind, rest = fields[0].decode(), fields[1:]
        if kind == "hello" and connection.messages == 1:
            if rest[0] == b"worker":  # a process that was forked from one that reports
                self._admit(connection, rest[2], b"worker")
            self._note(connection, [b"hello", *rest[:2]])
        elif kind == "claim" and not connection.role:
            is_admitted = self._admit(connection, rest[2], rest[0])
            connection.channel.send(b"y" + self._token if is_admitted else b"n")
            self._note(connection, [b"claim" if is_admitted else b"refused", *rest[:2]])
        elif kind in KINDS and connection.role:
            if kind == "end" and connection.role == "main":
                self._has_ended[identity_of(connection.process_id)] = True
            self._note(connection, fields)
        elif kind not in KINDS:
            raise ValueError("a message of no kind")

    def _admit(self, connection: Connection | LineConnection, token: bytes, role: bytes) -> bool:
        """Give the connection the role of a reporting process, or of its worker."""
        process = connection.process_id
        mains = [each for each in self._connections.values() if each.role == "main"]
        is_inner = any(
            is_below(process, each[0])
            for each, has_ended in self._has_ended.items()
            if not has_ended and identity_of(each[0]) == each
        )
        if role == b"worker" and is_inner and token in self._tokens:
            connection.role = "worker"
        elif role == b"main" and not is_inner and self._is_of_command(process):
            if mains:  # of two that run at once, the worse outcomes count
                self._note(connection, [b"contested"])
            if not self._has_ended.get(identity_of(process), True):
                # it claims again, and the session before has no end: what it says is another program's
                self._note(connection, [b"contested"])
                self._note(connection, [b"doubt", b"", b"second_session"])
            connection.role = "main"
            self._has_ended[identity_of(process)] = False
            self._token = secrets.token_hex(16).encode()
            self._tokens.add(self._token)
        return bool(connection.role)

    def _is_of_command(self, process_id: int) -> bool:
        """Return True for the command of the tests and its descendants, or if the command is unknown."""
        command = self._command()
        return command is None or process_id == command or is_below(process_id, command)

    def _note(self, connection: Connection | LineConnection, fields: list[bytes]) -> None:
        words = [each.decode("utf-8", "replace") for each in fields]
        line = json.dumps([connection.number, connection.role, *words]).encode() + b"\n"
        self._total_bytes += len(line)
        if self._total_bytes <= MOST_BYTES:
            self._record(line)


def identity_of(process_id: int) -> tuple[int, bytes]:
    """Return a process as its number and its time of start. exec() leaves both unchanged."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as status:
            return process_id, status.read().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return process_id, b""


def is_below(process_id: int, above: int) -> bool:
    """Return True if a process is a descendant of another."""
    for _ in range(64):
        process_id = parent_of(process_id)
        if process_id == above:
            return True
        if process_id <= 1:
            return False
    return False


def parent_of(process_id: int) -> int:
    """Return the number of a process's parent, 0 for an ended process."""
    try:
        with open(f"/proc/{process_id}/stat", "rb") as status:
            # "41 (a name) S 7 …": the parent's number is the second field behind the name
            return int(status.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def main(path: str, record_path: str) -> None:
    """Listen until SIGTERM; the first line of the output reports the socket as ready."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    stop, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(wake)
    with open(record_path, "xb", buffering=0) as record:
        serve_into(Listener(path, record.write), stop)


def serve_into(listener: Listener, stop: int, output: IO[str] | None = None) -> None:
    """Report the listener as ready, then serve."""
    print("listening", file=output or sys.stdout, flush=True)
    listener.serve(stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
