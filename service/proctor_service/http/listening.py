"""End of the listening sockets without a loss of connections.

The kernel completes connections before the service accepts them, and resets the unaccepted connections
when the socket closes. A proxy cannot repeat a request of a reset connection, since the work may have begun.
So the kernel first ignores new connections, while the service still accepts the complete
connections: a client with an ignored packet repeats the packet a second later, is then refused, and may
try another replica.
"""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import struct
from collections.abc import Iterable

log = logging.getLogger(__name__)

_SO_ATTACH_FILTER = 26
_LOAD_BYTE, _JUMP_IF_ANY_BIT, _RETURN = 0x30, 0x45, 0x06
_FLAGS_OFFSET, _SYN = 13, 0x02
_WHOLE_PACKET = 0xFFFFFFFF
_NO_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (_LOAD_BYTE, 0, 0, _FLAGS_OFFSET),
        (_JUMP_IF_ANY_BIT, 0, 1, _SYN),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _WHOLE_PACKET),
    )
)
"""Classic BPF (`struct sock_filter`) over a TCP header (RFC 9293, section 3.1): drop packets with SYN."""


def ignore_new_connections(descriptors: Iterable[int]) -> None:
    """Let listening TCP sockets ignore requests for connections. Without kernel support: no effect."""
    program = ctypes.create_string_buffer(_NO_SYN)
    # `struct sock_fprog`: the number of instructions, and a pointer to them.
    option = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(program))
    for descriptor in descriptors:
        try:
            with socket.socket(fileno=os.dup(descriptor)) as listener:
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
        except OSError as error:
            log.debug("new connections are not ignored: %s", error)
