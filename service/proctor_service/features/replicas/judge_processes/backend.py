"""The backend of the listening process: stateful sandboxes in judge processes."""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from proctor_service.features.replicas.judge_processes.worker import Worker, WorkerEnded
from proctor_service.processes.values import (
    Values,
    command_values,
    ended_of,
    limits_values,
    lost_with_worker,
    operation_values,
)
from proctor_service.sandbox.environments import (
    NO_ENVIRONMENTS,
    DerivedEnvironment,
    Environments,
    MakeLayer,
    derived_from,
)
from proctor_service.sandbox.interface import (
    CHARGE,
    HASH_SEEDS,
    PAYER,
    Asleep,
    Command,
    Ended,
    Hear,
    Limits,
    Operation,
    Sandbox,
    Spent,
    StatefulSandbox,
    Traits,
)
from proctor_service.settings.environments import DEFAULT


class Holders(Protocol):
    """The judge processes, as this backend needs them."""

    @property
    def traits(self) -> Traits:
        """Properties of the judge processes' backends."""

    async def open(self) -> None:
        """Start the judge processes. Raises StartError."""

    async def close(self) -> None:
        """End the judge processes."""

    async def holder(self, environment: str) -> Worker:
        """Return the judge process for the next sandbox. Raises SandboxUnavailable."""

    def working(self) -> Sequence[Worker]:
        """Return the running judge processes."""


