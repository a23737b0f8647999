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

from proctor_service.admission.fair import Shares
from proctor_service.admission.queue import DRAINING, FairQueue, stopping
from proctor_service.errors import (
    FileRefused,
    InvalidRequest,
    QuotaExceeded,
    SandboxEnded,
    SandboxNotFound,
)
from proctor_service.registry.kept import ExecOutcome, Kept, Order
from proctor_service.registry.turn import Turn
from proctor_service.sandbox.interface import Backend, Command, Ended, Hear, StatefulSandbox

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
    remembered: int
    remembered_seconds: float
    file_bytes: int
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
        self._all: dict[str, Kept] = {}
        self._holding: set[Kept] = set()  # live, or still in clean-up
        self._over: deque[tuple[float, Kept]] = deque()
        self._closed = False
        self._executing = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def create(self, order: Order) -> Kept:
        """Create a sandbox, and return its session once the sandbox runs and holds its files.

        A cancellation stops the sandbox. Raises QuotaExceeded, Draining, FileRefused,
        SandboxUnavailable, and SandboxEnded if the sandbox was stopped before the start.
        """
        if self._closed or (self._queue.draining and not order.begun):
            raise stopping()
        self._check_quota(order.tenant)
        turn = Turn(self._queue, order.tenant, order.job, order.priority, order.begun)
        kept = Kept(self._new_id(), order, self._backend, turn, self._on_end)
        self._all[kept.id] = kept
        self._holding.add(kept)
        kept.when_gone(self._holding.discard)
        try:
            await kept.begun()
        except SandboxEnded:
            if self._closed:  # the tenant has lost no data, and the client may ask another replica
                raise stopping() from None
            raise
        except asyncio.CancelledError:
            kept.stop("nobody waited for it any more")
            raise
        return kept

    def find(self, tenant: str, sandbox_id: str) -> Kept:
        """Return a session of this tenant, live or recently ended. Raises SandboxNotFound."""
        self._forget()
        kept = self._all.get(sandbox_id)
        if kept is None or kept.tenant != tenant:
            raise SandboxNotFound(f"no sandbox {sandbox_id[:100]!a}")
        return kept

    def all(
        self, tenant: str, tags: Collection[str] = (), statuses: Collection[str] = ()
    ) -> list[Kept]:
        """Return the tenant's sessions with all of these tags and with any of these statuses."""
        self._forget()
        wanted = frozenset(tags)
        return [
            kept
            for kept in self._all.values()
            if kept.tenant == tenant
            and wanted.issubset(kept.tags)
            and (not statuses or kept.status in statuses)
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
        kept = self.find(tenant, sandbox_id)
        return await kept.do(partial(self._in_turn, kept, command, hear))

    async def write_file(self, tenant: str, sandbox_id: str, path: str, data: bytes) -> None:
        """Write a whole file. Raises FileRefused and the errors of `execute`."""
        check_path(path)
        kept = self.find(tenant, sandbox_id)
        await kept.do(lambda sandbox: sandbox.write_file(path, data))

    async def read_file(
        self, tenant: str, sandbox_id: str, path: str, max_bytes: int | None = None
    ) -> bytes:
        """Return a whole file. Raises FileMissing, FileRefused and the errors of `execute`."""
        check_path(path)
        most = self._bounds.file_bytes
        most = most if max_bytes is None else min(most, max_bytes)
        kept = self.find(tenant, sandbox_id)
        return await kept.do(lambda sandbox: sandbox.read_file(path, most))

    async def snapshot(self, tenant: str, sandbox_id: str) -> bytes:
        """Return all files of the sandbox as a tar archive. Raises the errors of `execute`."""
        return await self.find(tenant, sandbox_id).do(lambda sandbox: sandbox.snapshot())

    async def stop(self, tenant: str, sandbox_id: str) -> bool:
        """Stop a sandbox and wait for the clean-up; return False if it was already over."""
        kept = self.find(tenant, sandbox_id)
        return await _stop([kept], "it was stopped") == 1

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
        for kept in list(self._holding):
            await kept.gone()

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by status, including remembered ended sandboxes."""
        self._forget()
        found = Counter(kept.status for kept in self._all.values())
        return {status: found[status] for status in ("pending", "running", "stopped", "failed")}

    def _check_quota(self, tenant: str) -> None:
        message = ""
        if len(self._holding) >= self._bounds.live:
            message = f"this server keeps {self._bounds.live} stateful sandboxes, and no more"
        most = self._bounds.shares.most_sandboxes(tenant)
        if sum(kept.tenant == tenant for kept in self._holding) >= most:
            message = f"a tenant may have {most} stateful sandboxes on this server, and no more"
        if message:
            raise QuotaExceeded(message, RETRY_CREATE_SECONDS)

    async def _in_turn(
        self, kept: Kept, command: Command, hear: Hear | None, sandbox: StatefulSandbox
    ) -> Execution:
        self._executing += 1
        self._idle.clear()
        try:
            async with kept.turn as queue_seconds:
                ended = await self._run(kept, command, hear, sandbox, queue_seconds)
            return Execution(ended, queue_seconds)
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    async def _run(
        self,
        kept: Kept,
        command: Command,
        hear: Hear | None,
        sandbox: StatefulSandbox,
        queue_seconds: float,
    ) -> Ended:
        clock = self._queue.clock
        begun = clock()
        asked = command.argv if command.code is None else command.code
        log.debug("a command begins", extra={"sandbox_id": kept.id, "command": asked})
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
            kept.execs[outcome] += 1
            self._tell(outcome, seconds)
            log.info(
                "a command ended",
                extra={
                    "sandbox_id": kept.id,
                    "tenant": kept.tenant,
                    "job": kept.job,
                    "ending": broken if ended is None else ended.ending,
                    "exit_code": None if ended is None else ended.exit_code,
                    "stdout_bytes": 0 if ended is None else len(ended.stdout),
                    "stderr_bytes": 0 if ended is None else len(ended.stderr),
                    "duration_seconds": round(seconds, 6),
                    "queue_seconds": round(queue_seconds, 6),
                },
            )

    def _on_end(self, kept: Kept) -> None:
        self._over.append((self._queue.clock(), kept))
        self._forget()

    def _forget(self) -> None:
        """Forget sandboxes that ended long ago, and the oldest of too many."""
        before = self._queue.clock() - self._bounds.remembered_seconds
        while self._over:
            since, kept = self._over[0]
            if since > before and len(self._over) <= self._bounds.remembered:
                break
            self._over.popleft()
            del self._all[kept.id]


async def _stop(asked: Iterable[Kept], why: str) -> int:
    """Stop these sessions, wait for the clean-up, and return the number of sessions stopped now."""
    stopped = [kept for kept in asked if kept.stop(why)]
    for kept in stopped:
        await kept.gone()
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
