"""Jobs share the cores of a simulated machine, whatever the length of their programs."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest
from event_loop import FAR, Clock, settle

from proctor_service.sandbox.local.cgroups import AWAKE
from proctor_service.sandbox.local.core_shares import CoreShares
from proctor_service.scheduling.fair_share import MOST_GUESSED_SECONDS
from proctor_service.scheduling.queue import Deadlines, FairQueue, Ticket

STEP_SECONDS = 0.01
CORES = 2


@dataclass(eq=False)
class Program:
    """A program that runs: how many core seconds it has used, of how many."""

    job: str
    ticket: Ticket
    needs_seconds: float
    ended: asyncio.Event
    used_seconds: float = 0.0

    @property
    def is_long_runner(self) -> bool:
        """Whether others may begin beside it."""
        return self.used_seconds > MOST_GUESSED_SECONDS


class Machine:
    """Two cores and a queue in front of them. `used`: core seconds by job."""

    def __init__(self, *, with_weights: bool = True) -> None:
        self.clock = Clock()
        self.queue = FairQueue(CORES + 2, 10_000, Deadlines(), self.clock)
        self.used: defaultdict[str, float] = defaultdict(float)
        self.ended: Counter[str] = Counter()
        self.running: list[Program] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._shares = CoreShares()
        self._with_weights = with_weights

    def add(self, job: str, count: int, core_seconds: float) -> None:
        """Add programs that need so many core seconds each."""
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._item(job, core_seconds)))

    async def _item(self, job: str, core_seconds: float) -> None:
        async with self.queue.admit("t", job, FAR) as ticket:
            program = Program(job, ticket, core_seconds, asyncio.Event())
            self.running.append(program)
            await program.ended.wait()

    async def run(self, seconds: float) -> None:
        """Let the machine run for so long."""
        for _ in range(round(seconds / STEP_SECONDS)):
            await settle()
            self._step()
        await settle()

    def _step(self) -> None:
        self.clock.now += STEP_SECONDS
        if self._with_weights:
            self._shares.update(Counter(("t", each.job) for each in self.running))
        weights = [self._shares.weights.get(("t", each.job), AWAKE) for each in self.running]
        total = sum(weights)
        for program, weight in zip(list(self.running), weights, strict=True):
            # No program uses more than a core.
            seconds = min(STEP_SECONDS, CORES * STEP_SECONDS * weight / total)
            program.used_seconds += seconds
            self.used[program.job] += seconds
            program.ticket.charge(seconds)
            if program.used_seconds >= program.needs_seconds:
                self.running.remove(program)
                self.ended[program.job] += 1
                program.ended.set()
        long_runners = Counter(("t", each.job) for each in self.running if each.is_long_runner)
        self.queue.lend(long_runners.total(), long_runners)

    async def close(self) -> None:
        """Cancel what is left."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def share(machine: Machine, job: str, seconds: float) -> float:
    """The part of the job in the core seconds used while the machine runs for so long."""
    before = dict(machine.used)
    await machine.run(seconds)
    used = {name: total - before.get(name, 0.0) for name, total in machine.used.items()}
    return used[job] / sum(used.values())


@pytest.mark.parametrize("with_weights", [True, False])
@pytest.mark.parametrize("seconds", [0.05, 0.5, 2.0])
async def test_short_and_long_programs_of_two_jobs_each_get_half(
    seconds: float, with_weights: bool
) -> None:
    machine = Machine(with_weights=with_weights)
    machine.add("long", 200, seconds)
    machine.add("short", 1500, STEP_SECONDS)
    assert await share(machine, "long", 10.0) == pytest.approx(0.5, abs=0.08)
    await machine.close()


async def test_what_a_job_used_while_it_was_alone_is_no_debt() -> None:
    machine = Machine()
    machine.add("long", 200, 2.0)
    await machine.run(20.0)
    machine.add("short", 1500, STEP_SECONDS)
    assert await share(machine, "long", 6.0) == pytest.approx(0.5, abs=0.12)
    await machine.close()


async def test_endless_programs_hold_up_no_other_job() -> None:
    machine = Machine()
    machine.add("endless", 500, 1e9)
    await machine.run(10.0)
    assert len(machine.running) <= 2 * machine.queue.slots  # more would share the cores too thinly
    machine.add("short", 50, STEP_SECONDS)
    await machine.run(1.5)  # half of two cores need half a second
    assert machine.ended["short"] == 50
    await machine.close()


async def test_a_few_endless_programs_do_not_hold_up_the_rest_of_their_job() -> None:
    machine = Machine()
    machine.add("mixed", 3, 1e9)
    machine.add("mixed", 100, STEP_SECONDS)
    await machine.run(5.0)
    assert machine.ended["mixed"] == 100
    await machine.close()
