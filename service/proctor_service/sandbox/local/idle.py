"""Resource use of a sandbox, from kernel counters. Idle time: only confirmed sleep counts.

The kernel adds a thread's wait for a core to its schedstat only at the end of the wait. So a thread in
state R may have been waiting since the last sample before its latest run, and the time after this sample
stays unsettled until the wait ends, however long. Settled time is final. The duration of a sample is
excluded: the state may change between the first and the last read, and on a busy machine a sample takes
long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proctor_service.sandbox.linux.time_limits import TurnClock

_MOST_MARKS = 64
_ESTIMATED_SECONDS = 0.001  # less CPU time of ended threads says too little about their waits
_BLOCKED_PART = 1 / 3  # counted as idle while a thread is in state D, which hostile code can cause
_MOST_THREADS = 10_000
_LATELY_SECONDS = 1.0
_CONTENDED_SHARE = 0.01
_LONG_RUN_SECONDS = 0.25  # of CPU time


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Kernel counters of a thread: seconds run, seconds waited for a core, and its state.

    `runnable`: state R. `blocked`: state D.
    """

    ran: float
    waited: float
    runnable: bool = False
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """All values read about a sandbox between `begun` and `done` (monotonic clock).

    `cpu_seconds`: total of the sandbox. `throttled_seconds`: total of the service's cgroup under a
    CPU quota. `service_seconds`: run time plus run-queue wait of the service's own thread.
    `rested_seconds`: total time in which the peer had to speak next, up to `begun` and up to
    `done`. `exchanges`: number of ended turns, and of transfers in which the program may have
    waited for the service. `away_seconds`: total time in which the service was stopped.
    """

    begun: float
    done: float
    threads: Mapping[int, ThreadTimes]
    cpu_seconds: float = 0.0
    throttled_seconds: float = 0.0
    service_seconds: float = 0.0
    rested_seconds: tuple[float, float] = (0.0, 0.0)
    exchanges: int = 0
    away_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """A stretch of wall time with final figures; empty without settled time.

    `used_seconds`: CPU time over all cores. `idle_seconds`: time asleep. `unseen_seconds`: time of
    unknown use. `asleep`: the stretch reaches to the present, and the sandbox slept. `away_seconds`: time
    asleep, or stopped, in which the service was stopped; apart from `idle_seconds`.
    """

    seconds: float = 0.0
    used_seconds: float = 0.0
    idle_seconds: float = 0.0
    unseen_seconds: float = 0.0
    asleep: bool = False
    away_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Mark:
    """A sample as running totals since the first sample.

    `active`: seconds run or waited, summed over all threads. `seen`: seconds in which at least a
    single thread certainly ran or waited. `doubtful`: seconds in which an ended thread may have
    waited.
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
    exchanges: int
    away: float


class IdleClock:
    """Converts samples of a sandbox into consecutive settled stretches of time without gaps.

    Counting begins at `start`, with threads and CPU time unknown. `is_counted`: a cgroup counts CPU time,
    including the time of ended threads.
    """

    def __init__(self, start: Sample, *, is_counted: bool) -> None:
        self._is_counted = is_counted
        self._threads: Mapping[int, ThreadTimes] = {}
        # By thread in state R: number of the last sample before its wait.
        self._waiting_since: dict[int, int] = {}
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
            exchanges=start.exchanges,
            away=start.away_seconds,
        )
        self._marks = [first]

    def account(self, sample: Sample) -> Settled:
        """Add a sample and return the stretch settled by this sample."""
        last = self._marks[-1]
        mark = self._mark(last, sample)
        # If a thread ran after the last sample, its present wait also began after this sample.
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
            sample.exchanges,
            sample.away_seconds,
        )

    def _stretch(
        self, first: _Mark, end: _Mark, now: _Mark, throttled: float, *, blocked: bool
    ) -> Settled:
        """Return the stretch from `first` to `end`; may include waits reported after `end`."""
        seconds = max(0.0, end.begun - first.done)
        used = end.cpu - first.cpu
        idle = seconds - max(used, now.active - first.active) - max(0.0, throttled)
        idle = max(0.0, idle)
        unseen = 0.0
        if not self._is_counted:
            unseen = max(0.0, seconds - idle - max(used, now.seen - first.seen))
        asleep = end is now and idle > 0.95 * seconds > 0.0
        idle = max(0.0, idle - (end.rested[1] - first.rested[0]))
        away = min(idle, end.away - first.away)
        idle -= away
        # The time at which a line or much output was written is unknown: the service, possibly
        # waiting for a core itself, reads it later.
        has_waited = end.exchanges > first.exchanges
        late = min(idle, max(0.0, end.service - first.service)) if has_waited else 0.0
        idle -= late
        doubtful = min(idle, now.doubtful - first.doubtful)
        idle -= doubtful
        if blocked and idle > _BLOCKED_PART * seconds:
            idle *= _BLOCKED_PART
        unseen += late + doubtful
        return Settled(end.begun - first.begun, used, idle, unseen, asleep, away)

    def _forget_before(self, mark: _Mark) -> None:
        self._marks = self._marks[self._marks.index(mark) :]
        if len(self._marks) > _MOST_MARKS:
            del self._marks[1:-1:2]


def _activity(
    before: Mapping[int, ThreadTimes], sample: Sample, used: float
) -> tuple[float, float]:
    """Return seconds run or waited, summed over threads; and seconds certainly active."""
    ran = waited = lasting = longest = 0.0
    for thread, now in sample.threads.items():
        old = before.get(thread)
        its_run = now.ran - (old.ran if old else 0.0)
        its_wait = now.waited - (old.waited if old else 0.0)
        ran, waited = ran + its_run, waited + its_wait
        lasting += its_run + its_wait if old else 0.0
        longest = max(longest, its_run + its_wait)
    # The counters of ended threads are gone; their CPU time is in the total. Assume the same ratio
    # of waiting to running as for the other threads.
    of_ended = used - ran
    if of_ended > _ESTIMATED_SECONDS:
        waited += of_ended * (waited / ran if ran > 0 else 0.0)
        ran += of_ended
    return ran + waited, max(used, lasting, longest)


def _did_not_run(thread: int, before: Mapping[int, ThreadTimes], now: ThreadTimes) -> bool:
    old = before.get(thread)
    return old is not None and old.runnable and old.ran == now.ran


def _all_slept(before: Mapping[int, ThreadTimes], now: Mapping[int, ThreadTimes]) -> bool:
    """Return True if the same threads slept at both samples and all in between."""
    return before.keys() == now.keys() and all(
        not old.runnable and not now[thread].runnable and old.ran == now[thread].ran
        for thread, old in before.items()
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """Resource use of a sandbox since the previous sample, and the newly settled time before.

    `used_seconds`: CPU time since the previous sample, over all cores. `cpu_seconds`: CPU time
    since monitoring began. `contended`: threads recently waited for a core. `settled_seconds`:
    length of the newly settled stretch, which follows the earlier stretches without a gap. Parts of
    this stretch: `idle_seconds`; `active_seconds`, running or idle; `unseen_seconds`, of unknown
    use; `away_seconds`, see `Settled`.
    """

    used_seconds: float
    contended: bool
    cpu_seconds: float
    settled_seconds: float = 0.0
    idle_seconds: float = 0.0
    active_seconds: float = 0.0
    unseen_seconds: float = 0.0
    away_seconds: float = 0.0


@dataclass(slots=True)
class Seen:
    """State of a sandbox at its last sample. `started_at`: see `Monitored`."""

    clock: IdleClock
    looked_at: float
    started_at: float
    cpu_seconds: float = 0.0
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict)
    waited_lately: float = 0.0
    asleep: bool = False
    ran: dict[int, float] = field(default_factory=dict)
    ran_seconds: float = 0.0

    @property
    def is_long_runner(self) -> bool:
        """True if the sandbox has run for long and is awake."""
        return self.cpu_seconds > _LONG_RUN_SECONDS and not self.asleep

    def run_at_least(self, cpu_seconds: float, threads: Mapping[int, ThreadTimes]) -> float:
        """Return CPU seconds without a cgroup's count: the sum over processes, but never
        decreasing.

        The sum forgets processes without a waiting parent. Threads missing from a sample stay
        remembered; otherwise their whole run time would count again.
        """
        if not self.ran:
            self.ran_seconds = cpu_seconds  # excludes run time from before the first sample
        else:
            for thread, times in threads.items():
                self.ran_seconds += max(0.0, times.ran - self.ran.get(thread, 0.0))
        if len(self.ran) > _MOST_THREADS:
            self.ran.clear()
        self.ran.update((thread, times.ran) for thread, times in threads.items())
        return max(cpu_seconds, self.ran_seconds, self.cpu_seconds)

    def is_contended(self, interval: float, threads: Mapping[int, ThreadTimes]) -> bool:
        """Return True if threads recently waited for a core; the first sample sets the baseline."""
        if self.threads:
            self.waited_lately *= max(0.0, 1.0 - interval / _LATELY_SECONDS)
            for thread, times in threads.items():
                old = self.threads.get(thread)
                self.waited_lately += times.waited - (old.waited if old else 0.0)
        return self.waited_lately > _CONTENDED_SHARE * _LATELY_SECONDS

    def measure(self, sample: Sample, turns: TurnClock | None, *, is_counted: bool) -> Measurement:
        """Add a sample and return the figures since the last sample; `turns`: of a conversation."""
        cpu, rested = sample.cpu_seconds, sample.rested_seconds
        if not is_counted:
            cpu = self.run_at_least(cpu, sample.threads)
        if turns is not None:  # reading in a thread takes a while
            rested = rested[0], turns.rested_seconds()
        settled = self.clock.account(replace(sample, cpu_seconds=cpu, rested_seconds=rested))
        used = cpu - self.cpu_seconds
        contended = self.is_contended(sample.begun - self.looked_at, sample.threads)
        self.asleep = settled.asleep
        self.looked_at, self.cpu_seconds, self.threads = sample.begun, cpu, sample.threads
        return Measurement(
            used,
            contended,
            cpu,
            settled.seconds,
            settled.idle_seconds,
            min(settled.seconds, settled.used_seconds + settled.idle_seconds),
            settled.unseen_seconds,
            settled.away_seconds,
        )
