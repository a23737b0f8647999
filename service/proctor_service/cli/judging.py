"""Judging of many submissions for a command: batches within the service's limits, results as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from proctor_client import Client, InvalidRequestError, RewardOptions, wire
from proctor_client.tasks.task import Completion, Task
from proctor_client.wire import long_integers

BATCH = 1000
BATCH_CHARACTERS = 8_000_000
DEADLINE_SECONDS = 3600.0
_TOO_LARGE = 413

T = TypeVar("T")
Submission = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Completion of a task; `sample` counts the task's completions from 0."""

    task: Task
    completion: Completion
    sample: int = 0


def message_of(result: wire.Result) -> str:
    """Return the message of an error, of a result, or else of its first failed test."""
    if result.error is not None:
        return result.error.message
    if result.message or not result.tests.failures:
        return result.message
    return f"{result.tests.failures[0].test}: {result.tests.failures[0].message}"


def judged(
    client: Client, items: Iterable[tuple[T, Submission]], options: RewardOptions
) -> Iterator[tuple[T, wire.Result | InvalidRequestError]]:
    """Yield each item with the result or the refusal of its submission, in order of completion.

    Raises ProctorError.
    """
    options = {"deadline_seconds": DEADLINE_SECONDS, **options}
    for batch in batches(items):
        yield from _judged(client, batch, options)


def batches(items: Iterable[tuple[T, Submission]]) -> Iterator[list[tuple[T, Submission]]]:
    """Yield the items in batches of at most `BATCH` items and some `BATCH_CHARACTERS` characters."""
    batch: list[tuple[T, Submission]] = []
    room = BATCH_CHARACTERS
    for item in items:
        size = len(long_integers.dumps(item[1]))
        if batch and (len(batch) == BATCH or size > room):
            yield batch
            batch, room = [], BATCH_CHARACTERS
        batch.append(item)
        room -= size
    if batch:
        yield batch


def _judged(
    client: Client, batch: Sequence[tuple[T, Submission]], options: RewardOptions
) -> Iterator[tuple[T, wire.Result | InvalidRequestError]]:
    """Yield the results of a request.

    A service refuses a whole request for one submission, so a refused batch is sent again in halves.
    """
    has_answered = False
    try:
        with client.reward_stream([dict(each) for _, each in batch], **options) as results:
            for result in results:
                has_answered = True
                yield batch[result.index][0], result
        return
    except InvalidRequestError as error:
        if has_answered or not _is_about_items(error):
            raise
        if len(batch) == 1:
            yield batch[0][0], error
            return
    middle = len(batch) // 2
    for half in (batch[:middle], batch[middle:]):
        yield from _judged(client, half, options)


def _is_about_items(error: InvalidRequestError) -> bool:
    """Return True if the size or a field of the items is at fault, rather than an option of the request."""
    return error.status_code == _TOO_LARGE or error.message.startswith("submissions")
