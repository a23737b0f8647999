"""Judging of many submissions: batches within the service's limits, and results as they arrive."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proctor_client import Client, wire
from proctor_client.tasks.task import Completion, Task
from proctor_service.cli.programs import submission_of

BATCH = 1000
BATCH_CHARACTERS = 8_000_000
DEADLINE_SECONDS = 3600.0


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
    for batch in _batches(items):
        submissions = [submission_of(each.task, each.completion) for each in batch]
        with client.reward_stream(
            submissions,
            extract=extract,
            job=job,
            deadline_seconds=DEADLINE_SECONDS,
            cache=cache,
        ) as results:
            for result in results:
                yield batch[result.index], result


def _batches(items: Sequence[Attempt]) -> Iterator[list[Attempt]]:
    batch: list[Attempt] = []
    room = BATCH_CHARACTERS
    for item in items:
        size = len(json.dumps(submission_of(item.task, item.completion)))
        if batch and (len(batch) == BATCH or size > room):
            yield batch
            batch, room = [], BATCH_CHARACTERS
        batch.append(item)
        room -= size
    if batch:
        yield batch
