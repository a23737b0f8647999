"""Judging of many submissions: batches within the service's limits, and results as they arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from proctor_client import Client, InvalidRequestError, RewardOptions, wire
from proctor_client.tasks.task import Completion, Task
from proctor_client.wire import long_integers
from proctor_service.features.evaluation.answers import program_of

BATCH = 1000
BATCH_CHARACTERS = 8_000_000
DEADLINE_SECONDS = 3600.0
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class Attempt:
    """Completion of a task; `sample` counts the task's completions from 0."""

    task: Task
    completion: Completion
    sample: int = 0


def attempts(pairs: Sequence[tuple[Task, Completion]]) -> list[Attempt]:
    """Return an attempt for each pair, with the completions of each task numbered."""
    seen: Counter[str] = Counter()
    made = []
    for task, completion in pairs:
        made.append(Attempt(task, completion, seen[task.id]))
        seen[task.id] += 1
    return made


def message_of(result: wire.Result) -> str:
    """Return the message of an error, of a result, or else of its first failed test."""
    if result.error is not None:
        return result.error.message
    if result.message or not result.tests.failures:
        return result.message
    return f"{result.tests.failures[0].test}: {result.tests.failures[0].message}"


def judged(
    client: Client,
    items: Sequence[Attempt],
    *,
    extract: wire.Extract,
    job: str,
    cache: bool = True,
) -> Iterator[tuple[Attempt, wire.Result]]:
    """Yield each attempt with its result in order of completion. Raises ProctorError."""
    options: RewardOptions = {
        "extract": extract,
        "job": job,
        "deadline_seconds": DEADLINE_SECONDS,
        "cache": cache,
    }
    for batch in _batches(items):
        yield from _judged(client, batch, options)


def _judged(
    client: Client, batch: Sequence[Attempt], options: RewardOptions
) -> Iterator[tuple[Attempt, wire.Result]]:
    """Yield the results of one request; an attempt that the service refuses has its own error."""
    answered = False
    try:
        with client.reward_stream([_submission(each) for each in batch], **options) as results:
            for result in results:
                answered = True
                yield batch[result.index], result
        return
    except InvalidRequestError as error:
        if answered or not _is_about_items(error):
            raise
        if len(batch) == 1:
            yield batch[0], _refused(error)
            return
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        yield from _judged(client, half, options)


def _is_about_items(error: InvalidRequestError) -> bool:
    """Return True if the items are at fault, by their size or a field, and no option of all of them."""
    return error.status_code == _TOO_LARGE or error.message.startswith("submissions")


def _refused(error: InvalidRequestError) -> wire.Result:
    problem = wire.ItemError(reason="invalid_task", message=error.message, retryable=False)
    return wire.Result(
        index=0, evaluation_id="", error=problem, integrity="separated", cache="miss"
    )


def _submission(item: Attempt) -> dict[str, Any]:
    task = item.task
    given = {"id": task.id, "group": task.id, **task.fields, "completion": item.completion}
    if task.answer is not None:
        given |= {"completion": program_of(task.answer, item.completion), "extract": "none"}
    return given


def _batches(items: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    batch: list[Attempt] = []
    room = BATCH_CHARACTERS
    for item in items:
        size = len(long_integers.dumps(_submission(item)))
        if batch and (len(batch) == BATCH or size > room):
            yield batch
            batch, room = [], BATCH_CHARACTERS
        batch.append(item)
        room -= size
    if batch:
        yield batch
