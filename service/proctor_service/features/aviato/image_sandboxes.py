"""Sandboxes of one image at Aviato: its probe, its code, its warm pool, and the leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import cwsandbox

from proctor_service.errors import SandboxUnavailable, StartError
from proctor_service.features.aviato import bundle
from proctor_service.features.aviato.bundle import Image, Protections
from proctor_service.features.aviato.checks import checks_of
from proctor_service.features.aviato.execution import RemoteExecution
from proctor_service.features.aviato.failures import failure_of, meaning_of
from proctor_service.features.aviato.gateway import Gateway, Remote
from proctor_service.features.aviato.plan import AviatoPlan, Order
from proctor_service.features.aviato.pool import RemotePool
from proctor_service.features.aviato.quota import Quota
from proctor_service.features.aviato.sandbox import AviatoSandbox
from proctor_service.features.aviato.stateful import AviatoStatefulSandbox
from proctor_service.sandbox.interface import (
    HASH_SEEDS,
    Limits,
    MachineCheck,
    Sandbox,
    Spent,
    StatefulSandbox,
    Traits,
)

_log = logging.getLogger(__name__)
_TRIES = 3
_USERS = 4000  # number of user ids in use, counted from the first
_WATCH_SECONDS = 30.0
_SETTLE_SECONDS = 2.0
_AWAY = ("unavailable:", "capacity:")  # failures of the gateway, not of the sandbox
_PATIENCE_SECONDS = 15.0
_PAUSE_SECONDS = 0.2


@dataclass(slots=True)
class SandboxEvents:
    """Callbacks for the metrics: seconds of a creation, reason of a failure, cost of a sandbox."""

    created: Callable[[float], None] = lambda seconds: None
    failed: Callable[[str], None] = lambda reason: None
    spent: Spent = lambda payer, seconds, dollars: None


class Users:
    """Count of the users of something, and the time of its last use; busy while in use."""

    def __init__(self) -> None:
        self.users = 0
        self.last_used_at = time.monotonic()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a user for the length of the block."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.last_used_at = time.monotonic()

    def is_idle(self, seconds: float) -> bool:
        """Return True after this time without use."""
        return not self.users and time.monotonic() - self.last_used_at >= seconds


class ImageSandboxes(Users):
    """Sandboxes of the image of a plan: `probe`, then `fill` or `start_filling`, before use."""

    def __init__(
        self, plan: AviatoPlan, gateway: Gateway, quota: Quota, events: SandboxEvents
    ) -> None:
        super().__init__()
        self._plan = plan
        self._gateway = gateway
        self._quota = quota
        self._events = events
        self._image: Image | None = None
        self._traits = Traits("aviato", allows_network=True)
        self._pool = RemotePool(
            plan, plan.pool_shape, self._make, quota, lambda *spent: events.spent(*spent)
        )
        self._closing: set[asyncio.Task[None]] = set()
        self._uses = 0
        self._stateful = 0

    @property
    def traits(self) -> Traits:
        """Languages and tools of the image, and the missing protections; known after `probe`."""
        return self._traits

    @property
    def image(self) -> Image:
        """Content of the image; known after `probe`."""
        assert self._image is not None
        return self._image

    # ------------------------------------------------------------ lifecycle

    async def probe(self) -> None:
        """Inspect the image in a sandbox unused by submissions.

        Raises SandboxUnavailable, StartError, and the SDK's exceptions.
        """
        await self._quota.acquire(self._plan.start_seconds, self._plan.price)
        try:
            async with self._quota.creating():
                remote = await self._gateway.create(self._plan.warm_order(self._plan.pool_shape))
            try:
                self._image = image = await self._inspected(remote)
            finally:
                await remote.stop()
        finally:
            self._quota.release(self._plan.price)
        self._traits = Traits(
            name="aviato",
            degraded=tuple(c.name for c in self.checks() if c.guards and not c.ok),
            languages=("python", *image.languages),
            allows_network=True,
            tools=(image.tools_place,),
            judged_with=_judged_with(self._plan, image),
        )

    def start_filling(self) -> None:
        """Start filling the pool."""
        self._pool.start()
        self.last_used_at = time.monotonic()

    async def fill(self) -> None:
        """Fill the pool. Raises SandboxUnavailable if not a single sandbox is ready in time."""
        await self._pool.open()

    async def close(self) -> None:
        """Stop all sandboxes, after those whose lease has just ended."""
        if self._closing:
            await asyncio.wait(self._closing)
        await self._pool.close()

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by state; `ready` is the level of the pool."""
        census = self._pool.census()
        return {**census, "kept": self._stateful, "leased": census["leased"] - self._stateful}

    def give_up_one(self) -> bool:
        """Stop a ready sandbox in the background; False if all are needed."""
        return self._pool.give_up_one()

    def checks(self) -> tuple[MachineCheck, ...]:
        """Return the checks of the sandboxes; known after `probe`."""
        return checks_of(self.image, self._plan)

    # ------------------------------------------------------------ leases

    @contextlib.asynccontextmanager
    async def lease(self, limits: Limits, hash_seed: int = HASH_SEEDS[0]) -> AsyncIterator[Sandbox]:
        """Lease a fresh sandbox; see `Backend.lease`."""
        with self.in_use():
            remote, execution = await self._fresh(limits, hash_seed)
            try:
                yield AviatoSandbox(f"sb_{remote.id}", execution, self._plan.flood_bytes)
            finally:
                closing = asyncio.get_running_loop().create_task(self._finish(remote, execution))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def _finish(self, remote: Remote, execution: RemoteExecution) -> None:
        """Clean up after a lease, in the background, since the result need not wait."""
        try:
            await execution.close(_SETTLE_SECONDS)
        finally:
            if self._plan.reuse and execution.reported:
                self._pool.give_back(remote)
            else:
                self._pool.stop(remote)

    @contextlib.asynccontextmanager
    async def open(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open`."""
        plan, uid = self._plan, self._next_user()
        opened = self._pool.open_stateful(plan.kept_order(limits, tags))
        with self.in_use():
            async with opened as remote:
                sandbox = AviatoStatefulSandbox(
                    f"sb_{remote.id}",
                    limits,
                    plan.flood_bytes,
                    partial(self._again, remote, uid),
                )
                self._stateful += 1
                watch = asyncio.create_task(self._watch(remote, sandbox))
                try:
                    yield sandbox
                finally:
                    self._stateful -= 1
                    watch.cancel()
                    sandbox.kill()

    async def _fresh(self, limits: Limits, hash_seed: int) -> tuple[Remote, RemoteExecution]:
        """Return a sandbox and its supervisor, whose first answer is the health check.

        Raises SandboxUnavailable.
        """
        pool = self._pool
        seconds = self._plan.call_seconds(limits.all_cpu_seconds + limits.all_wall_seconds)
        failure = SandboxUnavailable("unhealthy")
        for _ in range(_TRIES):
            remote = await pool.lease(self._plan.shape(limits))
            try:
                uid = self._next_user()
                return remote, await self._supervisor(remote, uid, True, seconds, hash_seed)
            except SandboxUnavailable as error:
                failure = error
                _log.warning("a sandbox was not fit for use", extra={"why": error.message})
                pool.stop(remote)
            except BaseException:
                pool.stop(remote)
                raise
        raise failure

    @contextlib.asynccontextmanager
    async def _again(
        self, remote: Remote, uid: int, seconds: float
    ) -> AsyncIterator[RemoteExecution]:
        call_seconds = self._plan.call_seconds(seconds)
        execution = await self._supervisor(remote, uid, False, call_seconds)
        try:
            yield execution
        finally:
            await execution.close(_SETTLE_SECONDS)

    async def _supervisor(
        self,
        remote: Remote,
        uid: int,
        fresh: bool,
        seconds: float,
        hash_seed: int = HASH_SEEDS[0],
    ) -> RemoteExecution:
        """Return a supervisor after its first answer; retries while the gateway is unavailable.

        Retries are safe, since they precede the first program.
        """
        image, pause = self.image, _PAUSE_SECONDS
        deadline = time.monotonic() + min(_PATIENCE_SECONDS, self._plan.start_seconds)
        while True:
            try:
                execution, protections = await self._start_supervisor(
                    remote, image.command(self._plan.python, uid, fresh, hash_seed), seconds
                )
                break
            except SandboxUnavailable as failure:
                away = failure.message.startswith(_AWAY)
                if not away or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(pause)
            pause *= 2
        if protections != image.protections:
            await execution.close()
            raise SandboxUnavailable(
                f"unhealthy: {protections}, and not {image.protections} as the first one"
            )
        return execution

    async def _start_supervisor(
        self, remote: Remote, command: list[str], seconds: float
    ) -> tuple[RemoteExecution, Protections]:
        # The call's timeout starts before the isolation is set up, which may take a while.
        process = remote.exec(command, seconds + self._plan.start_seconds)
        execution = RemoteExecution(process, self._events.failed)
        try:
            return execution, Protections(**await execution.hello(self._plan.start_seconds))
        except BaseException:
            await execution.close()
            raise

    async def _watch(self, remote: Remote, sandbox: AviatoStatefulSandbox) -> None:
        """Detect the loss of a stateful sandbox between two commands."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            with contextlib.suppress(Exception):  # the gateway failed, not the sandbox
                if not await remote.lives():
                    sandbox.lose("not_running: the sandbox is gone")

    # ------------------------------------------------------------ creation

    async def _make(self, order: Order) -> Remote:
        """Return a sandbox with all files for submissions. Raises SandboxUnavailable."""
        began = time.monotonic()
        try:
            remote = await self._gateway.create(order)
        except SandboxUnavailable as failure:
            self._events.failed(failure.message.partition(":")[0])
            raise
        try:
            await _install_runtime(remote, self.image)
        except BaseException as error:
            await remote.stop()
            if isinstance(error, Exception):
                self._events.failed(meaning_of(error).reason)
                raise failure_of(error, "start") from error
            raise
        self._events.created(time.monotonic() - began)
        return remote

    async def _inspected(self, remote: Remote) -> Image:
        plan = self._plan
        variables = [f"{name}={value}" for name, value in plan.variables.items()]
        command = [*(["env", *variables] if variables else []), plan.python, "-c", bundle.PROBE]
        process = remote.exec(command, plan.start_seconds)
        assert process.stdin is not None
        question = await asyncio.to_thread(bundle.question, plan.languages)
        with contextlib.suppress(cwsandbox.SandboxExecutionError):  # the ending says more
            await process.stdin.write(question)
        answer = await process
        if answer.returncode != 0:
            raise StartError(f"{plan.image} will not do: {answer.stderr.strip()[-500:]}")
        secrets = tuple(secret.shown_as for secret in plan.options.secrets)
        image = await asyncio.to_thread(
            bundle.understand, answer.stdout_bytes, plan.languages, plan.variables, secrets
        )
        await _install_runtime(remote, image)
        supervisor = image.command(plan.python, plan.first_uid, True, HASH_SEEDS[0])
        execution, protections = await self._start_supervisor(
            remote, supervisor, plan.start_seconds
        )
        await execution.close()
        if not protections.own_user and not plan.allow_degraded:
            raise StartError(
                f"commands in {plan.image} do not run as root, so a submission would have the rights "
                "of what supervises it: choose another image, or start with --allow-degraded"
            )
        return replace(image, protections=protections)

    # ------------------------------------------------------------ helpers

    def _next_user(self) -> int:
        """Return a new user id per use: without namespaces, users separate processes and files."""
        self._uses += 1
        return self._plan.first_uid + self._uses % _USERS


async def _install_runtime(remote: Remote, image: Image) -> None:
    for path, data in image.files.items():
        await remote.write_file(path, data)


def _judged_with(plan: AviatoPlan, image: Image) -> dict[str, dict[str, str]]:
    """Return what verdicts depend on in these sandboxes, for the fingerprint of a replica.

    A tag of the image may lead to another image later; a digest in PROCTOR_AVIATO_IMAGE does not.
    """
    options = plan.options.model_dump(mode="json")
    return {
        "interpreter": {"version": ".".join(map(str, image.version))},
        "image": {"reference": plan.image, "architecture": image.machine, "cpu": plan.cpu}
        | {name: str(value) for name, value in options.items()}
        | {"reuse": str(plan.reuse)},
        "languages": {name: repr(plan.languages.get(name)) for name in image.languages},
    }
