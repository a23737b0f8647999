"""Both clients in one voice: a test that is written once, for threads, runs in an event loop too."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Literal, TypeAlias

from proctor_client import AsyncClient, AsyncSession, Client, Session
from proctor_client.testing import FakeProctor

Kind: TypeAlias = Literal["threads", "loops"]


class Blocking:
    """An object for event loops, used like the one for threads: whatever it gives is waited for."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, "aclose" if name == "close" and _is_stream(self) else name)
        if not inspect.ismethod(found):
            return self._said(found)
        return lambda *args, **more: self._done(found, *args, **more)

    def __enter__(self) -> Any:
        self._done(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done(self._inner.__aexit__, kind, error, traceback)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._done(self._inner.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def __repr__(self) -> str:
        return repr(self._inner)

    def _done(self, work: Any, *args: Any, **more: Any) -> Any:
        async def done() -> Any:
            given = work(*map(_bare, args), **more)
            return await given if inspect.isawaitable(given) else given

        return self._said(self._runner.run(done()))

    def _said(self, value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._said(each) for each in value)
        if type(value).__name__.startswith("Async"):
            return Blocking(self._runner, value)
        return value


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value._inner if isinstance(value, Blocking) else value


def _is_stream(blocking: Blocking) -> bool:
    return hasattr(blocking._inner, "aclose")


@contextmanager
def a_client(kind: Kind, service: FakeProctor | str, **options: Any) -> Iterator[Any]:
    """A client of the kind, for the fake service or the one at a URL."""
    with ExitStack() as stack:
        if kind == "threads":
            if isinstance(service, str):
                yield stack.enter_context(Client(service, **options))
            else:
                yield stack.enter_context(service.client(**options))
            return
        runner = stack.enter_context(asyncio.Runner())
        if isinstance(service, str):
            inner = AsyncClient(service, **options)
        else:
            inner = service.async_client(**options)
        yield stack.enter_context(Blocking(runner, inner))


def a_session(client: Any, **options: Any) -> Any:
    """A session of the client's kind; a context manager."""
    if isinstance(client, Blocking):
        return Blocking(client._runner, AsyncSession(client._inner, **options))
    return Session(client, **options)
