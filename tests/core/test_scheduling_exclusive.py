"""Tickets that are alone: nothing runs beside them, and all others are held up for a bounded time."""

from __future__ import annotations

import asyncio
import time

import pytest
from event_loop import FAR, Clock, settle

from proctor_service.errors import SandboxLost
from proctor_service.scheduling.exclusive import ExclusiveTurns
from proctor_service.scheduling.queue import MOST_ATTEMPTS, Deadlines, FairQueue, Ticket, attempted

ALONE, OTHER = "alone", "other"


class Room:
    """A queue, and who ran in it: in which order, and beside how many others."""

    def __init__(self, queue: FairQueue, clock: Clock) -> None:
        self.queue = queue
        self.clock = clock
        self.order: list[str] = []
        self.running = 0

    async def run(self, kind: str, seconds: float) -> None:
        """What holds a ticket: notes it, and turns the clock."""
        self.running += 1
        self.order.append(kind)
        assert kind != ALONE or self.running == 1, "somebody runs beside it"
        await asyncio.sleep(0)
        assert kind != ALONE or self.running == 1, "somebody has come"
        self.clock.now += seconds
        self.running -= 1

    async def other(self, seconds: float = 1.0) -> None:
        async with self.queue.admit("t", OTHER, FAR):
            await self.run(OTHER, seconds)

    async def alone(self, seconds: float = 1.0) -> None:
        async with self.queue.admit("t", ALONE, FAR) as ticket, ticket.alone():
            await self.run(ALONE, seconds)


def room(slots: int) -> Room:
    clock = Clock()
    return Room(FairQueue(slots, 1000, Deadlines(), clock), clock)


@pytest.mark.parametrize("slots", [1, 4])
async def test_those_who_are_to_be_alone_hold_up_others_for_a_part_of_the_time(slots: int) -> None:
    here = room(slots)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(here.alone())
        for _ in range(400):
            group.create_task(here.other())
    order = "".join("A" if kind == ALONE else "." for kind in here.order)
    assert order.count("A") == 10
    *between, _ = order.strip(".").split("A")[1:]
    assert min(map(len, between)) >= 3


async def test_where_nobody_else_waits_they_follow_each_other() -> None:
    here = room(4)
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(here.alone())
    assert here.order == [ALONE] * 10


async def test_a_ticket_that_is_held_for_long_holds_up_nobody_but_who_is_to_be_alone() -> None:
    queue = FairQueue(4, 1000, Deadlines(), time.monotonic, patience_seconds=0.001)
    here = Room(queue, Clock())
    let_go = asyncio.Event()

    async def holder() -> None:
        async with queue.admit("t", "holder", FAR):
            await let_go.wait()

    held = asyncio.create_task(holder())
    await settle()
    waits = asyncio.create_task(here.alone())
    await settle()
    await asyncio.gather(*(here.other() for _ in range(50)))
    assert not waits.done()
    let_go.set()
    await waits
    await held
    assert here.order == [OTHER] * 50 + [ALONE]


@pytest.mark.parametrize("turns", range(-1, 4))
async def test_who_is_cancelled_leaves_the_queue_as_it_was(turns: int) -> None:
    here = room(2)
    async with here.queue.admit("t", "holder", FAR):
        waits = asyncio.create_task(here.alone())
        others = [asyncio.create_task(here.other()) for _ in range(3)]
        await settle()
        assert not any(other.done() for other in others)
        if turns < 0:
            waits.cancel()  # and the ticket comes back before it has noticed
        if turns == 0:
            waits.cancel()
            await settle()
            assert all(other.done() for other in others)
    for _ in range(turns):
        await asyncio.sleep(0)
    waits.cancel()  # in the very turn in which its own comes, in one case
    await asyncio.gather(waits, *others, return_exceptions=True)
    assert here.order.count(OTHER) == 3
    assert here.queue.busy == here.queue.queued == 0


async def test_the_last_of_three_attempts_is_alone_and_then_it_is_lost() -> None:
    here = room(4)
    beside: list[bool] = []

    async def lost() -> None:
        beside.append(here.queue.busy > 1)
        raise SandboxLost("killed")

    async def item(ticket: Ticket) -> None:
        await attempted(lost, ticket)

    async with (
        here.queue.admit("t", "holder", FAR),
        here.queue.admit("t", "job", FAR) as ticket,
    ):
        attempts = asyncio.create_task(item(ticket))
        await settle()
        assert beside == [True] * (MOST_ATTEMPTS - 1)
        held_up = asyncio.create_task(here.other())
        await settle()
        assert not held_up.done()
        assert not attempts.done()
        attempts.cancel()
        await asyncio.gather(attempts, return_exceptions=True)
    await held_up
    async with here.queue.admit("t", "job", FAR) as ticket:
        with pytest.raises(SandboxLost):
            await item(ticket)
    assert beside == [True] * (MOST_ATTEMPTS - 1) + [False] * MOST_ATTEMPTS


async def test_a_waiter_that_leaves_during_the_turn_of_another_disturbs_nothing() -> None:
    turns = ExclusiveTurns(Clock(), lambda: None, 10.0)
    first, second = turns.join(), turns.join()
    assert turns.holds_up()
    assert turns.begin()
    assert first.done()
    second.cancel()
    turns.leave(second)
    assert turns.holds_up()
    turns.end()
    assert not turns.holds_up()


async def test_a_turn_that_lasts_long_is_shared() -> None:
    resumed: list[bool] = []
    turns = ExclusiveTurns(
        Clock(), lambda: resumed.append(turns.holds_up()), 10.0, longest_alone_seconds=0.001
    )
    turns.join()
    later = turns.join()
    assert turns.begin()
    assert turns.holds_up()
    while not resumed:  # noqa: ASYNC110  a timer has no event
        await asyncio.sleep(0.001)
    assert resumed == [False]
    assert not turns.begin()
    turns.end()
    assert turns.begin()
    assert later.done()
