"""The judge processes of a service: the choice of a process for each submission, and its
replacement.

The pool is the judge of the listening process: a submission goes to the judge process with the
least load, a program to compile to that of equal ones, and its judgement comes back. When a judge
process ends, another takes its place and
judges its submissions again. A submission under suspicion is judged alone, in a judge process of
its own. If this process ends likewise, the submission's output is more than the service can read,
and its verdict is `output_limit`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import math
import secrets
import sys
import time
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from proctor_service.errors import HandedBack, SandboxLost, SandboxUnavailable, StartError
from proctor_service.features.replicas.judge_processes.backend import WorkersBackend
from proctor_service.features.replicas.judge_processes.worker import (
    BLAMED,
    JUDGE,
    STALLED_CPU_SECONDS,
    Cause,
    Start,
    Worker,
    WorkerEnded,
)
from proctor_service.judge.submission import Judgement, Submission, test_count
from proctor_service.observe.observer import Leased
from proctor_service.processes.values import (
    Graders,
    judgement_of,
    submission_values,
)
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, Environments
from proctor_service.sandbox.interface import (
    CHARGE,
    ENVIRONMENT_IDLE_SECONDS,
    PAYER,
    Sandboxes,
    Traits,
)
from proctor_service.settings import Settings, Share
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.languages import PYTHON

log = logging.getLogger(__name__)

MODULE = ("-m", "proctor_service.cli.judge_process")
MOST_ENDS = 10
"""Ends of judge processes under a blameless submission, before it becomes an error."""
AVAILABLE_SECONDS = 30.0
ALONE_KEPT_SECONDS = 30.0
AHEAD_SECONDS = 0.1
"""Work of a judge process ahead of time, so its answers travel in groups."""
_LONG_SECONDS = 0.1
_LEAST_SECONDS = 0.001
_PAUSES_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
TOO_MUCH = (
    "output limit: reading what the program sent took the service too much time or memory, twice"
)


class JudgePool:
    """The judge processes. `judge` is a `evaluate.Judge`, `backend` holds stateful sandboxes.

    `parts`: the settings of each judge process. `environment`: variables for them. `when_ended`:
    called with the cause when a judge process has ended. `clear`: removes the leftovers of a killed
    judge process with this PID from the machine. `command`: program to start, with three arguments:
    the descriptors of the connection and of the mark, and the PID of this process. `send_ahead`:
    called with the number of submissions allowed ahead of their turns. `environments`: those
    of sandboxes.
    """

    def __init__(
        self,
        parts: Sequence[Settings],
        environment: Mapping[str, str],
        when_ended: Callable[[Cause], None],
        clear: Callable[[int], Coroutine[Any, Any, None]],
        command: Sequence[str] = (sys.executable, *MODULE),
        stalled_cpu_seconds: float = STALLED_CPU_SECONDS,
        environments: Environments = NO_ENVIRONMENTS,
    ) -> None:
        self.backend = WorkersBackend(self, environments)
        self.when_leased: Leased | None = None
        self.send_ahead: Callable[[int], None] = lambda submissions: None
        self._parts = parts
        self._environment = environment
        self._when_ended = when_ended
        self._clear = clear
        self._command = command
        self._stalled_cpu_seconds = stalled_cpu_seconds
        self._environments = environments
        self._graders = Graders()
        self._working: list[Worker] = []
        self._not_ended: set[Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._change = asyncio.Event()
        self._alone = asyncio.Lock()
        self._loner: Worker | None = None
        self._start = secrets.token_hex(8)
        self._dismissal: asyncio.TimerHandle | None = None
        self._traits: Traits | None = None
        self._typical_seconds: float | None = None
        self._ahead = 0
        self._closing = False

    @property
    def traits(self) -> Traits:
        """Properties of the judge processes' backends, known after `open`."""
        assert self._traits is not None, "the pool is open"
        return self._traits

    def working(self) -> Sequence[Worker]:
        """Return the running judge processes."""
        return self._working

    async def open(self) -> None:
        """Start all judge processes. Raises StartError, after the end of all."""
        workers = [self._new(index) for index in range(len(self._parts))]
        try:
            opened = await asyncio.gather(
                *(worker.open() for worker in workers), return_exceptions=True
            )
            for failed in opened:
                if isinstance(failed, BaseException):
                    raise failed
        except BaseException:
            await self.close()
            raise
        for index, worker in enumerate(workers):
            self._employ(worker, index)

    async def close(self) -> None:
        """End all judge processes, and their sandboxes."""
        self._closing = True
        self._change.set()
        if self._dismissal is not None:
            self._dismissal.cancel()
        # First the tasks: a task may start a judge process, which would otherwise escape.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close(worker) for worker in list(self._not_ended)))
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def judge(self, submission: Submission, backend: Sandboxes) -> Judgement:
        """Return the judgement of a judge process. Raises a Failure, as any judge does.

        Raises HandedBack if the submission did not begin: the submission goes back to the queue,
        which knows the turns. `backend` is unused: sandboxes are leased in the judge process.
        """
        for _ in range(MOST_ENDS):
            worker = await self._worker_for(submission.environment, _preference_for(submission))
            worker.load += 1
            try:
                return await self._ask(worker, submission)
            except HandedBack:
                self._set_seconds(None)
                raise
            except WorkerEnded as ended:
                is_suspect = ended.is_suspect
            finally:
                worker.load -= 1
            if is_suspect:
                return await self._judge_alone(submission)
        raise SandboxLost(f"{MOST_ENDS} judge processes ended while they judged it")

    async def holder(self, environment: str) -> Worker:
        """Return the judge process for the next stateful sandbox: it has the fewest of them.

        Raises SandboxUnavailable if none comes up for a while.
        """
        return await self._worker_for(environment, _preference_for_sandbox)

    async def _worker_for(
        self, environment: str, preference: Callable[[Worker], tuple[float, ...]]
    ) -> Worker:
        """Return the best judge process for an environment: few run the environment, and another if
        these are full.

        Raises SandboxUnavailable if none comes up for a while.
        """
        up = await self._up()
        if environment == DEFAULT:
            return min(up, key=preference)
        now = time.monotonic()
        since = now - ENVIRONMENT_IDLE_SECONDS
        running = [worker for worker in up if worker.used_at.get(environment, -math.inf) > since]
        chosen = [worker for worker in running if worker.load < worker.slots]
        if not chosen:
            others = [worker for worker in up if worker not in running]
            chosen = [min(others, key=_preference_for_environment)] if others else running
        worker = min(chosen, key=preference)
        worker.used_at[environment] = now
        return worker

    async def _up(self) -> Sequence[Worker]:
        """Return the judge processes open to requests, at least one.

        A process is absent as soon as its end is seen: its requests would fail, again and again,
        until it is buried. Raises SandboxUnavailable if none comes up for a while.
        """
        if up := [worker for worker in self._working if worker.is_up]:
            return up
        try:
            async with asyncio.timeout(AVAILABLE_SECONDS):
                while not (up := [worker for worker in self._working if worker.is_up]):
                    if self._closing:
                        raise SandboxUnavailable("the service is stopping")
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            raise SandboxUnavailable("no judge process came up") from None
        return up

    # ------------------------------------------------------------ judging

    async def _ask(self, worker: Worker, submission: Submission) -> Judgement:
        values = submission_values(submission, self._graders)
        size = len(submission.state or b"")
        charge, charged_seconds = CHARGE.get(), 0.0

        def charge_up_to(core_seconds: float) -> None:
            nonlocal charged_seconds
            charge(core_seconds - charged_seconds)
            charged_seconds = core_seconds

        judgement, seconds, leases, used_seconds = await worker.call(
            JUDGE, values, PAYER.get(), archive_bytes=size, charge_up_to=charge_up_to
        )
        if used_seconds is not None:
            charge_up_to(used_seconds)
        self._set_seconds(seconds)
        if self.when_leased is not None:
            for lease in leases:
                self.when_leased(*lease)
        return judgement_of(judgement)

    def _set_seconds(self, seconds: float | None) -> None:
        """Set the number of submissions ahead of their turns, from their duration."""
        if seconds is None:
            self._typical_seconds = None
            ahead = 0
        else:
            before = seconds if self._typical_seconds is None else self._typical_seconds
            typical = self._typical_seconds = max(before + (seconds - before) / 8, _LEAST_SECONDS)
            is_short = typical < _LONG_SECONDS
            slots = sum(worker.slots for worker in self._working)
            ahead = round(slots * AHEAD_SECONDS / typical) if is_short else 0
        if abs(ahead - self._ahead) > self._ahead // 8:
            self._ahead = ahead
            self.send_ahead(ahead)

    async def _judge_alone(self, submission: Submission) -> Judgement:
        """Judge a submission alone in a judge process.

        The verdict needs a fresh process: leftovers of earlier submissions, for example memory, may
        have ended a used process.
        """
        async with self._alone:
            for _ in range(MOST_ENDS):
                if self._dismissal is not None:
                    self._dismissal.cancel()
                    self._dismissal = None
                loner, is_fresh = self._loner, False
                if loner is None or not loner.is_up:
                    loner, is_fresh = await self._open_loner(), True
                try:
                    return await self._ask(loner, submission)
                except HandedBack:  # a cancelled submission is still being ended there
                    self._dismiss()
                except WorkerEnded as ended:
                    if ended.cause in BLAMED and is_fresh:
                        total = test_count(submission.grader)
                        return Judgement("output_limit", total=total, message=TOO_MUCH)
                finally:
                    later = asyncio.get_running_loop().call_later
                    self._dismissal = later(ALONE_KEPT_SECONDS, self._dismiss)
        raise SandboxLost(f"{MOST_ENDS} judge processes ended while they judged it alone")

    async def _open_loner(self) -> Worker:
        if self._closing:
            raise SandboxUnavailable("the service is stopping")
        worker = self._new(len(self._parts))
        try:
            await worker.open()
        except StartError as error:
            await self._close(worker)
            raise SandboxUnavailable(f"no judge process came up: {error}") from None
        except BaseException:
            await self._close(worker)
            raise
        self._loner = worker
        self._start_task(self._supervise_loner(worker))
        return worker

    async def _supervise_loner(self, worker: Worker) -> None:
        cause = await worker.run()
        self._not_ended.discard(worker)
        if cause != "closed":
            self._ended(worker, cause)

    def _dismiss(self) -> None:
        loner, self._loner = self._loner, None
        if loner is not None:
            self._start_task(self._close(loner), to_end=True)

    # ------------------------------------------------------------ life of a worker

    def _new(self, index: int) -> Worker:
        """Return a judge process to start; the last index is for submissions judged alone."""
        count = len(self._parts)
        settings = self._parts[min(index, count - 1)]
        if index == count:
            alone = {"slots": 1, "max_sandboxes": 8, "max_stateful_sandboxes": 1, "pool_size": 1}
            settings = settings.model_copy(update=alone)
        share = Share(index, count + 1, self._start)
        start = Start(
            self._command,
            self._environment,
            settings,
            share,
            self._environments,
            self._stalled_cpu_seconds,
        )
        worker = Worker(start, lambda worker, name, values: self.backend.note(name, values))
        self._not_ended.add(worker)
        return worker

    async def _close(self, worker: Worker) -> None:
        await worker.close()
        self._not_ended.discard(worker)

    def _employ(self, worker: Worker, index: int) -> None:
        self._traits = self._traits or Traits(*worker.traits)
        self._working.append(worker)
        self._change.set()
        self._start_task(self._keep(worker, index))

    async def _keep(self, worker: Worker, index: int) -> None:
        """Supervise a judge process until its end, then start the next in its place."""
        cause = await worker.run()
        self._working.remove(worker)
        self._not_ended.discard(worker)
        self._ended(worker, cause)
        self.backend.note("ended", ())
        await self._replace(index)

    async def _replace(self, index: int) -> None:
        for tries in itertools.count():
            await asyncio.sleep(_PAUSES_SECONDS[min(tries, len(_PAUSES_SECONDS) - 1)])
            worker = self._new(index)
            try:
                await worker.open()
            except StartError as error:
                log.error("a judge process did not come up", extra={"why": str(error)})
                await self._close(worker)
                continue
            self._employ(worker, index)
            return

    def _ended(self, worker: Worker, cause: Cause) -> None:
        log.warning("a judge process ended", extra={"cause": cause, "worker_pid": worker.pid})
        self._when_ended(cause)
        self._start_task(self._clear(worker.pid), to_end=True)

    def _start_task(self, work: Coroutine[Any, Any, None], *, to_end: bool = False) -> None:
        """Start a task, which `close` cancels, or awaits if it is `to_end`."""
        tasks = self._ending if to_end else self._tasks
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _preference(worker: Worker) -> tuple[bool, float]:
    return worker.is_silent, (worker.load - worker.yielding) / worker.slots


def _preference_for(submission: Submission) -> Callable[[Worker], tuple[float, ...]]:
    """Return the preference for a submission: equal programs of other languages than Python go to
    the same judge process while it has a free slot, since each process compiles them once.
    """
    if submission.language == PYTHON:
        return _preference
    source = hashlib.blake2b(submission.source.encode("utf-8", "surrogatepass"), digest_size=8)

    def preference(worker: Worker) -> tuple[float, ...]:
        is_silent, load = _preference(worker)
        rank = zlib.crc32(b"%d" % worker.pid, zlib.crc32(source.digest()))
        return is_silent, load if load >= 1 else 0.0, rank

    return preference


def _preference_for_environment(worker: Worker) -> tuple[bool, int, float]:
    is_silent, load = _preference(worker)
    return is_silent, len(worker.used_at), load


def _preference_for_sandbox(worker: Worker) -> tuple[bool, int, float]:
    is_silent, load = _preference(worker)
    return is_silent, worker.sandboxes, load
