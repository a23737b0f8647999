"""Reward calls: they wait in the queue of `_merging`, and go by themselves or with others.

A single call sends its own request. A request of several calls has its own task, so
the other calls continue when a call is answered or cancelled.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import partial

from proctor_client import wire
from proctor_client._async.driver import AsyncDriver
from proctor_client._calls import Calls
from proctor_client._merging import MergedRequest, RewardOrder, RewardQueue
from proctor_client._runtime import PerProcess, begin_async, is_set_async, moment_async


class AsyncRewards:
    """Reward calls of a client. Many event loops may share this object."""

    def __init__(self, driver: AsyncDriver, calls: Calls) -> None:
        self._driver = driver
        self._calls = calls
        self._queue = PerProcess(RewardQueue)

    async def judge(self, order: RewardOrder) -> wire.RewardResponse:
        """Return the answer to an order."""
        if not order.is_small:
            return await self._alone(order)
        place = asyncio.get_running_loop()  # blocking: place = None
        event = asyncio.Event()
        call = self._queue.get().join(place, order, event)
        try:
            await moment_async()  # so that calls of the same moment travel together
            while True:
                event.clear()
                if call.is_settled:
                    break
                due = self._queue.get().due(call, time.monotonic())
                if not isinstance(due, MergedRequest):
                    await is_set_async(event, due)
                elif len(due.calls) == 1:
                    return await self._alone(order)
                else:
                    self._begin(due)
        finally:
            self._queue.get().leave(call)
        return await self._alone(order) if call.goes_alone else call.answer()

    def _begin(self, request: MergedRequest) -> None:
        """Send a request of several calls, in the background."""
        try:
            request.cancel = begin_async(partial(self._send, request))
        except RuntimeError:  # no thread can start
            request.fail(None)
            self._queue.get().end(request)

    async def _send(self, request: MergedRequest) -> None:
        """Send a request of several calls, and give each of them its results as they arrive."""
        try:
            flow = self._calls.reward_stream(request.order())
            async with aclosing(self._driver.drive(flow, is_held=False)) as items:
                async for item in items:
                    if isinstance(item, wire.Result):
                        request.add(item)
                    if request.is_abandoned:
                        break
        except BaseException as error:
            request.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._queue.get().end(request)

    async def _alone(self, order: RewardOrder) -> wire.RewardResponse:
        return await self._driver.finish(self._calls.reward(order))