class WorkersBackend:
    """Implements `sandbox.interface.Backend`; evaluations lease sandboxes in the judge processes."""

    def __init__(self, holders: Holders, environments: Environments = NO_ENVIRONMENTS) -> None:
        self._holders = holders
        self._environments = environments
        self._tell_asleep: Asleep | None = None
        self._tell_created: Callable[[float], None] | None = None
        self._tell_failed: Callable[[str], None] | None = None
        self._tell_spent: Spent | None = None
        self._reported: tuple[int, Counter[tuple[str, str]]] = (0, Counter())

    @property
    def traits(self) -> Traits:
        """Properties of the backends in the judge processes."""
        return self._holders.traits

    async def start(self) -> None:
        """Start the judge processes. Raises StartError."""
        await self._holders.open()

    async def close(self) -> None:
        """End the judge processes and their sandboxes."""
        await self._holders.close()

    def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = HASH_SEEDS[0]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """Raise RuntimeError: the judge runs where the sandboxes are."""
        raise RuntimeError("sandboxes for evaluations are leased in the judge processes")

    @contextlib.asynccontextmanager
    async def open(
        self, limits: Limits, environment: str = DEFAULT, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open`."""
        worker = await self._holders.holder(environment)
        worker.sandboxes += 1
        try:
            try:
                number, name = await worker.call(
                    "open", environment, limits_values(limits), tuple(tags), PAYER.get()
                )
            except WorkerEnded:
                raise lost_with_worker() from None
            try:
                yield _RemoteSandbox(worker, number, name, limits)
            finally:
                with contextlib.suppress(WorkerEnded):
                    await worker.call("close", number)
        finally:
            worker.sandboxes -= 1

    def environments_changed(self, names: Collection[str], environments: Environments) -> None:
        """Tell all judge processes; see `TakesEnvironments`."""
        message = pickle.dumps((list(names), environments))  # for our own processes
        for worker in self._holders.working():
            worker.notify("environments", message)

    def end_idle(self) -> None:
        """End idle environments in all judge processes; see `EndsIdle`."""
        for worker in self._holders.working():
            worker.notify("end_idle")

    async def derive(self, environment: str, key: str, make: MakeLayer) -> DerivedEnvironment:
        """Add a layer to an image; see `LayeredEnvironments.derived`."""
        return await derived_from(self._environments, environment, key, make)

    def when_asleep(self, callback: Asleep) -> None:
        """Register a callback; see `Backend.when_asleep`."""
        self._tell_asleep = callback

    def when_created(self, callback: Callable[[float], None]) -> None:
        """Call `callback(seconds)` for each started sandbox far away."""
        self._tell_created = callback

    def when_failed(self, callback: Callable[[str], None]) -> None:
        """Call `callback(reason)` for each failed sandbox or command far away."""
        self._tell_failed = callback

    def when_spent(self, callback: Spent) -> None:
        """Call `callback((tenant, job), seconds, dollars)` when sandboxes far away end."""
        self._tell_spent = callback

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by status, at most a quarter of a second old."""
        found: Counter[str] = Counter()
        for worker in self._holders.working():
            found.update(worker.census)
        return dict(found)

    def note(self, name: str, values: Values) -> None:
        """Handle a report of a judge process."""
        match name:
            case "pong" | "asleep" | "ended":
                self._report_asleep()
            case "created" if self._tell_created is not None:
                self._tell_created(*values)
            case "failed" if self._tell_failed is not None:
                self._tell_failed(*values)
            case "spent" if self._tell_spent is not None:
                tenant, job, seconds, dollars = values
                self._tell_spent((tenant, job), seconds, dollars)

    def _report_asleep(self) -> None:
        yielding = 0
        long_runners: Counter[tuple[str, str]] = Counter()
        for worker in self._holders.working():
            yielding += worker.yielding
            long_runners.update(worker.long_runners)
        if (yielding, long_runners) != self._reported and self._tell_asleep is not None:
            # Judge processes report evaluations, not sandboxes.
            self._tell_asleep(yielding, 0, long_runners)
            self._reported = (yielding, long_runners)


class _RemoteSandbox:
    """Implements `StatefulSandbox`: each method is a request to the judge process."""

    def __init__(self, worker: Worker, number: int, name: str, limits: Limits) -> None:
        self._limits = limits
        self._worker = worker
        self._number = number
        self._name = name
        self._commands = 0

    @property
    def id(self) -> str:
        return self._name

    async def exec(self, command: Command, hear: Hear | None = None) -> Ended:
        values = command_values(command)
        # All commands of a sandbox have one slot together.
        self._worker.load += self._commands == 0
        self._commands += 1
        try:
            ended = ended_of(await self._ask("exec", values, hear is not None, hear=hear))
            CHARGE.get()(ended.usage.cpu_seconds)
            return ended
        finally:
            self._commands -= 1
            self._worker.load -= self._commands == 0

    async def write_file(self, path: str, data: bytes) -> None:
        await self._ask("write_file", path, data)

    async def read_file(self, path: str, max_bytes: int) -> bytes:
        data: bytes = await self._ask("read_file", path, max_bytes)
        return data

    async def snapshot(self) -> bytes:
        data: bytes = await self._ask("snapshot", archive_bytes=self._limits.archive_bytes)
        return data

    async def restore(
        self, archive: bytes, kept_paths: Sequence[str] = (), left_out: Sequence[str] = ()
    ) -> None:
        words = (tuple(kept_paths), tuple(left_out))
        await self._ask("restore", archive, *words, archive_bytes=len(archive))

    async def operate(self, operation: Operation, most_bytes: int = 1 << 16) -> bytes:
        printed: bytes = await self._ask("operate", operation_values(operation), most_bytes)
        return printed

    async def set_command_defaults(self, directory: str, variables: Mapping[str, str]) -> None:
        await self._ask("set_command_defaults", directory, dict(variables))

    async def make_read_only(self, directory: str, paths: Sequence[bytes]) -> int:
        count: int = await self._ask("make_read_only", directory, list(paths))
        return count

    async def ended(self) -> Ended:
        return ended_of(await self._ask("ended"))

    def kill(self) -> None:
        self._worker.notify("kill", self._number)

    async def _ask(
        self, method: str, *arguments: object, hear: Hear | None = None, archive_bytes: int = 0
    ) -> Any:
        reply = self._worker.call(
            method, self._number, *arguments, hear=hear, archive_bytes=archive_bytes
        )
        try:
            return await reply
        except WorkerEnded:
            raise lost_with_worker() from None
