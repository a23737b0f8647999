"""Stateful sandboxes: ownership, lifetime, commands and files, independent of HTTP and backends.

`Registry` finds sessions by tenant, id and tags. Each tenant sees only its own sandboxes. The number
of sandboxes and the number of remembered ended sandboxes are bounded. Commands wait in the same
queue as rewards, so that both share the cores fairly.

`Session` is a single sandbox with its owner. A task holds the backend's context open until a stop,
until the time to live (ttl) passes without use, or until the sandbox ends by itself. The session
first decides the end, then carries out the end: after the decision new uses are refused, and running
uses are cancelled. The end is decided only once, so a stop never cancels the clean-up of an earlier
end.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from proctor_client.wire import Priority, SandboxStatus
from proctor_service.errors import (
    Failure,
    InvalidRequest,
    NoSandboxInTime,
    QuotaExceeded,
    Refusal,
    SandboxEnded,
    SandboxLost,
    SandboxNotFound,
    SandboxUnavailable,
    UnknownEnvironment,
)
from proctor_service.sandbox.interface import (
    DEFAULT,
    MAX_FILE_BYTES,
    PAYER,
    Backend,
    Command,
    Ended,
    Ending,
    Hear,
    HoldEnvironment,
    Limits,
    OpenSandbox,
    Operation,
    StatefulSandbox,
    hold_nothing,
)
from proctor_service.sandboxes.file_paths import check_path
from proctor_service.sandboxes.slot_lease import SlotLease
from proctor_service.scheduling.fair_share import Shares
from proctor_service.scheduling.queue import DRAINING, FairQueue, stopping

log = logging.getLogger(__name__)

T = TypeVar("T")
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

LIVE = frozenset({"pending", "running"})
RETRY_CREATE_SECONDS = 5.0

Executed = Callable[[ExecOutcome, float], None]


@dataclass(frozen=True, slots=True)
class Order:
    """Specification of a stateful sandbox, with its owner.

    `begun`: the sandbox belongs to begun work, which continues while the service drains. `open_tree`:
    opens it in the state of a repository that its agent meets, with the files.
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
    open_tree: OpenSandbox | None = None


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
        hold: HoldEnvironment,
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
        self._life = self._loop.create_task(self._live(backend, order, hold))
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
        is_used = self._uses and not self.over
        expires = self._loop.time() + self.ttl_seconds if is_used else self._expires
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

    async def _live(self, backend: Backend, order: Order, hold: HoldEnvironment) -> None:
        """Write the files, wait for the end, and decide the end before the clean-up."""
        files = dict(order.files)
        limits, environment, tags = order.limits, order.environment, order.tags
        PAYER.set((order.tenant, order.job))
        try:
            if order.open_tree is None:
                opened = backend.open(limits, environment, tags)
            else:
                opened = order.open_tree(backend, limits, environment, files, tags)
                files = {}
            del order
            async with hold(environment), opened as sandbox:
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
        due = now + self.ttl_seconds if self._uses else self._expires
        if now < due:
            self._timer = self._loop.call_at(due, self._on_timer)
        else:
            self.stop(f"its ttl of {self.ttl_seconds:g} s passed")

    def _end(self, error: Refusal | Failure) -> None:
        if self.over:
            return
        named = (NoSandboxInTime, UnknownEnvironment)
        is_of_start = isinstance(error, Failure) and not isinstance(error, named)
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the registry: `live` sandboxes, `remembered` ended sandboxes, bytes of a file.

    The registry forgets an ended sandbox after `remembered_seconds`.
    """

    live: int
    remembered: int = 2000
    remembered_seconds: float = 600.0
    file_bytes: int = MAX_FILE_BYTES
    shares: Shares = field(default_factory=Shares)


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """End of a command, with the seconds that the command waited for a core."""

    ended: Ended
    queue_seconds: float


class Registry:
    """All stateful sandboxes; `executed` receives the outcome and seconds of each command.

    `id_prefix`: begin of the sandboxes' ids.
    """

    def __init__(
        self,
        backend: Backend,
        queue: FairQueue,
        bounds: Bounds,
        executed: Executed,
        id_prefix: str = "sb_",
        hold: HoldEnvironment = hold_nothing,
    ) -> None:
        self._hold = hold
        self._backend = backend
        self._queue = queue
        self._bounds = bounds
        self._executed = executed
        self._id_prefix = id_prefix
        self._all: dict[str, Session] = {}
        self._holding: set[Session] = set()  # live, or still in clean-up
        self._over: deque[tuple[float, Session]] = deque()
        self._closed = False
        self._executing = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def file_bytes(self) -> int:
        """Return the size of the largest file that is written or read."""
        return self._bounds.file_bytes

    async def create(self, order: Order) -> Session:
        """Create a sandbox, and return its session once the sandbox runs and holds its files.

        A cancellation stops the sandbox. Raises QuotaExceeded, Draining, FileRefused,
        SandboxUnavailable, and SandboxEnded if the sandbox was stopped before the start.
        """
        if self._closed or (self._queue.draining and not order.begun):
            raise stopping()
        tenant, message = order.tenant, ""
        if len(self._holding) >= self._bounds.live:
            message = f"this server keeps {self._bounds.live} stateful sandboxes, and no more"
        shares = self._bounds.shares
        if shares.sandboxes:
            most = shares.most_sandboxes(tenant)
            if sum(session.tenant == tenant for session in self._holding) >= most:
                message = f"a tenant may have {most} stateful sandboxes on this server, and no more"
        if message:
            raise QuotaExceeded(message, RETRY_CREATE_SECONDS)
        lease = SlotLease(self._queue, (tenant, order.job), order.priority, order.begun)
        gone = self._holding.discard
        session = Session(
            new_id(self._id_prefix), order, self._backend, lease, self._on_end, gone, self._hold
        )
        self._all[session.id] = session
        self._holding.add(session)
        try:
            await session.begun()
        except SandboxEnded:
            if self._closed:  # the tenant has lost no data, and the client may ask another replica
                raise stopping() from None
            raise
        except asyncio.CancelledError:
            session.stop("nobody waited for it any more")
            raise
        return session

    def find(self, tenant: str, sandbox_id: str) -> Session:
        """Return a session of this tenant, live or recently ended. Raises SandboxNotFound."""
        self._forget()
        session = self._all.get(sandbox_id)
        if session is None or session.tenant != tenant:
            raise SandboxNotFound(f"no sandbox {sandbox_id[:100]!a}")
        return session

    def all(
        self, tenant: str, tags: Collection[str] = (), statuses: Collection[str] = ()
    ) -> list[Session]:
        """Return the tenant's sessions with all of these tags and with any of these statuses."""
        self._forget()
        wanted = frozenset(tags)
        return [
            session
            for session in self._all.values()
            if session.tenant == tenant
            and wanted.issubset(session.tags)
            and (not statuses or session.status in statuses)
        ]

    async def execute(
        self, tenant: str, sandbox_id: str, command: Command, hear: Hear | None = None
    ) -> CommandEnd:
        """Run a command once a core is free; a cancellation kills the processes of the command.

        Raises SandboxNotFound, SandboxEnded, Busy and Draining, which are refusals, and
        SandboxLost.
        """
        session = self.find(tenant, sandbox_id)
        return await session.do(partial(self._in_turn, session, command, hear))

    async def write_file(self, tenant: str, sandbox_id: str, path: str, data: bytes) -> None:
        """Write a whole file. Raises FileRefused and the errors of `execute`."""
        check_path(path)
        session = self.find(tenant, sandbox_id)
        await session.do(lambda sandbox: sandbox.write_file(path, data))

    async def read_file(
        self, tenant: str, sandbox_id: str, path: str, max_bytes: int | None = None
    ) -> bytes:
        """Return a whole file. Raises FileMissing, FileRefused and the errors of `execute`."""
        check_path(path)
        bound = self._bounds.file_bytes
        most = bound if max_bytes is None else min(bound, max_bytes)
        session = self.find(tenant, sandbox_id)
        return await session.do(lambda sandbox: sandbox.read_file(path, most))

    async def snapshot(self, tenant: str, sandbox_id: str) -> bytes:
        """Return all files of the sandbox as a tar archive. Raises the errors of `execute`."""
        return await self.find(tenant, sandbox_id).do(lambda sandbox: sandbox.snapshot())

    async def operate(
        self, tenant: str, sandbox_id: str, operation: Operation, most_bytes: int = 1 << 16
    ) -> bytes:
        """Run code of the service in the sandbox. Raises FileRefused and the errors of `execute`."""
        session = self.find(tenant, sandbox_id)
        return await session.do(lambda sandbox: sandbox.operate(operation, most_bytes))

    async def stop(self, tenant: str, sandbox_id: str) -> bool:
        """Stop a sandbox and wait for the clean-up; return False if it was already over."""
        session = self.find(tenant, sandbox_id)
        return await _stop([session], "it was stopped") == 1

    async def stop_tagged(self, tenant: str, tags: Collection[str]) -> int:
        """Stop all sandboxes with these tags, and return their number.

        Raises InvalidRequest without a tag.
        """
        if not tags:
            raise InvalidRequest("tag: at least one is needed, to say which sandboxes to stop")
        return await _stop(self.all(tenant, tags, LIVE), "it was stopped by its tags")

    async def idle(self) -> None:
        """Wait until all running commands have ended."""
        await self._idle.wait()

    async def close(self) -> None:
        """Stop all sandboxes and refuse new ones."""
        self._closed = True
        await _stop(self._holding, DRAINING)
        for session in list(self._holding):
            await session.gone()

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by status, including remembered ended sandboxes."""
        self._forget()
        count = Counter(session.status for session in self._all.values())
        return {status: count[status] for status in ("pending", "running", "stopped", "failed")}

    async def _in_turn(
        self, session: Session, command: Command, hear: Hear | None, sandbox: StatefulSandbox
    ) -> CommandEnd:
        clock = self._queue.clock
        ended: Ended | None = None
        error_reason = ""
        self._executing += 1
        self._idle.clear()
        try:
            async with session.turn as queue_seconds:
                begun = clock()
                text = command.argv if command.code is None else command.code
                log.debug("a command begins", extra={"sandbox_id": session.id, "command": text})
                try:
                    ended = await sandbox.exec(command, hear)
                except BaseException as error:
                    error_reason = getattr(error, "reason", "cancelled")
                    raise
                finally:
                    seconds = clock() - begun
                    outcome = _outcome(ended)
                    session.execs[outcome] += 1
                    self._executed(outcome, seconds)
                    fields = {
                        "sandbox_id": session.id,
                        "tenant": session.tenant,
                        "job": session.job,
                        "ending": error_reason if ended is None else ended.ending,
                        "exit_code": None if ended is None else ended.exit_code,
                        "stdout_bytes": 0 if ended is None else len(ended.stdout),
                        "stderr_bytes": 0 if ended is None else len(ended.stderr),
                        "duration_seconds": round(seconds, 6),
                        "queue_seconds": round(queue_seconds, 6),
                    }
                    log.info("a command ended", extra=fields)
            return CommandEnd(ended, queue_seconds)
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    def _on_end(self, session: Session) -> None:
        self._over.append((self._queue.clock(), session))
        self._forget()

    def _forget(self) -> None:
        """Forget sandboxes that ended long ago, and the oldest of too many."""
        before = self._queue.clock() - self._bounds.remembered_seconds
        while self._over:
            since, session = self._over[0]
            if since > before and len(self._over) <= self._bounds.remembered:
                break
            self._over.popleft()
            del self._all[session.id]


def new_id(prefix: str) -> str:
    """Return a random id for a sandbox."""
    return prefix + secrets.token_hex(9)


async def _stop(sessions: Iterable[Session], why: str) -> int:
    """Stop these sessions, wait for the clean-up, and return the number of sessions stopped now."""
    stopped = [session for session in sessions if session.stop(why)]
    for session in stopped:
        await session.gone()
    return len(stopped)


def _outcome(ended: Ended | None) -> ExecOutcome:
    if ended is None or ended.ending not in ("exited", "signalled"):
        return "error"
    return "success" if ended.exit_code == 0 else "failure"
