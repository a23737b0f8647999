"""Wrapper of the SDK: create a sandbox, run a command, stop a sandbox, find leftover sandboxes.

Uses only the SDK's awaitable calls, except for `get_status`, which runs in a thread. Every call
gets the address and the key explicitly: otherwise the SDK would search several places for them, in
varying order. The SDK's exceptions stay inside the modules of this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable

import cwsandbox
from cwsandbox import AuthHeaders, SandboxDefaults, SandboxStatus

from proctor_service.errors import SandboxUnavailable
from proctor_service.features.aviato.failures import failure_of, meaning_of
from proctor_service.features.aviato.options import arguments_of
from proctor_service.features.aviato.plan import AviatoPlan, Order, Shape

_log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2
_MOST_PAUSE_SECONDS = 3.0


class Remote:
    """Running sandbox at Aviato. `born`: time by the monotonic clock."""

    def __init__(self, sandbox: cwsandbox.Sandbox, shape: Shape) -> None:
        self._sandbox = sandbox
        self.id = str(sandbox.sandbox_id)
        self.shape = shape
        self.born = time.monotonic()

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file as the image's user. Raises the SDK's exceptions."""
        await self._sandbox.write_file(path, data)

    def exec(self, argv: list[str], seconds: float) -> cwsandbox.Process:
        """Start a command with open stdin; the call is abandoned after `seconds`."""
        return self._sandbox.exec(argv, stdin=True, timeout_seconds=seconds)

    async def lives(self) -> bool:
        """Return True if Aviato reports the sandbox as running. Raises the SDK's exceptions."""
        try:
            status = await asyncio.to_thread(self._sandbox.get_status)  # a blocking call
        except cwsandbox.SandboxNotFoundError:
            return False
        return status == SandboxStatus.RUNNING

    async def stop(self) -> None:
        """Stop the sandbox for good, with retries; never raises."""
        await stop(self._sandbox)


class Gateway:
    """Aviato's API with this service's credentials; create before any other use of the SDK."""

    def __init__(
        self, plan: AviatoPlan, credentials: AuthHeaders, more_tags: Callable[[], list[str]] = list
    ) -> None:
        """Prepare the SDK. `more_tags`: called for each new sandbox."""
        cwsandbox.disable_signal_handlers()  # the service handles SIGTERM and drains first
        logging.getLogger("cwsandbox").setLevel(logging.WARNING)  # otherwise a log line per sandbox
        self._plan = plan
        self._auth = credentials
        self._more_tags = more_tags
        self._undoing: set[asyncio.Task[None]] = set()
        # The session stops leftover sandboxes if the process exits without running our own code.
        self._session = cwsandbox.Session(
            SandboxDefaults(base_url=plan.base_url, auth=self._auth), report_to=[]
        )

    async def create(self, order: Order) -> Remote:
        """Return a running sandbox, after retries if needed. Raises SandboxUnavailable."""
        plan = self._plan
        sandbox = cwsandbox.Sandbox(
            base_url=plan.base_url,
            auth=self._auth,
            tags=[*order.tags, *self._more_tags()],
            **arguments_of(order),
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
            undoing = self._undo(starting, sandbox)
            if plan.budget is not None and isinstance(error, Exception):
                # Until then the sandbox counts, in the budget too.
                await asyncio.wait({undoing}, timeout=2 * plan.start_seconds)
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable("timeout: it took too long to come up") from None
            if isinstance(error, Exception):
                raise failure_of(error, "start") from error
            raise
        return Remote(sandbox, order.shape)

    async def end_tagged(self, *tags: str, but: str = "") -> int:
        """Stop all live sandboxes with these tags; return their number. Raises the SDK's exceptions.

        Sandboxes with the tag `but` stay.
        """
        found = [sandbox for sandbox in await self._list(tags) if but not in sandbox.tags]
        async with asyncio.timeout(self._plan.start_seconds):
            await asyncio.gather(*map(stop, found))
        return len(found)

    async def tags_of(self, tag: str) -> list[tuple[str, ...]]:
        """Return the tags of each live sandbox with this tag. Raises the SDK's exceptions."""
        return [sandbox.tags for sandbox in await self._list([tag])]

    async def _list(self, tags: Iterable[str]) -> list[cwsandbox.Sandbox]:
        return await cwsandbox.Sandbox.list(
            tags=list(tags),
            base_url=self._plan.base_url,
            auth=self._auth,
            timeout_seconds=self._plan.start_seconds,
        )

    async def close(self) -> None:
        """Close the SDK's session; never raises."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=self._plan.start_seconds)
        with contextlib.suppress(cwsandbox.CWSandboxError):
            await self._session.close()

    def _undo(
        self, starting: asyncio.Future[None], sandbox: cwsandbox.Sandbox
    ) -> asyncio.Task[None]:
        """Stop a no longer needed sandbox in the background, once its id is known."""

        async def undo() -> None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(self._plan.start_seconds):
                    await starting
            await stop(sandbox)

        undoing = asyncio.get_running_loop().create_task(undo())
        self._undoing.add(undoing)
        undoing.add_done_callback(self._undoing.discard)
        return undoing


async def _start(sandbox: cwsandbox.Sandbox, given_up: asyncio.Event) -> None:
    """Request the sandbox, with retries of the same request to avoid a second sandbox."""
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
    """Stop a sandbox in any state, retrying for as long as the gateway does not answer."""
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
