"""Sessions: many sandboxes with shared tags, background executions, and a clean end.

    async with AsyncSession(proctor, tags=environment_tags(model="qwen")) as session:
        started = await session.start(100)
        pending = [session.submit(each, ["python", "run.py"]) for each in started]
        while pending:
            [done], pending = await session.wait(pending)
            result = await done.result()
            print(done.sandbox.id, result.exit_code)

However the block ends, the session stops every sandbox created in the block, including a sandbox
with an interrupted creation. Missing sandboxes cause no error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from proctor_client._async.client import AsyncClient
from proctor_client._async.sandbox import AsyncSandbox
from proctor_client._background import Tasks
from proctor_client._keeper import Keeper
from proctor_client._runtime import for_each_async, shielded
from proctor_client._sandbox_calls import AnyLimits, SandboxOptions, exec_request
from proctor_client.pending import AsyncPending, distinct, parted
from proctor_client.reporting import PREFIX, Reporter


class AsyncSession(Keeper[AsyncSandbox]):
    """Session for event loops. `tags`, `ttl_seconds`, `limits` and `job` apply to each sandbox.

    Each submitted execution is a task, and their number is unlimited.

    log_metrics, and the end of the session, report the counts to the active wandb run. With
    `report_to=["wandb"]` a warning is logged if there is no active run; with `[]` the session never
    reports.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        tags: Iterable[str] = (),
        ttl_seconds: float | None = None,
        limits: AnyLimits | None = None,
        job: str | None = None,
        # blocking: max_parallel: int = 128,
        report_to: Sequence[str] | None = None,
        metrics_prefix: str = PREFIX,
    ) -> None:
        reporter = Reporter(report_to, metrics_prefix)
        super().__init__(tags, reporter, ttl_seconds=ttl_seconds, limits=limits, job=job)
        self._client = client
        self._background = Tasks()  # blocking: self._background = Threads(max_parallel)

    def sandbox(self, **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        """Return a handle as AsyncClient.sandbox, with the session's defaults and tags plus `tags`."""
        return self._client.sandbox(observer=self, **self._options(options))

    async def start(self, count: int = 1, **options: Unpack[SandboxOptions]) -> list[AsyncSandbox]:
        """Create `count` sandboxes in parallel. If a creation fails, all of them are stopped."""
        self._check_open()
        made = [self.sandbox(**options) for _ in range(count)]
        try:
            await for_each_async(AsyncSandbox.start, made)
        except BaseException:
            await shielded(partial(for_each_async, AsyncSandbox.close, made))
            raise
        return made

    def submit(
        self,
        sandbox: AsyncSandbox,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> AsyncPending:
        """Run AsyncSandbox.exec in the background. Requires a running loop."""
        self._check_open()
        exec_request(command, code, stdin, timeout_seconds)  # raises for invalid arguments
        run = partial(
            sandbox.exec, command, code=code, stdin=stdin, timeout_seconds=timeout_seconds
        )
        return self._background.submit(self, sandbox, run)

    async def wait(
        self,
        pending: Iterable[AsyncPending],
        num_returns: int = 1,
        timeout_seconds: float | None = None,
    ) -> tuple[list[AsyncPending], list[AsyncPending]]:
        """Wait until `num_returns` of the session's executions are done; return (done, remaining).

        The done list is in order of completion and has at most `num_returns` entries. The list is
        shorter after `timeout_seconds`, or if there are fewer executions. Exceptions of executions
        are raised by their `result`, not here.
        """
        waited, count = distinct(self, pending, num_returns)
        await self._background.wait(waited, count, timeout_seconds)
        return parted(waited, count)

    async def close(self) -> None:
        """Stop the session's sandboxes, which also ends the running executions.

        A cancellation takes effect after the clean-up.
        """
        live = self._end()
        try:
            await shielded(partial(self._close, live))
        except BaseException:  # Ctrl-C in a thread; after a cancellation, nothing is left to do
            await self._close(live)
            raise
        finally:
            self._report_end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _close(self, live: Sequence[AsyncSandbox]) -> None:
        await self._background.cancel()
        await for_each_async(AsyncSandbox.close, live)
        await self._background.join()
