"""Classification of transport errors by their causes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator


def is_name_or_tls(error: BaseException) -> bool:
    """Return True if a name was not resolved or TLS failed, unless the peer only disconnected."""
    gone = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return any(
        isinstance(each, socket.gaierror | ssl.SSLError) and not isinstance(each, gone)
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
