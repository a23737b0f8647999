"""One stateful sandbox: its life from the order to its end, and how long it may go unused.

A task holds the backend's context open until somebody stops it, nobody has used it for its ttl, or it
ends by itself. An end is decided first and carried out then: from that moment no use begins, and
those under way are broken off. It is decided once, so that a stop never cancels the clean-up of
another end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from proctor_client.wire import Priority, SandboxStatus
from proctor_service.errors import (
    Failure,
    Refusal,
    SandboxEnded,
    SandboxLost,
    SandboxUnavailable,
)
from proctor_service.registry.turn import Turn
from proctor_service.sandbox.interface import Backend, Ending, Limits, StatefulSandbox

log = logging.getLogger(__name__)

T = TypeVar("T")
ExecOutcome = Literal["success", "failure", "error"]
"""Exit code 0; another one, or a signal; an end that was not its own: a limit, a lost sandbox."""

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
    """What a stateful sandbox is to be, and whose.

    `begun`: it is for work that has begun, and goes on while the service drains.
    """

    tenant: str
    limits: Limits
    tags: tuple[str, ...] = ()
    ttl_seconds: float = 600.0
    files: Mapping[str, str] = field(default_factory=dict)
    job: str = "default"
    priority: Priority = "training"
    begun: bool = False


class Kept:
    """A stateful sandbox, by the name under which its tenant knows it; made in a running loop."""

    def __init__(
        self,
        name: str,
        order: Order,
        backend: Backend,
        turn: Turn,
        on_end: Callable[[Kept], None],
    ) -> None:
        # Not the backend's name: it must be there while the sandbox is pending, and a client that
        # still holds one from before a restart must not meet another sandbox by it.
        self.id = name
        self.tenant = order.tenant
        self.job = order.job
        self.tags = order.tags
        self.limits = order.limits
        self.ttl_seconds = order.ttl_seconds
        self.created_at = datetime.now(UTC)
        self.status: SandboxStatus = "pending"
        self.message = ""
        self.by_own_act = False  # how it ended: its own programs brought it about
        self.turn = turn
        self.execs: Counter[ExecOutcome] = Counter()
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._made = self._loop.time()
        self._expires = self._made + self.ttl_seconds
        self._uses = 0
        self._sandbox: StatefulSandbox | None = None
        self._settled = asyncio.Event()  # it runs, or is over
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._error: Refusal | Failure | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._life = self._loop.create_task(self._live(backend, order))

    @property
    def over(self) -> bool:
        """Whether its end is decided; what it held may still be on its way out."""
        return self._over.done()

    @property
    def expires_at(self) -> datetime:
        """When it is stopped unless it is used before; a use under way puts it off."""
        expires = self._expires
        if self._uses and not self.over:
            expires = self._loop.time() + self.ttl_seconds
        return self.created_at + timedelta(seconds=expires - self._made)

    @contextmanager
    def using(self) -> Iterator[None]:
        """A use: the ttl does not pass meanwhile, and counts anew from its end."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if not self.over:
                self._expires = self._loop.time() + self.ttl_seconds

    async def begun(self) -> None:
        """Waits until it runs. Raises what prevented it: SandboxUnavailable, or a Refusal."""
        await self._settled.wait()
        if self._error is not None:
            # A copy: one exception raised in many tasks would gather all their tracebacks.
            raise type(self._error)(self._error.message)

    async def do(self, work: Callable[[StatefulSandbox], Coroutine[Any, Any, T]]) -> T:
        """Does work in it; a use. It waits while the sandbox is pending, and ends with it.

        Raises what `work` raises, SandboxEnded when it was stopped or ended by its own act, and
        SandboxLost when it failed.
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
        """Decides its end, and begins to carry it out; False when it was over already."""
        if self.over:
            return False
        self._end(SandboxEnded(why))
        self._life.cancel()
        return True

    async def gone(self) -> None:
        """Waits until nothing is left of it."""
        await asyncio.wait({self._life})

    def when_gone(self, then: Callable[[Kept], None]) -> None:
        """Calls `then` once nothing is left of it."""
        self._life.add_done_callback(lambda _: then(self))

    def check(self) -> None:
        """Raises SandboxEnded once it was stopped or ended by its own act, else SandboxLost."""
        if self.over:
            kind = SandboxEnded if self.status == "stopped" else SandboxLost
            raise kind(f"sandbox {self.id} is {self.status}: {self.message}")

    async def _live(self, backend: Backend, order: Order) -> None:
        files = dict(order.files)
        limits, tags = order.limits, order.tags
        del order
        try:
            async with backend.keep(limits, tags) as sandbox:
                await self._inhabit(sandbox, files)
        except asyncio.CancelledError:
            self._end(SandboxEnded("the service is stopping"))  # unless it was told why
        except (Refusal, Failure) as error:
            self._end(error)
        except Exception:
            log.exception("a stateful sandbox failed", extra={"sandbox_id": self.id})
            self._end(SandboxLost(f"a fault of the service; its log has it under {self.id}"))

    async def _inhabit(self, sandbox: StatefulSandbox, files: dict[str, str]) -> None:
        """From the files to the end, which is decided here, before the clean-up."""
        try:
            while files:  # not kept any longer than needed: they may be large
                path, text = files.popitem()
                await sandbox.write_file(path, text.encode("utf-8", "surrogatepass"))
            # Not every backend lets a cancellation through in every moment: it may be over by now.
            if not self.over:
                self._begin(sandbox)
                ending = (await sandbox.ended()).ending
                self.by_own_act = ending != "killed" and not self.over
                self._end(SandboxEnded(ENDINGS[ending]))
        except (Refusal, Failure) as error:
            self._end(error)

    def _begin(self, sandbox: StatefulSandbox) -> None:
        self._sandbox = sandbox
        self.status = "running"
        self._expires = self._loop.time() + self.ttl_seconds
        self._timer = self._loop.call_at(self._expires, self._on_timer)
        self._settled.set()
        self._log("a sandbox runs", place=sandbox.id)

    def _on_timer(self) -> None:
        # Renewing touches no timer: it is looked at when the old time is over.
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
        if isinstance(error, Failure) and self.status == "pending":
            error = SandboxUnavailable(error.message)  # nothing of the tenant's was lost
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
