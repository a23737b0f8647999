"""Registry of all stateful sandboxes: creation, search, use, stop, and memory of ended sandboxes.

Commands wait in the same queue as rewards, so that both share the cores fairly. Each tenant sees
only its own sandboxes. The number of sandboxes and the number of remembered ended sandboxes are
bounded.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from proctor_service.errors import (
    FileRefused,
    InvalidRequest,
    QuotaExceeded,
    SandboxEnded,
    SandboxNotFound,
)
from proctor_service.sandbox.interface import (
    MAX_FILE_BYTES,
    Backend,
    Command,
    Ended,
    Hear,
    StatefulSandbox,
)
from proctor_service.sandboxes.session import ExecOutcome, Order, Session, SlotLease
from proctor_service.scheduling.fair_share import Shares
from proctor_service.scheduling.queue import DRAINING, FairQueue, stopping

log = logging.getLogger(__name__)

LIVE = frozenset({"pending", "running"})
RETRY_CREATE_SECONDS = 5.0
LONGEST_PATH_BYTES = 4096
LONGEST_NAME_BYTES = 255

Tell = Callable[[ExecOutcome, float], None]


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
class Execution:
    """End of a command, with the seconds that the command waited for a core."""

    ended: Ended
    queue_seconds: float


class Registry:
    """All stateful sandboxes; `tell` receives the outcome and seconds of each command."""

    def __init__(
        self,
        backend: Backend,
        queue: FairQueue,
        bounds: Bounds,
        tell: Tell,
        new_id: Callable[[], str] = lambda: f"sb_{uuid.uuid4().hex}",
    ) -> None:
        self._backend = backend
        self._queue = queue
        self._bounds = bounds
        self._tell = tell
        self._new_id = new_id
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
        most = self._bounds.shares.most_sandboxes(tenant)
        if sum(session.tenant == tenant for session in self._holding) >= most:
            message = f"a tenant may have {most} stateful sandboxes on this server, and no more"
        if message:
            raise QuotaExceeded(message, RETRY_CREATE_SECONDS)
        lease = SlotLease(self._queue, (tenant, order.job), order.priority, order.begun)
        gone = self._holding.discard
        session = Session(self._new_id(), order, self._backend, lease, self._on_end, gone)
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

    async def exec(
        self, tenant: str, sandbox_id: str, command: Command, hear: Hear | None = None
    ) -> Ended:
        """Run a command to its end, as `execute` does."""
        return (await self.execute(tenant, sandbox_id, command, hear)).ended

    async def execute(
        self, tenant: str, sandbox_id: str, command: Command, hear: Hear | None = None
    ) -> Execution:
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
        most = self._bounds.file_bytes
        most = most if max_bytes is None else min(most, max_bytes)
        session = self.find(tenant, sandbox_id)
        return await session.do(lambda sandbox: sandbox.read_file(path, most))

    async def snapshot(self, tenant: str, sandbox_id: str) -> bytes:
        """Return all files of the sandbox as a tar archive. Raises the errors of `execute`."""
        return await self.find(tenant, sandbox_id).do(lambda sandbox: sandbox.snapshot())

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
        found = Counter(session.status for session in self._all.values())
        return {status: found[status] for status in ("pending", "running", "stopped", "failed")}

    async def _in_turn(
        self, session: Session, command: Command, hear: Hear | None, sandbox: StatefulSandbox
    ) -> Execution:
        self._executing += 1
        self._idle.clear()
        try:
            async with session.turn as queue_seconds:
                ended = await self._run(session, command, hear, sandbox, queue_seconds)
            return Execution(ended, queue_seconds)
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    async def _run(
        self,
        session: Session,
        command: Command,
        hear: Hear | None,
        sandbox: StatefulSandbox,
        queue_seconds: float,
    ) -> Ended:
        clock = self._queue.clock
        begun = clock()
        asked = command.argv if command.code is None else command.code
        log.debug("a command begins", extra={"sandbox_id": session.id, "command": asked})
        ended: Ended | None = None
        broken = ""
        try:
            ended = await sandbox.exec(command, hear)
            return ended
        except BaseException as error:
            broken = getattr(error, "reason", "cancelled")
            raise
        finally:
            seconds = clock() - begun
            outcome = _outcome(ended)
            session.execs[outcome] += 1
            self._tell(outcome, seconds)
            log.info(
                "a command ended",
                extra={
                    "sandbox_id": session.id,
                    "tenant": session.tenant,
                    "job": session.job,
                    "ending": broken if ended is None else ended.ending,
                    "exit_code": None if ended is None else ended.exit_code,
                    "stdout_bytes": 0 if ended is None else len(ended.stdout),
                    "stderr_bytes": 0 if ended is None else len(ended.stderr),
                    "duration_seconds": round(seconds, 6),
                    "queue_seconds": round(queue_seconds, 6),
                },
            )

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


async def _stop(asked: Iterable[Session], why: str) -> int:
    """Stop these sessions, wait for the clean-up, and return the number of sessions stopped now."""
    stopped = [session for session in asked if session.stop(why)]
    for session in stopped:
        await session.gone()
    return len(stopped)


def _outcome(ended: Ended | None) -> ExecOutcome:
    if ended is None or ended.ending not in ("exited", "signalled"):
        return "error"
    return "success" if ended.exit_code == 0 else "failure"


def check_path(path: str) -> None:
    """Raise FileRefused for a path that is invalid as a file name on every machine."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise FileRefused("path: not a valid path") from None
    if not path.strip("/"):
        raise FileRefused("path: it is empty")
    if b"\0" in encoded:
        raise FileRefused("path: it holds a NUL")
    longest_name = max(map(len, encoded.split(b"/")))
    if len(encoded) >= LONGEST_PATH_BYTES or longest_name > LONGEST_NAME_BYTES:
        raise FileRefused("path: it is too long")
