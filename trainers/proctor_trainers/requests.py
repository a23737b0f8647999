"""Requests of /reward: a batch in, an answer for each submission out.

Fatal errors are raised (see `mistakes`): a wrong token, or a refused shared option.
Every other failure is an answer without a reward. If the service rejects a request as a whole
because of its items, the request is split in halves, down to the items at fault: a broken row of
the data set leaves the rewards of other rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from proctor_client import AsyncClient, Client, InvalidRequestError, ProctorError, RewardOptions
from proctor_trainers.answers import Answer
from proctor_trainers.mistakes import is_mistake, refuses_option

Submissions: TypeAlias = Sequence[Mapping[str, Any]]
OnAnswer: TypeAlias = Callable[[int, Answer], None]
"""Called with the place of a submission in its batch and its answer."""


def ask(client: Client, submissions: Submissions, options: RewardOptions) -> list[Answer]:
    """Return an answer for each submission, in a single request.

    Raises only fatal ProctorErrors, such as InvalidRequestError for an option that the service
    refuses.
    """
    if not submissions:
        return []
    try:
        return [Answer.of(each) for each in client.reward(submissions, **options).results]
    except ProctorError as error:
        halves = _parts_after(error, client.has_answered, submissions, options)
        if not halves:
            return [Answer.failed(error)] * len(submissions)
    return [answer for half in halves for answer in ask(client, half, options)]


async def ask_async(
    client: AsyncClient, submissions: Submissions, options: RewardOptions
) -> list[Answer]:
    """Async version of ask."""
    if not submissions:
        return []
    try:
        answer = await client.reward(submissions, **options)
        return [Answer.of(each) for each in answer.results]
    except ProctorError as error:
        halves = _parts_after(error, client.has_answered, submissions, options)
        if not halves:
            return [Answer.failed(error)] * len(submissions)
    return [answer for half in halves for answer in await ask_async(client, half, options)]


def judge_each(
    client: Client,
    submissions: Submissions,
    options: RewardOptions,
    on_answer: OnAnswer,
    first: int = 0,
) -> None:
    """Call `on_answer` with each arriving answer; `first` is added to places.

    Raises only fatal ProctorErrors, possibly after some answers.
    """
    left = dict.fromkeys(range(len(submissions)))
    try:
        with client.reward_stream(submissions, **options) as stream:
            for result in stream:
                del left[result.index]
                on_answer(first + result.index, Answer.of(result))
        return
    except ProctorError as error:
        halves = _parts_after(error, client.has_answered, submissions, options, len(left))
        if not halves:
            for place in left:
                on_answer(first + place, Answer.failed(error))
    for half in halves:
        judge_each(client, half, options, on_answer, first)
        first += len(half)


async def judge_each_async(
    client: AsyncClient,
    submissions: Submissions,
    options: RewardOptions,
    on_answer: OnAnswer,
    first: int = 0,
) -> None:
    """Async version of judge_each."""
    left = dict.fromkeys(range(len(submissions)))
    try:
        async with client.reward_stream(submissions, **options) as stream:
            async for result in stream:
                del left[result.index]
                on_answer(first + result.index, Answer.of(result))
        return
    except ProctorError as error:
        halves = _parts_after(error, client.has_answered, submissions, options, len(left))
        if not halves:
            for place in left:
                on_answer(first + place, Answer.failed(error))
    for half in halves:
        await judge_each_async(client, half, options, on_answer, first)
        first += len(half)


def _parts_after(
    error: ProctorError,
    has_answered: bool,
    submissions: Submissions,
    options: RewardOptions,
    unanswered: int | None = None,
) -> list[Submissions]:
    """Return the halves to ask for instead; empty if splitting is useless.

    `unanswered` is the number of submissions without an answer; None: all. Raises a fatal error.
    """
    if is_mistake(error, has_answered) or refuses_option(error, options):
        raise error
    if not isinstance(error, InvalidRequestError) or len(submissions) < 2:
        return []
    if unanswered not in (None, len(submissions)):
        return []
    middle = len(submissions) // 2
    return [submissions[:middle], submissions[middle:]]
