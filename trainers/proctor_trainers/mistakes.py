"""Which errors end a training: those that every other call would meet as well.

A service that is away comes back, and what it did not judge meanwhile is left out. A wrong token, a
wrong address, or a service of another version stays wrong: a training would go on for days
without a single reward, and say so in its log alone.
"""

from __future__ import annotations

from proctor_client import (
    ClientClosedError,
    ForbiddenError,
    NotFoundError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    ProtocolError,
    UnauthorizedError,
)


def is_mistake(error: ProctorError, has_answered: bool) -> bool:
    """Whether to raise it, after the client's retries. `has_answered`: the service ever did so.

    What refuses us by the service's own word, and an answer that is none of the contract's, always
    is one. No answer, or a proxy's, is one where there was never another: afterwards it is an outage.
    """
    refusals = UnauthorizedError | ForbiddenError | NotFoundError | ClientClosedError
    if isinstance(error, refusals):
        return True
    if isinstance(error, ProtocolError) and error.status_code is None:
        return True
    outages = ProctorConnectionError | ProctorTimeoutError | ProtocolError
    return not has_answered and isinstance(error, outages)
