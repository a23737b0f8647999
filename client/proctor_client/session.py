"""Sessions: many sandboxes with the same tags, executions in the background, and one clean end.

    with Session(proctor, tags=environment_tags(model="qwen")) as session:
        pending = [session.submit(each, ["python", "run.py"]) for each in session.start(100)]
        while pending:
            [done], pending = session.wait(pending)
            print(done.sandbox.id, done.result().exit_code)

However the block is left, every sandbox that was made in it is stopped, one whose creation was
broken off among them. What is gone already is no error.
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
    """For threads. `tags`, `ttl_seconds`, `limits` and `job` are for each of its sandboxes.

    At most `max_parallel` executions that were submitted are under way at once. What was done is
    reported to the wandb run that is active, by log_metrics and once more at the end: by itself, with
    `report_to=["wandb"]` also with a warning when there is none, with `[]` never.
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
        """As Client.sandbox, with the session's defaults; `tags` are added to the session's."""
        return self._client.sandbox(observer=self, **self._options(options))

    def start(self, count: int = 1, **options: Unpack[SandboxOptions]) -> list[Sandbox]:
        """So many sandboxes, made in parallel. When one cannot be had, none is left."""
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
        """As Sandbox.exec, in the background."""
        self._check_open()
        exec_request(command, code, stdin, timeout_seconds)  # what is wrong with it shows here
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
        """Wait until `num_returns` of this session's executions are done: those, and the others.

        Those that are done come in the order of completion, never more than asked for, and fewer
        when `timeout_seconds` have passed or there are not so many. None of their exceptions is
        raised here, but by their `result`.
        """
        waited, count = distinct(self, pending, num_returns)
        changed = self._changed.get()
        with changed:
            changed.wait_for(lambda: sum(each.done for each in waited) >= count, timeout_seconds)
            return parted(waited, count)

    def close(self) -> None:
        """Stop what was made; executions under way end with it.

        Ctrl-C in the middle goes through only when it comes twice.
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
    """As Session, for an event loop. Executions are tasks, as many as are submitted."""

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
        """As Session.sandbox, for `async with`."""
        return self._client.sandbox(observer=self, **self._options(options))

    async def start(self, count: int = 1, **options: Unpack[SandboxOptions]) -> list[AsyncSandbox]:
        """As Session.start."""
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
        """As AsyncSandbox.exec, in the background; in a running loop."""
        self._check_open()
        exec_request(command, code, stdin, timeout_seconds)  # what is wrong with it shows here
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
        """As Session.wait."""
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
        """As Session.close. A cancellation waits until it is done."""
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
            pending.task.exception()  # taken note of: nobody need ask for the result


def _in_parallel(work: Callable[[Sandbox], object], sandboxes: Sequence[Sandbox]) -> None:
    """Does the work for each, and raises its first error once all is done.

    When this thread is interrupted, what has not begun is dropped, and what has goes on.
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
