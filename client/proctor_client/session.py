"""Sessions: many sandboxes with shared tags, background executions, and one clean end.

    with Session(proctor, tags=environment_tags(model="qwen")) as session:
        pending = [session.submit(each, ["python", "run.py"]) for each in session.start(100)]
        while pending:
            [done], pending = session.wait(pending)
            print(done.sandbox.id, done.result().exit_code)

However the block ends, the session stops every sandbox created in the block, including a sandbox
whose creation was interrupted. A sandbox that is already gone causes no error.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from proctor_client import wire
from proctor_client._driver import to_the_end
from proctor_client._keeper import Keeper
from proctor_client._process import PerProcess
from proctor_client._sandbox_calls import AnyLimits, SandboxOptions, exec_request
from proctor_client.async_client import AsyncClient
from proctor_client.client import Client
from proctor_client.pending import AsyncPending, Pending, distinct, parted
from proctor_client.reporting import PREFIX, Reporter
from proctor_client.sandbox import AsyncSandbox, Sandbox

MOST_AT_ONCE = 32


class Session(Keeper[Sandbox]):
    """Session for threads. `tags`, `ttl_seconds`, `limits` and `job` apply to each sandbox.

    At most `max_parallel` submitted executions run at once. log_metrics, and the end of the
    session, report the counts to the active wandb run. With `report_to=["wandb"]` a warning is
    logged if there is no active run; with `[]` the session never reports.
    """

    def __init__(
        self,
        client: Client,
        *,
        tags: Iterable[str] = (),
        ttl_seconds: float | None = None,
        limits: AnyLimits | None = None,
        job: str | None = None,
        max_parallel: int = 128,
        report_to: Sequence[str] | None = None,
        metrics_prefix: str = PREFIX,
    ) -> None:
        reporter = Reporter(report_to, metrics_prefix)
        super().__init__(tags, reporter, ttl_seconds=ttl_seconds, limits=limits, job=job)
        self._client = client
        self._changed = PerProcess(threading.Condition)
        self._threads = PerProcess(
            partial(ThreadPoolExecutor, max_parallel, thread_name_prefix="proctor-session")
        )

    def sandbox(self, **options: Unpack[SandboxOptions]) -> Sandbox:
        """Return a handle as Client.sandbox, with the session's defaults and tags plus `tags`."""
        return self._client.sandbox(observer=self, **self._options(options))

    def start(self, count: int = 1, **options: Unpack[SandboxOptions]) -> list[Sandbox]:
        """Create `count` sandboxes in parallel. If a creation fails, all of them are stopped."""
        self._check_open()
        made = [self.sandbox(**options) for _ in range(count)]
        try:
            _in_parallel(Sandbox.start, made)
        except BaseException:
            _in_parallel(Sandbox.close, made)
            raise
        return made

    def submit(
        self,
        sandbox: Sandbox,
        command: Sequence[str] | None = None,
        *,
        code: str | None = None,
        stdin: str = "",
        timeout_seconds: float | None = None,
    ) -> Pending:
        """Run Sandbox.exec in the background."""
        self._check_open()
        exec_request(command, code, stdin, timeout_seconds)  # raises for invalid arguments
        future = self._threads.get().submit(
            sandbox.exec, command, code=code, stdin=stdin, timeout_seconds=timeout_seconds
        )
        pending = Pending(self, sandbox, future)
        future.add_done_callback(lambda _: self._finished(pending))
        return pending

    def wait(
        self,
        pending: Iterable[Pending],
        num_returns: int = 1,
        timeout_seconds: float | None = None,
    ) -> tuple[list[Pending], list[Pending]]:
        """Wait until `num_returns` of the session's executions are done; return (done, remaining).

        The done list is in order of completion and has at most `num_returns` entries. The list is
        shorter after `timeout_seconds`, or if there are fewer executions. Exceptions of executions
        are raised by their `result`, not here.
        """
        waited, count = distinct(self, pending, num_returns)
        changed = self._changed.get()
        with changed:
            changed.wait_for(lambda: sum(each.done for each in waited) >= count, timeout_seconds)
            return parted(waited, count)

    def close(self) -> None:
        """Stop the session's sandboxes, which also ends the running executions.

        A first Ctrl-C during the call waits for the clean-up; a second Ctrl-C ends the call.
        """
        live = self._end()
        try:
            self._close(live)
        except BaseException:
            self._close(live)
            raise
        finally:
            self._report_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _close(self, live: Sequence[Sandbox]) -> None:
        threads = self._threads.get()
        threads.shutdown(wait=False, cancel_futures=True)
        _in_parallel(Sandbox.close, live)
        threads.shutdown()

    def _finished(self, pending: Pending) -> None:
        changed = self._changed.get()
        with changed:
            pending.number = self._next_number()
            changed.notify_all()


