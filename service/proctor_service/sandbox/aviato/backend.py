"""The Aviato backend: a sandbox at CoreWeave for each submission, from a warm pool.

The sandbox itself provides the isolation. In the sandbox, a supervisor runs a single program as a
separate user, limits the program, and reports its ending. The judge, the expected values and every
decision stay in the service. `Traits.degraded` lists the protections which no remote sandbox can
enforce, and every result shows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial

import cwsandbox

from proctor_service.errors import Failure, SandboxUnavailable, StartError
from proctor_service.sandbox.aviato import bundle
from proctor_service.sandbox.aviato.bundle import Image, Protections
from proctor_service.sandbox.aviato.checks import checks_of
from proctor_service.sandbox.aviato.execution import Execution
from proctor_service.sandbox.aviato.failures import failure_of, meaning_of
from proctor_service.sandbox.aviato.gateway import Gateway, Remote
from proctor_service.sandbox.aviato.plan import Order, Plan
from proctor_service.sandbox.aviato.pool import Pool
from proctor_service.sandbox.aviato.sandbox import AviatoSandbox
from proctor_service.sandbox.aviato.stateful import AviatoStatefulSandbox
from proctor_service.sandbox.interface import (
    Check,
    Limits,
    Sandbox,
    Sandboxes,
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
_ROUNDS = 20
_ROUND_SECONDS = 0.25


class AviatoBackend:
    """Implements `sandbox.interface.Backend`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._gateway: Gateway | None = None
        self._image: Image | None = None
        self._pool: Pool | None = None
        self._traits = Traits("aviato", allows_network=True)
        self._closing: set[asyncio.Task[None]] = set()
        self._uses = 0
        self._kept = 0
        self._when_created: Callable[[float], None] = lambda seconds: None
        self._when_failed: Callable[[str], None] = lambda reason: None

    @property
    def traits(self) -> Traits:
        """Languages and tools of the image, and the missing protections."""
        return self._traits

    # ------------------------------------------------------------ lifecycle

    async def open(self) -> None:
        """Stop leftover sandboxes, inspect the image, and fill the pool. Raises StartError."""
        self._gateway = Gateway(self._plan)
        try:
            # Other judge processes of this start may have theirs already. One that was replaced by
            # this process has left its own.
            await self._end_all(self._plan.instance_tag, but=self._plan.start_tag)
            await self._end_all(*self._plan.own_tags)
            await self._refresh(self._gateway)
            self._pool = Pool(self._plan, self._plan.pool_shape, self._make)
            await self._pool.open()
        except Exception as error:
            await self.close()
            if isinstance(error, StartError):
                raise
            raise StartError(self._why_not(error)) from None

    async def close(self) -> None:
        """Stop every sandbox of this run, including sandboxes unknown to the pool."""
        if self._closing:
            await asyncio.wait(self._closing)
        if self._pool is not None:
            await self._pool.close()
        if self._gateway is not None:
            try:
                await self._end_all(self._plan.run_tag)
            except Exception as error:
                why = meaning_of(error).reason
                _log.warning("sandboxes may be left until their lifetime ends", extra={"why": why})
            await self._gateway.close()
            self._gateway = None

    def within(self, environment: str) -> Sandboxes:
        """Return this backend: the service starts with no other environment at Aviato."""
        return self

    def census(self) -> dict[str, int]:
        """Return the number of sandboxes by state; `ready` is the level of the pool."""
        census = {} if self._pool is None else self._pool.census()
        return {**census, "kept": self._kept, "leased": census.get("leased", 0) - self._kept}

    def when_asleep(self, tell: Callable[[int, int], None]) -> None:
        """Do nothing: remote sandboxes use no core of this machine."""

    def when_created(self, tell: Callable[[float], None]) -> None:
        """Register `tell(seconds)`, called for each sandbox created and prepared."""
        self._when_created = tell

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Register `tell(reason)`, called for each lost or unavailable sandbox or command."""
        self._when_failed = tell

    # ------------------------------------------------------------ leases

    @contextlib.asynccontextmanager
    async def lease(self, limits: Limits) -> AsyncIterator[Sandbox]:
        """Lease a fresh sandbox; see `Backend.lease`."""
        remote, execution = await self._fresh(limits)
        try:
            yield AviatoSandbox(f"sb_{remote.id}", execution, self._plan.flood_bytes)
        finally:
            closing = asyncio.get_running_loop().create_task(self._finish(remote, execution))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _finish(self, remote: Remote, execution: Execution) -> None:
        """Clean up after a lease, in the background, since the result need not wait."""
        pool = self._the_pool()
        try:
            await execution.close(_SETTLE_SECONDS)
        finally:
            if self._plan.reuse and execution.reported:
                pool.give_back(remote)
            else:
                pool.stop(remote)

    @contextlib.asynccontextmanager
    async def open_stateful(
        self, limits: Limits, tags: Sequence[str] = ()
    ) -> AsyncIterator[StatefulSandbox]:
        """Lease a stateful sandbox; see `Backend.open_stateful`."""
        plan, uid = self._plan, self._next_user()
        async with self._the_pool().open_stateful(plan.kept_order(limits, tags)) as remote:
            sandbox = AviatoStatefulSandbox(
                f"sb_{remote.id}",
                limits,
                plan.flood_bytes,
                partial(self._again, remote, uid, limits),
            )
            self._kept += 1
            watch = asyncio.create_task(self._watch(remote, sandbox))
            try:
                yield sandbox
            finally:
                self._kept -= 1
                watch.cancel()
                sandbox.kill()

    async def _fresh(self, limits: Limits) -> tuple[Remote, Execution]:
        """Return a sandbox and its supervisor, whose first answer is the health check.

        Raises SandboxUnavailable.
        """
        pool = self._the_pool()
        seconds = self._plan.call_seconds(limits)
        failure = SandboxUnavailable("unhealthy")
        for _ in range(_TRIES):
            remote = await pool.lease(self._plan.shape(limits))
            try:
                return remote, await self._supervisor(remote, self._next_user(), True, seconds)
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
        self, remote: Remote, uid: int, limits: Limits, timeout_seconds: float | None
    ) -> AsyncIterator[Execution]:
        seconds = self._plan.call_seconds(limits, timeout_seconds)
        execution = await self._supervisor(remote, uid, False, seconds)
        try:
            yield execution
        finally:
            await execution.close(_SETTLE_SECONDS)

    async def _supervisor(self, remote: Remote, uid: int, fresh: bool, seconds: float) -> Execution:
        """Return a supervisor after its first answer; retries while the gateway is unavailable.

        Retries are safe, since no program has run yet.
        """
        image, pause = self._the_image(), _PAUSE_SECONDS
        deadline = time.monotonic() + min(_PATIENCE_SECONDS, self._plan.start_seconds)
        while True:
            try:
                execution, protections = await self._start_supervisor(
                    remote, image, uid, fresh, seconds
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
        self, remote: Remote, image: Image, uid: int, fresh: bool, seconds: float
    ) -> tuple[Execution, Protections]:
        command = image.command(self._plan.python, uid, fresh)
        # The call's timeout starts before the isolation is set up, which may take a while.
        process = remote.exec(command, seconds + self._plan.start_seconds)
        execution = Execution(process, self._when_failed)
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
        assert self._gateway is not None
        began = time.monotonic()
        try:
            remote = await self._gateway.create(order)
        except SandboxUnavailable as failure:
            self._when_failed(failure.message.partition(":")[0])
            raise
        try:
            await _install_runtime(remote, self._the_image())
        except BaseException as error:
            await remote.stop()
            if isinstance(error, Exception):
                self._when_failed(meaning_of(error).reason)
                raise failure_of(error, "start") from error
            raise
        self._when_created(time.monotonic() - began)
        return remote

    async def _refresh(self, gateway: Gateway) -> None:
        """Inspect the image in a sandbox unused by submissions.

        Raises SandboxUnavailable, StartError, and the SDK's exceptions.
        """
        plan = self._plan
        remote = await gateway.create(plan.warm_order(plan.pool_shape))
        try:
            process = remote.exec([plan.python, "-c", bundle.PROBE], plan.start_seconds)
            assert process.stdin is not None
            question = await asyncio.to_thread(bundle.question, plan.languages)
            with contextlib.suppress(cwsandbox.SandboxExecutionError):  # the ending says more
                await process.stdin.write(question)
            answer = await process
            if answer.returncode != 0:
                raise StartError(f"{plan.image} will not do: {answer.stderr.strip()[-500:]}")
            image = await asyncio.to_thread(bundle.understand, answer.stdout_bytes, plan.languages)
            await _install_runtime(remote, image)
            execution, protections = await self._start_supervisor(
                remote, image, plan.first_uid, True, plan.start_seconds
            )
            await execution.close()
            self._image = image = replace(image, protections=protections)
        finally:
            await remote.stop()
        self._traits = Traits(
            name="aviato",
            degraded=tuple(c.name for c in self.checks() if c.guards and not c.ok),
            languages=("python", *image.languages),
            allows_network=True,
            tools=(image.tools_place,) if image.tools else (),
        )
        if not protections.own_user and not plan.allow_degraded:
            raise StartError(
                f"commands in {plan.image} do not run as root, so a submission would have the rights "
                "of what supervises it: choose another image, or start with --allow-degraded"
            )

    def checks(self) -> tuple[Check, ...]:
        """Return the checks of the remote sandboxes; known after `open`."""
        return checks_of(self._the_image(), self._plan)

    # ------------------------------------------------------------ leftover sandboxes

    async def _end_all(self, *tags: str, but: str = "") -> None:
        """Stop all sandboxes with these tags, but those with `but`, until none is left.

        Raises the SDK's exceptions.
        """
        assert self._gateway is not None
        for _ in range(_ROUNDS):
            count = await self._gateway.end_tagged(*tags, but=but)
            if not count:
                return
            _log.warning("stopped sandboxes that were left", extra={"tags": tags, "count": count})
            await asyncio.sleep(_ROUND_SECONDS)

    # ------------------------------------------------------------ helpers

    def _the_pool(self) -> Pool:
        if self._pool is None:
            raise SandboxUnavailable("the service is stopping")
        return self._pool

    def _the_image(self) -> Image:
        assert self._image is not None
        return self._image

    def _next_user(self) -> int:
        """Return a new user id per use: without namespaces, users separate processes and files."""
        self._uses += 1
        return self._plan.first_uid + self._uses % _USERS

    def _why_not(self, error: Exception) -> str:
        where = f"Aviato at {self._plan.base_url}"
        why = failure_of(error, "start").message
        source = error.__cause__ if isinstance(error, Failure) else error
        if meaning_of(source or error).reason == "refused_credentials":
            return f"{where} refuses the key (CWSANDBOX_API_KEY or AVIATO_API_KEY): {why}"
        return f"no sandbox can be had of {where}: {why}"


async def _install_runtime(remote: Remote, image: Image) -> None:
    for path, data in image.files.items():
        await remote.write_file(path, data)
