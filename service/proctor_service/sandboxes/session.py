"""Session of a stateful sandbox: from creation to the end, with a time to live (ttl).

A task holds the backend's context open until a stop, until the ttl passes without use, or until the
sandbox ends by itself. The session first decides the end, then carries out the end: after the
decision new uses are refused, and running uses are cancelled. The end is decided only once, so a
stop never cancels the clean-up of an earlier end.

All concurrent commands of a sandbox share a slot lease, a single queue ticket. A ticket stands for
a sandbox that needs a core, for any number of processes inside. The backend counts idle sandboxes,
and the queue grants as many extra tickets. With a ticket for each command, several sleeping
commands in a sandbox would block the queue for other jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar

from proctor_client.wire import Priority, SandboxStatus
from proctor_service.errors import (
    Busy,
    Cancelled,
    DeadlinePassed,
    Failure,
    NoSandboxInTime,
    Refusal,
    SandboxEnded,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.sandbox.interface import (
    DEFAULT,
    PAYER,
    Backend,
    Ending,
    Limits,
    StatefulSandbox,
)
from proctor_service.scheduling.places import Whose
from proctor_service.scheduling.queue import FairQueue, stopping

log = logging.getLogger(__name__)

T = TypeVar("T")
LONGEST_QUEUE_SECONDS = 600.0
ExecOutcome = Literal["success", "failure", "error"]
"""Exit code 0; another exit code or a signal; an end by a limit or a lost sandbox."""

ENDINGS: Mapping[Ending, str] = {
    "exited": "it ended by itself",
    "signalled": "its first process was killed",
    "cpu_limit": "it used up its CPU time",
    "wall_limit": "it used up its time",
    "memory_limit": "it used up its memory",
    "output_limit": "it wrote more than it may",
    "killed": "it was killed",
}


@dataclass(frozen=True, slots=True)
class Order:
    """Specification of a stateful sandbox, with its owner.

    `begun`: the sandbox belongs to begun work, which continues while the service drains.
    """

    tenant: str
    limits: Limits
    tags: tuple[str, ...] = ()
    ttl_seconds: float = 600.0
    files: Mapping[str, str] = field(default_factory=dict)
    environment: str = DEFAULT
    job: str = "default"
    priority: Priority = "training"
    begun: bool = False


@dataclass(slots=True)
class SlotLease:
    """Context for each command: the first waits for the ticket, the last returns the ticket.

    `begun`: the commands belong to begun work, which survives a drain.
    """

    queue: FairQueue
    whose: Whose
    priority: Priority
    begun: bool
    _entering: asyncio.Lock = field(default_factory=asyncio.Lock)
    _commands: int = 0
    _held: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> float:
        """Wait for the ticket, and return the seconds of the wait.

        Raises Busy and Draining, both before the command runs.
        """
        queue = self.queue
        asked = queue.clock()
        async with self._entering:
            if queue.draining and not self.begun:
                raise stopping()
            if self._commands == 0:
                try:
                    async with AsyncExitStack() as stack:
                        stack.callback(queue.reserve(1, self.whose, self.begun).close)
                        deadline = queue.clock() + LONGEST_QUEUE_SECONDS
                        turn = queue.admit(*self.whose, deadline, self.priority, self.begun)
                        await stack.enter_async_context(turn)
                        self._held = stack.pop_all()
                except DeadlinePassed:
                    message = f"no core came free within {LONGEST_QUEUE_SECONDS:g} s"
                    raise Busy(message) from None
                except Cancelled:  # the queue drains
                    raise stopping() from None
            self._commands += 1
        return queue.clock() - asked

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._commands -= 1
        if self._commands == 0:
            await self._held.aclose()


class Session:
    """Session of a stateful sandbox; create sessions in a running event loop."""

    def __init__(
        self,
        name: str,
        order: Order,
        backend: Backend,
        turn: SlotLease,
        on_end: Callable[[Session], None],
        on_gone: Callable[[Session], None],
    ) -> None:
        """`on_end` is called when the end is decided, `on_gone` when the clean-up is complete."""
        # The backend's name comes too late, since clients need an id while the sandbox is pending.
        # And an id from before a restart must never lead to a new sandbox.
        self.id = name
        self.tenant = order.tenant
        self.job = order.job
        self.tags = order.tags
        self.limits = order.limits
        self.environment = order.environment
        self.ttl_seconds = order.ttl_seconds
        self.created_at = datetime.now(UTC)
        self.status: SandboxStatus = "pending"
        self.message = ""
        self.by_own_act = False  # True if programs in the sandbox caused the end
        self.turn = turn
        self.execs: Counter[ExecOutcome] = Counter()
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._made = self._loop.time()
        self._expires = self._made + self.ttl_seconds
        self._uses = 0
        self._sandbox: StatefulSandbox | None = None
        self._settled = asyncio.Event()  # set once the sandbox runs or is over
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._error: Refusal | Failure | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._life = self._loop.create_task(self._live(backend, order))
        self._life.add_done_callback(lambda _: on_gone(self))

    @property
    def over(self) -> bool:
        """True once the end is decided; the clean-up may still run."""
        return self._over.done()

    @property
    def expires_at(self) -> datetime:
        """Time at which the ttl ends the session, unless a use renews the ttl.

        While a use runs, the value is a whole ttl from now.
        """
        expires = self._expires
        if self._uses and not self.over:
            expires = self._loop.time() + self.ttl_seconds
        return self.created_at + timedelta(seconds=expires - self._made)

    @contextmanager
    def using(self) -> Iterator[None]:
        """Context of a use: the ttl pauses during the use and restarts at its end."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if not self.over:
                self._expires = self._loop.time() + self.ttl_seconds

    async def begun(self) -> None:
        """Wait until the sandbox runs.

        Raises the error of a failed start: SandboxUnavailable, or a Refusal.
        """
        await self._settled.wait()
        if self._error is not None:
            # Raise a copy: a shared exception would collect the tracebacks of all tasks.
            raise type(self._error)(self._error.message)

    async def do(self, work: Callable[[StatefulSandbox], Coroutine[Any, Any, T]]) -> T:
        """Run work in the sandbox as a use; wait first while the sandbox is pending.

        The end of the sandbox cancels the work. Raises the errors of `work`, SandboxEnded if the
        sandbox was stopped or ended by its own act, and SandboxLost if the sandbox failed.
        """
        with self.using():
            await self._settled.wait()
            self.check()
            assert self._sandbox is not None, "it runs"
            doing = self._loop.create_task(work(self._sandbox))
            first: tuple[asyncio.Future[Any], ...] = (doing, self._over)
            try:
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            finally:
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
            if doing.cancelled():
                self.check()
            return doing.result()

    def stop(self, why: str) -> bool:
        """Decide the end and start the clean-up; return False if the session was over already."""
        if self.over:
            return False
        self._end(SandboxEnded(why))
        self._life.cancel()
        return True

    async def gone(self) -> None:
        """Wait until the clean-up is complete."""
        await asyncio.wait({self._life})

    def check(self) -> None:
        """Raise SandboxEnded after a stop or an end by the sandbox's own act.

        Raises SandboxLost after a failure.
        """
        if self.over:
            kind = SandboxEnded if self.status == "stopped" else SandboxLost
            raise kind(f"sandbox {self.id} is {self.status}: {self.message}")

    async def _live(self, backend: Backend, order: Order) -> None:
        """Write the files, wait for the end, and decide the end before the clean-up."""
        files = dict(order.files)
        limits, environment, tags = order.limits, order.environment, order.tags
        PAYER.set((order.tenant, order.job))
        del order
        try:
            async with backend.open(limits, environment, tags) as sandbox:
                try:
                    while files:  # free each file's text at once: files may be large
                        path, text = files.popitem()
                        await sandbox.write_file(path, text.encode("utf-8", "surrogatepass"))
                    # A backend may swallow a cancellation, so the session may be over by now.
                    if not self._over.done():
                        self._sandbox = sandbox
                        self.status = "running"
                        self._expires = self._loop.time() + self.ttl_seconds
                        self._timer = self._loop.call_at(self._expires, self._on_timer)
                        self._settled.set()
                        self._log("a sandbox runs", place=sandbox.id)
                        ending = (await sandbox.ended()).ending
                        self.by_own_act = ending != "killed" and not self.over
                        self._end(SandboxEnded(ENDINGS[ending]))
                except (Refusal, Failure) as error:
                    self._end(error)  # before the clean-up
        except asyncio.CancelledError:
            self._end(SandboxEnded("the service is stopping"))  # unless `stop` set a reason
        except (Refusal, Failure) as error:
            self._end(error)
        except Exception:
            log.exception("a stateful sandbox failed", extra={"sandbox_id": self.id})
            self._end(SandboxLost(f"a fault of the service; its log has it under {self.id}"))

    def _on_timer(self) -> None:
        # A renewal leaves the timer as is; the timer checks the new time when the old time is over.
        now = self._loop.time()
        if self._uses:
            due = now + self.ttl_seconds
        elif now < self._expires:
            due = self._expires
        else:
            self.stop(f"its ttl of {self.ttl_seconds:g} s passed")
            return
        self._timer = self._loop.call_at(due, self._on_timer)

    def _end(self, error: Refusal | Failure) -> None:
        if self.over:
            return
        is_of_start = isinstance(error, Failure) and not isinstance(error, NoSandboxInTime)
        if is_of_start and self.status == "pending":
            error = SandboxUnavailable(error.message)  # the tenant has lost no data
        self.status = "stopped" if isinstance(error, SandboxEnded) else "failed"
        self.message = error.message
        self._error = error
        self._sandbox = None
        if self._timer is not None:
            self._timer.cancel()
        self._over.set_result(None)
        self._settled.set()
        self._log("a sandbox ended", why=self.message, execs=self.execs.total())
        self._on_end(self)

    def _log(self, text: str, **more: object) -> None:
        log.info(
            text,
            extra={
                "sandbox_id": self.id,
                "tenant": self.tenant,
                "job": self.job,
                "tags": list(self.tags),
                "status": self.status,
                "seconds": round(self._loop.time() - self._made, 3),
                **more,
            },
        )
