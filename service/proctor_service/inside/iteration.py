"""Generators and coroutines of the other side, as real ones here.

So ``list``, ``next``, ``yield from``, ``StopIteration.value``, ``await`` and ``asyncio.gather``
work on them. A coroutine runs to its end over there in one go: what it awaits never interleaves
with what is awaited here.
"""

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any


class _Reference:
    """Names an object of the other side in requests, while its stand-in is in use."""


def local_version(peer: Any, kind: str, number: int) -> Any:
    """A generator, coroutine or asynchronous generator that drives the one of that number."""
    reference = _Reference()
    make = {"generator": _generator, "coroutine": _coroutine, "async_generator": _async_generator}
    value = make[kind](peer, reference, number)
    peer.stand_ins.keep(value, number)
    peer.stand_ins.alias(reference, number)
    return value


def _generator(peer: Any, reference: Any, number: int) -> Generator[Any, Any, Any]:
    step: tuple[Any, ...] = ("next", reference)
    while True:
        try:
            item = peer.request(*step)
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
            step = ("next", reference) if sent is None else ("send", reference, sent)
        except GeneratorExit:
            # When this one is collected, the other goes with it; only a call to close() is told.
            if peer.stand_ins.alive(number) is not None:
                peer.request("close", reference)
            raise
        except BaseException as error:
            step = ("throw", reference, error)


async def _coroutine(peer: Any, reference: Any, number: int) -> Coroutine[Any, Any, Any]:
    result: Coroutine[Any, Any, Any] = peer.request("await", reference)
    return result


async def _async_generator(peer: Any, reference: Any, number: int) -> AsyncGenerator[Any, Any]:
    step: tuple[Any, ...] = ("anext", reference)
    while True:
        try:
            item = peer.request(*step)
        except StopAsyncIteration:
            return
        try:
            sent = yield item
            step = ("anext", reference) if sent is None else ("asend", reference, sent)
        except GeneratorExit:
            if peer.stand_ins.alive(number) is not None:
                peer.request("aclose", reference)
            raise
        except BaseException as error:
            step = ("athrow", reference, error)
