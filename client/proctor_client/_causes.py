"""What a transport's error came of."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator


def is_name_or_tls(error: BaseException) -> bool:
    """Whether a name was not resolved or TLS was refused; not where the other end just went away."""
    gone = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return any(
        isinstance(each, socket.gaierror | ssl.SSLError) and not isinstance(each, gone)
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
