"""Local generators, iterators and coroutines that drive objects of the other endpoint.

So ``list``, ``next``, ``yield from``, ``StopIteration.value``, ``await`` and ``asyncio.gather``
work. A remote coroutine runs to its end in a single request.
"""

from __future__ import annotations

import collections
import importlib
import itertools
import types
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any

_import_module = importlib.import_module

_SEQUENCES: tuple[Any, ...] = (
    *((), [], {}, "", "é", b"", bytearray(), range(0), range(1 << 70), collections.deque()),
)
_VIEWS: tuple[Any, ...] = ({}.values(), {}.items())
_SAMPLES: tuple[Any, ...] = (
    *(iter(each) for each in _SEQUENCES),
    *(iter(each) for each in (set(), *_VIEWS, collections.OrderedDict())),
    *(reversed(each) for each in (*_SEQUENCES, *_VIEWS)),
    *(iter(int, 0), iter(collections.OrderedDict().items())),
    *(map(int, ()), filter(None, ()), zip(), enumerate(())),
)
_ITERTOOLS = (item for item in vars(itertools).values() if isinstance(item, type))
ITERATOR_KINDS: dict[type, str] = {
    **{type(sample): "iterator" for sample in _SAMPLES},
    **{item: "iterator" for item in _ITERTOOLS if hasattr(item, "__next__")},
    types.GeneratorType: "generator",
    types.CoroutineType: "coroutine",
    types.AsyncGeneratorType: "async_generator",
}
KINDS = frozenset(ITERATOR_KINDS.values())


class EventLoop:
    """Event loop for an endpoint's coroutines; the loop is kept, so that its tasks continue."""

    def __init__(self) -> None:
        self._loop: Any = None

    def drive(self, awaitable: Any) -> Any:
        """Run an awaitable to its end, even inside a running loop, and return the result."""
        asyncio: Any = _import_module("asyncio")

        async def main() -> Any:
            return await awaitable

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        own = self._loop
        loop = asyncio.new_event_loop() if own.is_running() else own
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return loop.run_until_complete(main())
        finally:
            asyncio._set_running_loop(running)
            if loop is not own:
                loop.close()


def local_version(side: Any, kind: str, reference: Any) -> Any:
    """Make a generator, coroutine or asynchronous generator that drives a remote object."""
    makers: dict[str, Any] = {"coroutine": _coroutine, "async_generator": _async_generator}
    return makers.get(kind, _generator)(side, reference, kind)


def _generator(side: Any, reference: Any, kind: str) -> Generator[Any, Any, Any]:
    step: tuple[Any, ...] = ("next", reference)
    while True:
        try:
            item = side.ask(*step)
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
            step = ("next", reference) if sent is None else ("send", reference, sent)
        except GeneratorExit:
            # Garbage collection also drops the remote generator; only an explicit close() needs a
            # request.
            if kind == "generator" and side.connection.references.view(reference) is not None:
                side.ask("close", reference)
            raise
        except BaseException as error:
            if kind != "generator":
                raise
            step = ("throw", reference, error)


async def _coroutine(side: Any, reference: Any, kind: str) -> Coroutine[Any, Any, Any]:
    result: Coroutine[Any, Any, Any] = side.ask("await", reference)
    return result


async def _async_generator(side: Any, reference: Any, kind: str) -> AsyncGenerator[Any, Any]:
    step: tuple[Any, ...] = ("anext", reference)
    while True:
        try:
            item = side.ask(*step)
        except StopAsyncIteration:
            return
        try:
            sent = yield item
            step = ("anext", reference) if sent is None else ("asend", reference, sent)
        except GeneratorExit:
            if side.connection.references.view(reference) is not None:
                side.ask("aclose", reference)
            raise
        except BaseException as error:
            step = ("athrow", reference, error)
