"""Reward calls: they wait in the queue of `_merging`, and go by themselves or with others.

A call that goes by itself sends its own request. A request of several calls has a task of its own, so
that no call, answered or cancelled, holds up the others.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import partial

from proctor_client import wire
from proctor_client._async.driver import AsyncDriver
from proctor_client._calls import Calls
from proctor_client._merging import Group, RewardOrder, RewardQueue
from proctor_client._runtime import PerProcess, begin_async, is_set_async


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
        call = self._queue.get().join(place, order, asyncio.Event())
        try:
            while True:
                call.event.clear()
                if call.is_settled:
                    break
                turn = self._queue.get().turn(call, time.monotonic())
                if not isinstance(turn, Group):
                    await is_set_async(call.event, turn)
                elif len(turn.calls) == 1:
                    return await self._alone(order)
                else:
                    self._begin(turn)
        finally:
            self._queue.get().leave(call)
        return await self._alone(order) if call.goes_alone else call.answer()

    def _begin(self, group: Group) -> None:
        """Send a request of several calls, in the background."""
        try:
            group.cancel = begin_async(partial(self._send, group))
        except RuntimeError:  # no thread can start
            group.fail(None)
            self._queue.get().end(group)

    async def _send(self, group: Group) -> None:
        """Send a request of several calls, and give each of them its results as they arrive."""
        try:
            flow = self._calls.reward_stream(group.order())
            async with aclosing(self._driver.drive(flow, is_held=False)) as items:
                async for item in items:
                    if isinstance(item, wire.Result):
                        group.add(item)
                    if group.is_abandoned:
                        break
        except BaseException as error:
            group.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._queue.get().end(group)

    async def _alone(self, order: RewardOrder) -> wire.RewardResponse:
        return await self._driver.finish(self._calls.reward(order))
