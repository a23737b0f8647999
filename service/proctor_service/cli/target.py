"""Choice of the service for a command.

The order: the URL in PROCTOR_URL; a service at the default address; a temporary service for the
time of the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType

from rich.console import Console

from proctor_client import Client, ProctorError, UnauthorizedError
from proctor_client.tasks.task import DatasetError
from proctor_service.cli.failures import Trouble
from proctor_service.cli.temporary import temporary_service

DEFAULT_URL = "http://127.0.0.1:8080"
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0  # a busy machine answers late: that is no reason to call a service absent


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn errors of the client and of data sets into Trouble."""
    try:
        yield
    except UnauthorizedError as error:
        advice = "set PROCTOR_TOKEN to a token that the service knows"
        raise Trouble(f"{error.message}\n{advice}") from None
    except (ProctorError, DatasetError) as error:
        raise Trouble(str(error)) from None


Prepare = Callable[[], Mapping[str, str]]
"""Prepare a temporary service before its start; return further variables of the service."""


@contextmanager
def connected(console: Console, *, prepare: Prepare = dict) -> Iterator[Client]:
    """Return a client for the service. Raises Trouble if the named service does not answer."""
    named = named_service()
    token = os.environ.get("PROCTOR_TOKEN")
    address = named or DEFAULT_URL
    answer = _probe(address, token)
    if answer is None:
        console.print(f"using the service at {address}", style="dim")
        with Client(address, token=token) as client:
            client.capacity()  # detects a wrong token before any other request
            yield client
    elif named:
        raise Trouble(f"no service answers at {address}: {answer}\nstart one with: proctor serve")
    else:
        with own(console, settings=prepare()) as client:
            yield client


@contextmanager
def existing() -> Iterator[Client]:
    """Return a client for a running service. Raises Trouble without an answer."""
    address = named_service() or DEFAULT_URL
    token = os.environ.get("PROCTOR_TOKEN")
    answer = _probe(address, token)
    if answer is not None:
        raise Trouble(f"no service answers at {address}: {answer}\nPROCTOR_URL names another one")
    with Client(address, token=token) as client:
        yield client


@contextmanager
def own(console: Console, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Client]:
    """Return a client for a temporary service. Raises Trouble if the service does not start."""
    with ExitStack() as stack:
        with console.status("starting a service for this run"):
            running = stack.enter_context(temporary_service(settings=settings))
        yield stack.enter_context(Client(running.url, token=running.token))


def named_service() -> str | None:
    """Return the URL in PROCTOR_URL, if set."""
    return os.environ.get("PROCTOR_URL") or None


def authorization() -> dict[str, str]:
    """Return the header with PROCTOR_TOKEN, for services without support in Proctor's client."""
    token = os.environ.get("PROCTOR_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _probe(url: str, token: str | None) -> str | None:
    """Return None if a service answers, else the error message.

    Raises Trouble for an invalid URL.
    """
    try:
        with Client(
            url,
            token=token,
            max_attempts=1,
            timeout_seconds=_ANSWER_SECONDS,
            connect_timeout_seconds=_CONNECT_SECONDS,
        ) as client:
            client.health()
    except ValueError as error:
        raise Trouble(str(error)) from None
    except ProctorError as error:
        return error.message
    return None