class AsyncSession(Keeper[AsyncSandbox]):
    """Async version of Session. Each submitted execution is a task; their number is unlimited."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        tags: Iterable[str] = (),
        ttl_seconds: float | None = None,
        limits: AnyLimits | None = None,
        job: str | None = None,
        report_to: Sequence[str] | None = None,
        metrics_prefix: str = PREFIX,
    ) -> None:
        reporter = Reporter(report_to, metrics_prefix)
        super().__init__(tags, reporter, ttl_seconds=ttl_seconds, limits=limits, job=job)
        self._client = client
        self._tasks: set[asyncio.Task[wire.ExecResult]] = set()

    def sandbox(self, **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        """Return a handle as Session.sandbox, for `async with`."""
        return self._client.sandbox(observer=self, **self._options(options))

    async def start(self, count: int = 1, **options: Unpack[SandboxOptions]) -> list[AsyncSandbox]:
        """Async version of Session.start."""
        self._check_open()
        made = [self.sandbox(**options) for _ in range(count)]
        try:
            await asyncio.gather(*(each.start() for each in made))
        except BaseException:
            await to_the_end(_close_all(made))
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
        work = sandbox.exec(command, code=code, stdin=stdin, timeout_seconds=timeout_seconds)
        pending = AsyncPending(self, sandbox, asyncio.create_task(work))
        self._tasks.add(pending.task)
        pending.task.add_done_callback(lambda _: self._finished(pending))
        return pending

    async def wait(
        self,
        pending: Iterable[AsyncPending],
        num_returns: int = 1,
        timeout_seconds: float | None = None,
    ) -> tuple[list[AsyncPending], list[AsyncPending]]:
        """Async version of Session.wait."""
        waited, count = distinct(self, pending, num_returns)
        loop = asyncio.get_running_loop()
        end = None if timeout_seconds is None else loop.time() + timeout_seconds
        while sum(each.done for each in waited) < count:
            left = None if end is None else max(0.0, end - loop.time())
            tasks = [each.task for each in waited if not each.done]
            done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
        return parted(waited, count)

    async def close(self) -> None:
        """Async version of Session.close. A cancellation takes effect after the clean-up."""
        await to_the_end(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _close(self) -> None:
        live = self._end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _close_all(live)
        self._report_end()

    def _finished(self, pending: AsyncPending) -> None:
        self._tasks.discard(pending.task)
        pending.number = self._next_number()
        if not pending.task.cancelled():
            pending.task.exception()  # read, so that asyncio logs no unretrieved exception


def _in_parallel(work: Callable[[Sandbox], object], sandboxes: Sequence[Sandbox]) -> None:
    """Do the work for each sandbox, wait for all, and raise the first error.

    If this thread is interrupted, queued work is dropped, and running work continues.
    """
    if not sandboxes:
        return
    threads = ThreadPoolExecutor(min(len(sandboxes), MOST_AT_ONCE))
    try:
        futures = [threads.submit(work, each) for each in sandboxes]
        wait(futures)
        for future in futures:
            future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


async def _close_all(sandboxes: Iterable[AsyncSandbox]) -> None:
    await asyncio.gather(*(each.close() for each in sandboxes))
