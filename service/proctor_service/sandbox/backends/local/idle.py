"""Idle time of a sandbox, from the kernel's own figures: only confirmed sleep counts.

The kernel adds a thread's wait for a core to its schedstat when the wait is over. So a thread in state R
may be waiting since the look before it last ran, and what lies after that look stays open until the wait
is over, however long that takes. What is settled is never taken back. The time a look itself takes is
nobody's: between its first and its last read anything may happen, and a busy machine makes it long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MOST_MARKS = 64
_ESTIMATED_SECONDS = 0.001  # CPU time of ended threads below this says nothing of their waits
_BLOCKED_PART = (
    1 / 3
)  # of time in which a thread waits for the kernel itself; hostile code can do so


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """What the kernel says of a thread: seconds run, seconds waited for a core, and its state."""

    ran: float
    waited: float
    runnable: bool = False
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """All that was read of a sandbox between `begun` and `done` (monotonic clock).

    `cpu_seconds`: of the sandbox so far. `throttled_seconds`: of the service's cgroup so far, under a
    quota. `service_seconds`: in which the service's own thread ran or waited for a core. `rested_seconds`:
    in which it was somebody else's turn, up to `begun` and up to `done`; `turns`: how many have ended.
    """

    begun: float
    done: float
    threads: Mapping[int, ThreadTimes]
    cpu_seconds: float = 0.0
    throttled_seconds: float = 0.0
    service_seconds: float = 0.0
    rested_seconds: tuple[float, float] = (0.0, 0.0)
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """A stretch of wall time of which all is known now; the empty one where nothing is.

    `used_seconds` of CPU time over all cores; `idle_seconds` in which the sandbox slept; `unseen_seconds`
    of which nobody can tell. `asleep`: it reaches to the present, and was sleep.
    """

    seconds: float = 0.0
    used_seconds: float = 0.0
    idle_seconds: float = 0.0
    unseen_seconds: float = 0.0
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class _Mark:
    """A look, as running totals since the first.

    `active`: seconds run or waited, over all threads. `seen`: those that some thread certainly ran or
    waited. `doubtful`: in which a thread that is gone may have waited.
    """

    number: int
    begun: float
    done: float
    cpu: float
    active: float
    seen: float
    doubtful: float
    throttled: float
    service: float
    rested: tuple[float, float]
    turns: int


class IdleClock:
    """Turns samples of a sandbox into settled stretches of time, one after the other, without a gap.

    It counts from `start`, whose threads and CPU time are not known. `is_counted`: a cgroup counts the
    CPU time, also that of threads that have ended.
    """

    def __init__(self, start: Sample, *, is_counted: bool) -> None:
        self._is_counted = is_counted
        self._threads: Mapping[int, ThreadTimes] = {}
        self._waiting_since: dict[
            int, int
        ] = {}  # by thread in state R: the look after which it waits
        first = _Mark(
            number=0,
            begun=start.begun,
            done=start.done,
            cpu=0.0,
            active=0.0,
            seen=0.0,
            doubtful=0.0,
            throttled=start.throttled_seconds,
            service=start.service_seconds,
            rested=start.rested_seconds,
            turns=start.turns,
        )
        self._marks = [first]

    def settle(self, sample: Sample) -> Settled:
        """Takes note of a sample, and says what it settles."""
        last = self._marks[-1]
        mark = self._mark(last, sample)
        # It ran since the last look: so it waits, if it does, since after that one.
        self._waiting_since = {
            thread: self._waiting_since.get(thread, last.number)
            if _did_not_run(thread, self._threads, times)
            else last.number
            for thread, times in sample.threads.items()
            if times.runnable
        }
        slept = _all_slept(self._threads, sample.threads)
        self._threads = sample.threads
        self._marks.append(mark)
        first = self._marks[0]
        until = min(self._waiting_since.values(), default=mark.number)
        end = next(m for m in reversed(self._marks) if m.number <= until)
        settled = Settled()
        if end is not first:
            blocked = any(times.blocked for times in sample.threads.values())
            throttled = 0.0 if slept and first is last else end.throttled - first.throttled
            settled = self._stretch(first, end, mark, throttled, blocked=blocked)
        self._forget_before(end)
        return settled

    def _mark(self, last: _Mark, sample: Sample) -> _Mark:
        active, seen = _activity(self._threads, sample, sample.cpu_seconds - last.cpu)
        gone = [n for t, n in self._waiting_since.items() if t not in sample.threads]
        doubtful = 0.0
        if gone:
            waited_from = next(m for m in reversed(self._marks) if m.number <= min(gone))
            doubtful = sample.done - waited_from.begun
        return _Mark(
            last.number + 1,
            sample.begun,
            sample.done,
            sample.cpu_seconds,
            last.active + active,
            last.seen + seen,
            last.doubtful + doubtful,
            sample.throttled_seconds,
            sample.service_seconds,
            sample.rested_seconds,
            sample.turns,
        )

    def _stretch(
        self, first: _Mark, end: _Mark, now: _Mark, throttled: float, *, blocked: bool
    ) -> Settled:
        """What lies between two looks. Waits that were told since the second may belong to it."""
        seconds = max(0.0, end.begun - first.done)
        used = end.cpu - first.cpu
        idle = seconds - max(used, now.active - first.active) - max(0.0, throttled)
        idle = max(0.0, idle)
        unseen = 0.0
        if not self._is_counted:
            unseen = max(0.0, seconds - idle - max(used, now.seen - first.seen))
        asleep = end is now and idle > 0.95 * seconds > 0.0
        idle = max(0.0, idle - (end.rested[1] - first.rested[0]))
        # Nobody can tell when a line was said: it is heard when the service, which may itself be
        # waiting for a core, comes to it.
        late = min(idle, end.service - first.service) if end.turns > first.turns else 0.0
        idle -= late
        doubtful = min(idle, now.doubtful - first.doubtful)
        idle -= doubtful
        if blocked and idle > _BLOCKED_PART * seconds:
            idle *= _BLOCKED_PART
        return Settled(end.begun - first.begun, used, idle, unseen + late + doubtful, asleep)

    def _forget_before(self, mark: _Mark) -> None:
        self._marks = self._marks[self._marks.index(mark) :]
        if len(self._marks) > _MOST_MARKS:
            del self._marks[1:-1:2]


def _activity(
    before: Mapping[int, ThreadTimes], sample: Sample, used: float
) -> tuple[float, float]:
    """Seconds in which threads ran or waited, summed; and those in which one certainly did."""
    ran = waited = lasting = longest = 0.0
    for thread, now in sample.threads.items():
        old = before.get(thread)
        its_run = now.ran - (old.ran if old else 0.0)
        its_wait = now.waited - (old.waited if old else 0.0)
        ran, waited = ran + its_run, waited + its_wait
        lasting += its_run + its_wait if old else 0.0
        longest = max(longest, its_run + its_wait)
    # Threads that ended took their times along; the CPU time did not go. They waited as others did.
    of_ended = used - ran
    if of_ended > _ESTIMATED_SECONDS:
        waited += of_ended * (waited / ran if ran > 0 else 0.0)
        ran += of_ended
    return ran + waited, max(used, lasting, longest)


def _did_not_run(thread: int, before: Mapping[int, ThreadTimes], now: ThreadTimes) -> bool:
    old = before.get(thread)
    return old is not None and old.runnable and old.ran == now.ran


def _all_slept(before: Mapping[int, ThreadTimes], now: Mapping[int, ThreadTimes]) -> bool:
    """Whether the same threads slept at both looks, and none ran in between: then none woke up."""
    return before.keys() == now.keys() and all(
        not old.runnable and not now[thread].runnable and old.ran == now[thread].ran
        for thread, old in before.items()
    )
