"""Classification of errors: fatal errors would affect every other call too, and end the training.

An unavailable service comes back, and the items left unjudged in the meantime are skipped. A wrong
token, a wrong address, a service of another version, or a refused option stays
wrong. Without an error, the training would run for days without a single reward, and only its log
would tell.
"""

from __future__ import annotations

import re
from collections.abc import Container

from proctor_client import (
    ClientClosedError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    ProtocolError,
    UnauthorizedError,
)


def is_mistake(error: ProctorError, has_answered: bool) -> bool:
    """Return True for a fatal error, which callers raise. `error` comes after the client's retries.

    A denial by the service itself (401, 403, 404), a closed client, and a successful answer outside
    the contract are always fatal. A missing answer, or an answer of a proxy, is fatal only if the
    service has never answered (`has_answered` is false); later it counts as an outage.
    """
    refusals = UnauthorizedError | ForbiddenError | NotFoundError | ClientClosedError
    if isinstance(error, refusals):
        return True
    if isinstance(error, ProtocolError) and error.status_code is None:
        return True
    outages = ProctorConnectionError | ProctorTimeoutError | ProtocolError
    return not has_answered and isinstance(error, outages)


def refuses_option(error: ProctorError, options: Container[str]) -> bool:
    """Return True for a request refused because of these options.

    This is a fatal error if each request has the options. The message of a refusal begins with the
    path of the field, such as `limits.memory_mb`; a field of an item has a longer path, such as
    `submissions.0.limits.memory_mb`.
    """
    return isinstance(error, InvalidRequestError) and re.split(r"[.:]", error.message)[0] in options
