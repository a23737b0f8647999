"""The connection to the listener: numbered messages, each with a code that proves its sender.

One packet is a code of 16 bytes and a list of fields as netstrings (`3:abc,`). The key of the code
changes with each message, so no earlier key forges a later message. Only C functions taken when
the interpreter started are used: patched modules of the standard library change no message.
"""

import _socket
import os
import sys
import time
from types import CodeType, FrameType
from typing import Any, Callable, List, Set

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

WAIT = b"\x3c" + bytes(15)
"""A `struct timeval` of 60 s, for little-endian machines with 64 bits."""
HOLD = "-hold"
"""Ends the path of a file: while it is there, the files of the tests become read-only."""
HOLD_SECONDS = 0.005
MOST_HOLDS = 12000
MOST_BYTES = 60000
HARMLESS = frozenset(["doubt", "collect", "failed"])
"""Kinds of messages with which no test passes, and no session ends."""


def packet(fields: List[bytes], key: bytes) -> bytes:
    """One message, as it travels."""
    body = b"".join([b"%d:%s," % (len(field), field) for field in fields])
    return blake2b(body, key=key, digest_size=16).digest() + body


def connected(path: str) -> Any:
    """Return a socket that is connected to the listener, or None."""
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        for option in (_socket.SO_RCVTIMEO, _socket.SO_SNDTIMEO):
            socket.setsockopt(_socket.SOL_SOCKET, option, WAIT)
        socket.connect(path)
    except OSError:
        socket.close()
        return None
    return socket


def wait_while_there(path: str) -> None:
    """Return as soon as a file is gone, after a minute at the latest."""
    for _ in range(MOST_HOLDS):
        try:
            os.stat(path)
        except OSError:
            return
        time.sleep(HOLD_SECONDS)


class Channel:
    """Messages of one process; a process that is forked from it opens a connection of its own.

    `send` works for code objects in `senders` alone, and the functions that `trust` took before the
    process claimed the session look at the callers of what says that a test passed: code that gets
    hold of the channel cannot simply use it. `share` gives the workers' token to functions of `trust`.
    """

    def __init__(self, path: str, python: str) -> None:
        self.path = path
        self.senders: Set[CodeType] = set()
        self._open(python)

    def _open(self, python: str) -> None:
        key, token, process_id, descriptor = b"", b"", -1, -1
        number, caller, process_of = 0, sys._getframe, os.getpid
        read, write = os.read, os.write
        is_claimed = False
        checks: List[Callable[[FrameType], bool]] = []
        sharers: Set[CodeType] = set()
        path, senders = self.path, self.senders

        def connect(role: bytes) -> bool:
            nonlocal key, process_id, descriptor, number
            socket = connected(path)
            process_id, descriptor, number = process_of(), -1, 0
            if socket is None:
                return False
            try:
                key = socket.recv(64)
                if len(key) != 32:
                    return False
                descriptor = socket.detach()
                return transmit([b"hello", role, python.encode(), token])
            except OSError:
                return False

        def transmit(fields: List[bytes]) -> bool:
            nonlocal key, number, descriptor
            if descriptor < 0 or caller(1).f_code not in own:
                return False
            number += 1
            data = packet([b"%d" % number, *fields], key)
            key = blake2b(b"next", key=key).digest()[:32]
            try:
                return write(descriptor, data) == len(data)
            except OSError:
                descriptor = -1
                return False

        def send(kind: str, *fields: str) -> bool:
            frame = caller(1)
            if frame.f_code not in senders:
                return False
            if kind not in HARMLESS and not any(check(frame) for check in checks):
                return False
            if process_id != process_of() and not connect(b"worker"):
                return False
            data = [kind.encode()]
            data += [str.encode(each, "utf-8", "backslashreplace")[:MOST_BYTES] for each in fields]
            return transmit(data)

        def claim(role: str, runner: str, session_token: bytes = b"") -> bool:
            """Ask once to be a process that reports, a worker by the token of its session."""
            nonlocal is_claimed, token
            if is_claimed or caller(1).f_code not in senders:
                return False
            if not transmit([b"claim", role.encode(), runner.encode(), session_token]):
                return False
            answer = read(descriptor, 64)
            is_claimed = True
            token = answer[1:]
            if answer[:1] != b"y":
                return False
            wait_while_there(path + HOLD)
            return True

        def share() -> bytes:
            """Return the token for this process's workers to a function in `sharers`."""
            return token if caller(1).f_code in sharers else b""

        def trust(check: Callable[[FrameType], bool], *sharing: CodeType) -> None:
            if not is_claimed:
                checks.append(check)
                sharers.update(sharing)

        own = {connect.__code__, send.__code__, claim.__code__}
        self.send: Callable[..., bool] = send
        self.trust: Callable[..., None] = trust
        self.claim: Callable[..., bool] = claim
        self.share: Callable[[], bytes] = share
        self.is_open = connect(b"process")
