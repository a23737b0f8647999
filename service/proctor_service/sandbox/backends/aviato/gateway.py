"""The SDK, and all that is asked of it: make a sandbox, run a command in it, stop it, find those left.

Only what is awaited is used, never what blocks. The address and the key are given with every call: the
SDK would otherwise look for them in places of its own, and not everywhere in the same order. Its
exceptions go no further than the modules of this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time

import cwsandbox
from cwsandbox import AuthHeaders, EgressRule, NetworkOptions, SandboxDefaults, SandboxStatus

from proctor_service.errors import SandboxUnavailable
from proctor_service.sandbox.backends.aviato.failures import failure_of, meaning_of
from proctor_service.sandbox.backends.aviato.plan import Order, Plan, Shape

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 3.0


class Remote:
    """One running sandbox at Aviato. `born`: by the monotonic clock."""

    def __init__(self, sandbox: cwsandbox.Sandbox, shape: Shape) -> None:
        self._sandbox = sandbox
        self.id = str(sandbox.sandbox_id)
        self.shape = shape
        self.born = time.monotonic()

    async def write_file(self, path: str, data: bytes) -> None:
        """Writes a file as the image's user. Raises what the SDK raises."""
        await self._sandbox.write_file(path, data)

    def exec(self, argv: list[str], seconds: float) -> cwsandbox.Process:
        """Begins a command whose stdin stays open; the call is given up after `seconds`."""
        return self._sandbox.exec(argv, stdin=True, timeout_seconds=seconds)

    async def lives(self) -> bool:
        """Whether Aviato says that it runs. Raises what the SDK raises."""
        try:
            status = await asyncio.to_thread(self._sandbox.get_status)  # it blocks
        except cwsandbox.SandboxNotFoundError:
            return False
        return status == SandboxStatus.RUNNING

    async def stop(self) -> None:
        """Stops it for good, sooner or later; never raises."""
        await stop(self._sandbox)


class Gateway:
    """Aviato's API, with this service's key; made where no sandbox has been made before."""

    def __init__(self, plan: Plan) -> None:
        cwsandbox.disable_signal_handlers()  # SIGTERM is the service's, which drains first
        logging.getLogger("cwsandbox").setLevel(logging.WARNING)  # else a line for each sandbox
        self._plan = plan
        key = plan.api_key.get_secret_value()
        self._auth = AuthHeaders({"Authorization": f"Bearer {key}"}, "api_key")
        self._undoing: set[asyncio.Task[None]] = set()
        # It stops what is left when the process exits in a way that runs no code of ours.
        self._session = cwsandbox.Session(
            SandboxDefaults(base_url=plan.base_url, auth=self._auth), report_to=[]
        )

    async def create(self, order: Order) -> Remote:
        """A sandbox that runs. Raises SandboxUnavailable, after retries within the budget."""
        plan = self._plan
        sandbox = cwsandbox.Sandbox(
            container_image=plan.image,
            base_url=plan.base_url,
            auth=self._auth,
            tags=list(order.tags),
            resources={"cpu": plan.cpu, "memory": f"{order.shape.memory_mb}Mi"},
            network=_network(order.shape),
            max_lifetime_seconds=order.lifetime_seconds,
            request_timeout_seconds=plan.start_seconds,
            poll_retry_budget_seconds=plan.start_seconds,
        )
        given_up = asyncio.Event()
        starting = asyncio.ensure_future(_start(sandbox, given_up))
        try:
            async with asyncio.timeout(plan.start_seconds):
                await asyncio.shield(starting)
                self._session.adopt(sandbox)
                await sandbox
            if sandbox.status != SandboxStatus.RUNNING:
                raise SandboxUnavailable(f"failed: it came up {sandbox.status}")
        except BaseException as error:
            given_up.set()
            self._undo(starting, sandbox)
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable("timeout: it took too long to come up") from None
            if isinstance(error, Exception):
                raise failure_of(error, "start") from error
            raise
        return Remote(sandbox, order.shape)

    async def end_tagged(self, tag: str) -> int:
        """Stops all sandboxes with a tag that still live; how many. Raises what the SDK raises."""
        plan = self._plan
        found = await cwsandbox.Sandbox.list(
            tags=[tag],
            base_url=plan.base_url,
            auth=self._auth,
            timeout_seconds=plan.start_seconds,
        )
        async with asyncio.timeout(plan.start_seconds):
            await asyncio.gather(*map(stop, found))
        return len(found)

    async def close(self) -> None:
        """Lets the SDK forget this service; never raises."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=self._plan.start_seconds)
        with contextlib.suppress(cwsandbox.CWSandboxError):
            await self._session.close()

    def _undo(self, starting: asyncio.Future[None], sandbox: cwsandbox.Sandbox) -> None:
        """Stops one that nobody waits for, in the background: first it must be known which it is."""

        async def undo() -> None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._plan.start_seconds):
                    await starting
            await stop(sandbox)

        undoing = asyncio.get_running_loop().create_task(undo())
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)


async def _start(sandbox: cwsandbox.Sandbox, given_up: asyncio.Event) -> None:
    """Asks for it, again while that may help: the same request, so that no second one comes of it."""
    pause = _PAUSE_SECONDS
    while not given_up.is_set():
        try:
            await sandbox.start()
            return
        except cwsandbox.CWSandboxError as error:
            if not meaning_of(error).passing:
                raise
            _log.info("asking for a sandbox again", extra={"why": meaning_of(error).reason})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(given_up.wait(), pause)
        pause = min(pause * 2, _MOST_PAUSE_SECONDS)


async def stop(sandbox: cwsandbox.Sandbox) -> None:
    """Stops a sandbox in whatever state it is, however long the gateway does not answer."""
    pause = _PAUSE_SECONDS
    for tries in itertools.count():
        try:
            await sandbox.stop(missing_ok=True, graceful_shutdown_seconds=0)
            return
        except Exception as error:
            if tries == 0:
                extra = {"sandbox": sandbox.sandbox_id, "why": meaning_of(error).reason}
                _log.warning("a sandbox cannot be stopped yet", extra=extra)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE_SECONDS)


def _network(shape: Shape) -> NetworkOptions:
    if shape.network:
        return NetworkOptions(egress=[EgressRule(any=True)])
    return NetworkOptions(deny_egress=True)
