"""Single calls from threads or event loops, collected within milliseconds into batched requests.

Many trainers call a reward function once for each completion. A request for each call would cost
the service and the trainer more time than the judging. So the first call waits for more calls,
takes them along in a single request of /reward, and each caller gets its own answer as soon as the
service sends it.

    batcher = RewardBatcher()
    answer = batcher.judge(completion, {"tests": ["assert f(1) == 2"]})              # in threads
    answer = await batcher.judge_async(completion, {"tests": ["assert f(1) == 2"]})  # in tasks
    answer.reward  # a number, or None for an unjudged completion
    answer.error   # then the reason

The first caller of a request sends the request in its own thread, unless the time of a call is
limited by `call_seconds`. `close` and `aclose` only close connections early; the end of the process
closes them, too.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import SecretStr

from proctor_client import AsyncClient, Client, ProctorTimeoutError, RewardOptions
from proctor_client._runtime import PerProcess
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import Row, TaskOf
from proctor_trainers.addresses import async_client_for, client_for
from proctor_trainers.answers import Answer
from proctor_trainers.collecting import Collected, Collection, Place
from proctor_trainers.mistakes import is_mistake
from proctor_trainers.requests import judge_each, judge_each_async
from proctor_trainers.rewards import Rewards, Settings, Trainer

RETRY_SECONDS = 60.0
WINDOW_SECONDS = 0.005
LONGEST_WINDOW_SECONDS = 0.05
MOST_SUBMISSIONS = 512


class RewardBatcher:
    """Judges single completions for many threads and tasks, with few requests.

    A request takes the calls of a process that arrive with gaps below `window_seconds`, for at
    most `longest_window_seconds`, and at most `most_submissions`. While requests are open, the gap
    allowed grows, so that a slow service gets fewer and larger requests. Calls with different
    steps, and calls of different event loops, go in separate requests.

    `url` and `token` are PROCTOR_URL and PROCTOR_TOKEN by default. Alternatively, give `client`
    for threads, or `async_client` for event loops; then the other form is unavailable.
    `retry_seconds` is the maximum wait of a call for an unreachable service. `call_seconds` is the
    maximum time of `judge` and `judge_async`, which then return an answer without a reward, whatever
    the request still waits for; None: the request's own limits. Each process and each copy opens its
    own connections: a batcher may be pickled, deep-copied, and used after a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | SecretStr | None = None,
        retry_seconds: float = RETRY_SECONDS,
        client: Client | None = None,
        async_client: AsyncClient | None = None,
        settings: Settings | None = None,
        call_seconds: float | None = None,
        window_seconds: float = WINDOW_SECONDS,
        longest_window_seconds: float = LONGEST_WINDOW_SECONDS,
        most_submissions: int = MOST_SUBMISSIONS,
    ) -> None:
        if client is None and async_client is None:
            client = client_for(url, token, retry_seconds)
            async_client = async_client_for(url, token, retry_seconds)
        settings = settings or Settings(say=None)
        self._client = client
        self._async_client = async_client
        self._rewards = Rewards(settings)
        self._call_seconds = call_seconds
        self._window_seconds = window_seconds
        self._longest_window_seconds = longest_window_seconds
        self._most_submissions = most_submissions
        self._collection = PerProcess(Collection)
        self._made_of = {
            "client": client,
            "async_client": async_client,
            "settings": settings,
            "call_seconds": call_seconds,
            "window_seconds": window_seconds,
            "longest_window_seconds": longest_window_seconds,
            "most_submissions": most_submissions,
        }

    def judge(
        self, completion: Any, row: Row, *, group: str | None = None, step: int | None = None
    ) -> Answer:
        """Judge a completion; the calls of other threads at this moment share the request.

        `completion` is a text, or a list of messages, of which the last assistant message counts.
        `row` holds the columns that define the judging (see proctor_client.tasks.forms). `group`
        names the shared prompt of several completions, and `step` is the step of the training,
        both for the service's journal. Raises MissingColumns, and ProctorError for a fatal error,
        such as a wrong token, or a service silent from the start: see proctor_trainers.mistakes.
        """
        client = self._for_threads()
        made = self._rewards.submission_of(completion, row, group)
        if isinstance(made, Answer):
            return made
        future: Future[Answer] = Future()
        place = Place(None, step)
        batch, is_first = self._collection.get().join(place, made, future, self._most_submissions)
        if is_first and self._call_seconds is None:
            self._lead(client, batch)
        elif is_first:
            # A thread cannot stop its own blocked read, so the caller waits outside.
            lead = partial(contextvars.copy_context().run, self._lead, client, batch)
            try:
                threading.Thread(target=lead, name="proctor-batch", daemon=True).start()
            except BaseException as error:  # no thread can start, or Ctrl-C
                self._collection.get().close(batch)
                batch.fail(error)
                raise
        try:
            return future.result(self._call_seconds)
        except TimeoutError:
            return future.result() if future.done() else self._at_limit(client.has_answered)

    async def judge_async(
        self, completion: Any, row: Row, *, group: str | None = None, step: int | None = None
    ) -> Answer:
        """Judge a completion; the calls of other tasks of this loop share the request.

        The arguments and the errors are those of `judge`. A cancelled call leaves the others
        alone; when all calls of a request are cancelled, the request is cancelled, too.
        """
        client = self._for_loops()
        made = self._rewards.submission_of(completion, row, group)
        if isinstance(made, Answer):
            return made
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()

        def begin(batch: Collected) -> None:
            batch.sending = loop.create_task(self._lead_async(client, batch))

        collection = self._collection.get()
        place = Place(loop, step)
        batch, _ = collection.join(place, made, future, self._most_submissions, begin)
        try:
            async with asyncio.timeout(self._call_seconds):
                try:
                    return await future
                except asyncio.CancelledError:
                    if batch.is_abandoned and batch.sending is not None:
                        collection.close(batch)
                        batch.sending.cancel()
                    raise
        except TimeoutError:
            if not future.cancelled():
                return future.result()
            return self._at_limit(client.has_answered)

    def judge_all(
        self,
        completions: Sequence[Any],
        rows: Sequence[Row],
        *,
        groups: Sequence[str | None] | None = None,
        step: int | None = None,
    ) -> list[Answer]:
        """Judge a batch in a single request, in the order of `completions`. Raises as `judge`."""
        client = self._for_threads()
        batch, futures = self._whole(completions, rows, groups, step)
        if batch.submissions:
            self._send(client, batch)
        return [future.result() for future in futures]

    async def judge_all_async(
        self,
        completions: Sequence[Any],
        rows: Sequence[Row],
        *,
        groups: Sequence[str | None] | None = None,
        step: int | None = None,
    ) -> list[Answer]:
        """Async version of judge_all."""
        client = self._for_loops()
        batch, futures = self._whole(completions, rows, groups, step)
        if batch.submissions:
            await self._send_async(client, batch)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Close the connections of the threads. Later calls of threads raise ClientClosedError."""
        if self._client is not None:
            self._client.close()

    async def aclose(self) -> None:
        """Close the connections of this event loop, and have other running loops close theirs."""
        if self._async_client is not None:
            await self._async_client.aclose()

    def _lead(self, client: Client, batch: Collected) -> None:
        """Collect further calls, send the request, and give each caller its answer."""
        try:
            for seconds in self._waits(batch):
                time.sleep(seconds)
            self._collection.get().close(batch)
            self._send(client, batch)
        except BaseException as error:  # Ctrl-C, too: the other callers must not wait for ever
            self._collection.get().close(batch)
            if not batch.fail(error) or not isinstance(error, Exception):
                raise

    async def _lead_async(self, client: AsyncClient, batch: Collected) -> None:
        """Async version of _lead, in a task of its own."""
        try:
            for seconds in self._waits(batch):
                await asyncio.sleep(seconds)
            self._collection.get().close(batch)
            await self._send_async(client, batch)
        except BaseException as error:
            self._collection.get().close(batch)
            if not batch.fail(error) or not isinstance(error, Exception):
                raise

    def _at_limit(self, has_answered: bool) -> Answer:
        """Return the answer for a call of `call_seconds`, or raise its fatal error."""
        error = ProctorTimeoutError(f"no answer within {self._call_seconds} s")
        if is_mistake(error, has_answered):
            raise error
        return Answer.failed(error)

    def _send(self, client: Client, batch: Collected) -> None:
        with self._request(batch) as options:
            judge_each(client, batch.submissions, options, batch.set_answer)

    async def _send_async(self, client: AsyncClient, batch: Collected) -> None:
        with self._request(batch) as options:
            await judge_each_async(client, batch.submissions, options, batch.set_answer)

    def _waits(self, batch: Collected) -> Iterator[float]:
        """Yield the waits, in seconds, until the batch is full or calls stop arriving."""
        collection, longest = self._collection.get(), self._longest_window_seconds
        until = time.monotonic() + longest
        while len(batch.waiting) < self._most_submissions:
            count = len(batch.waiting)
            yield min(self._window_seconds * (1 + collection.in_flight), longest)
            if len(batch.waiting) == count or time.monotonic() >= until:
                return

    @contextmanager
    def _request(self, batch: Collected) -> Iterator[RewardOptions]:
        """Count the request as open, and summarize its answers at the end."""
        collection = self._collection.get()
        begun = time.perf_counter()
        with collection.lock:
            number = self._rewards.next_number()
            collection.in_flight += 1
        try:
            yield self._rewards.options_at(batch.place.step)
        finally:
            with collection.lock:
                collection.in_flight -= 1
        seconds = time.perf_counter() - begun
        self._rewards.summarize(number, batch.answers(), seconds, Trainer())

    def _whole(
        self,
        completions: Sequence[Any],
        rows: Sequence[Row],
        groups: Sequence[str | None] | None,
        step: int | None,
    ) -> tuple[Collected, list[Future[Answer]]]:
        """Return a batch of all completions with a task, and a future for each."""
        batch = Collected(Place(None, step))
        futures = []
        named = groups if groups is not None else [None] * len(completions)
        for completion, row, group in zip(completions, rows, named, strict=True):
            future: Future[Answer] = Future()
            made = self._rewards.submission_of(completion, row, group)
            if isinstance(made, Answer):
                future.set_result(made)
            else:
                batch.add(made, future)
            futures.append(future)
        return batch, futures

    def _for_threads(self) -> Client:
        if self._client is None:
            raise TypeError("this RewardBatcher has only an async_client: use the async methods")
        return self._client

    def _for_loops(self) -> AsyncClient:
        if self._async_client is None:
            raise TypeError("this RewardBatcher has only a client for threads: give async_client")
        return self._async_client

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._made_of,)


def _again(made_of: Mapping[str, Any]) -> RewardBatcher:
    return RewardBatcher(**made_of)


def batcher_for(
    tag: str,
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    task: TaskOf = task_from_row,
    options: RewardOptions | None = None,
    call_seconds: float | None = None,
) -> RewardBatcher:
    """Return the silent batcher of a trainer's adapter; `tag` names the trainer.

    `task` maps a row to the judging fields. `options` are those of Client.reward; their tags follow
    the trainer's.
    """
    chosen = RewardOptions(**(options or {}))
    tags = (tag, *chosen.pop("tags", ()))
    settings = Settings(task=task, tags=tags, say=None, options=chosen)
    return RewardBatcher(
        url,
        token=token,
        retry_seconds=retry_seconds,
        settings=settings,
        call_seconds=call_seconds,
    )
