"""Core of every reward function: completions and columns in, `list[float | None]` out.

Each call sends one batched request. An item that the service could not judge gets None. If the
trainer would read None as 0.0, the item gets the mean reward of its siblings, and a call without
any judged item raises RewardsUnavailable. An unjudged item never gets 0.0, which would teach the
policy to avoid its own action. Fatal errors, such as a wrong token, are raised at once: see
`mistakes`.

If the service rejects a request as a whole, the request is split in halves, down to the items at
fault. So a broken row of the data set costs no other row its reward.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import ValidationError

from proctor_client import (
    AsyncClient,
    Client,
    InvalidRequestError,
    ProctorError,
    RewardOptions,
    environment_tags,
    wire,
)
from proctor_client.errors import from_validation
from proctor_client.reporting import PREFIX, Reporter
from proctor_trainers.answers import Answer, line_of, metrics_of
from proctor_trainers.columns import BadTask, Row, TaskOf, task_from_columns
from proctor_trainers.mistakes import is_mistake

log = logging.getLogger("proctor_trainers")

Submissions: TypeAlias = Sequence[Mapping[str, Any]]
_TOLD_REASONS = 3


class RewardsUnavailable(RuntimeError):
    """Raised when the share of unjudged items in a batch exceeds the limit."""


def say_line(line: str) -> None:
    """Print a whole line in one write, and flush, also for files and parallel ranks."""
    print(f"{line}\n", end="", flush=True)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one reward function.

    `name` is the name of its metrics and columns: two functions in one trainer need two names.
    `task` maps a row to its judging fields. A call with a share of unjudged items above
    `max_unavailable_share` raises RewardsUnavailable; None means 1.0 (never) if the trainer masks
    None, else 0.5. `say` gets a line for each call; None prints nothing. `report_to` and
    `metrics_prefix` are for W&B, as in proctor_client.reporting; with None, metrics are reported
    there only if the trainer logs no metrics itself.
    """

    name: str = "proctor"
    task: TaskOf = task_from_columns
    tags: Sequence[str] = ()
    max_unavailable_share: float | None = None
    say: Callable[[str], None] | None = say_line
    report_to: Sequence[str] | None = None
    metrics_prefix: str = PREFIX
    options: RewardOptions = field(default_factory=RewardOptions)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Behaviour of the trainer for the rewards of this call, and its log functions.

    `masks` is true if the trainer skips a completion whose rewards are all None. `adds` is true if
    the trainer adds up the rewards of several functions, and so reads None as 0.0 if another
    function returned a number. `step` is the step of the training run; None if unknown.
    """

    masks: bool = True
    adds: bool = False
    step: int | None = None
    log_metric: Callable[[str, float], None] | None = None
    log_extra: Callable[[str, list[Any]], None] | None = None


@dataclass(frozen=True)
class Batch:
    """A call in progress.

    `places` are the indices of the submissions among the completions. `unfit` holds the answers for
    completions without a submission.
    """

    number: int
    begun: float
    submissions: Submissions
    places: Sequence[int]
    unfit: Mapping[int, Answer]
    options: RewardOptions


class Rewards:
    """The calls of one reward function, without I/O: `begin`, then `judge`, then `end`.

    Raises InvalidRequestError for options that are invalid in every request.
    """

    def __init__(self, settings: Settings) -> None:
        _check(settings)
        self._settings = settings
        self._begun = 0
        self._reporter = Reporter(settings.report_to, settings.metrics_prefix)
        self._task = settings.task
        if settings.options.get("grader") is not None and settings.task is task_from_columns:
            self._task = _nothing_of

    def begin(
        self,
        completions: Sequence[Any],
        columns: Mapping[str, Sequence[Any]],
        step: int | None = None,
    ) -> Batch:
        """Build the request of a call.

        `completions` are texts, or lists of messages, of which the last assistant message counts.
        Each of `columns` has one value for each completion. `step` is the step of the training
        run, for the service's journal. Raises MissingColumns if no column defines the judging, and
        ValueError for a column of another length.
        """
        for name, column in columns.items():
            if len(column) != len(completions):
                raise ValueError(f"column {name}: {len(column)} values, not {len(completions)}")
        submissions, places = [], []
        unfit: dict[int, Answer] = {}
        for place, completion in enumerate(completions):
            try:
                task = self._task({name: column[place] for name, column in columns.items()})
            except BadTask as error:
                unfit[place] = Answer.unjudged("invalid_task", str(error))
            else:
                submissions.append({"completion": text_of(completion), **task})
                places.append(place)
        # Read for each call: a run may get its id after the creation of the reward function.
        tags = dict.fromkeys([*self._settings.tags, *environment_tags()])
        options: RewardOptions = {**self._settings.options, "tags": list(tags)}
        if step is not None:
            options["step"] = step
        begun = time.perf_counter()
        self._begun += 1
        return Batch(self._begun, begun, submissions, places, unfit, options)

    def end(
        self,
        batch: Batch,
        answers: Sequence[Answer],
        trainer: Trainer,
        prompts: Sequence[Any] | None = None,
    ) -> list[float | None]:
        """Return the rewards in the order of the completions; print and log the call's summary.

        `prompts`, one for each completion, define siblings: neighbours with the same prompt. Raises
        RewardsUnavailable.
        """
        seconds = time.perf_counter() - batch.begun
        by_place = {**batch.unfit, **dict(zip(batch.places, answers, strict=True))}
        whole = [by_place[place] for place in range(len(by_place))]
        self._report(batch.number, whole, seconds)
        self._measure(metrics_of(whole, seconds), trainer)
        if trainer.log_extra is not None:
            trainer.log_extra(f"{self._settings.name}/verdict", [each.told for each in whole])
        return self._set_results(whole, trainer, prompts)

    def _measure(self, metrics: Mapping[str, float], trainer: Trainer) -> None:
        if trainer.log_metric is not None:
            for metric, value in metrics.items():
                trainer.log_metric(f"{self._settings.name}/{metric}", value)
        if trainer.log_metric is None or self._reporter.is_asked:
            known = {name: value for name, value in metrics.items() if not math.isnan(value)}
            self._reporter.report(known)

    def _report(self, number: int, answers: Sequence[Answer], seconds: float) -> None:
        if self._settings.say is not None:
            self._settings.say(line_of(number, answers, seconds))
        why = Counter(each.error for each in answers if each.error)
        for error, count in why.most_common(_TOLD_REASONS):
            message = "reward call %d: %d of %d could not be judged: %s"
            log.warning(message, number, count, len(answers), error)

    def _set_results(
        self, answers: Sequence[Answer], trainer: Trainer, prompts: Sequence[Any] | None
    ) -> list[float | None]:
        """Return the rewards in a form that the trainer reads as intended."""
        rewards = [each.reward for each in answers]
        missing, count = rewards.count(None), len(rewards)
        if not missing:
            return rewards
        why = next(each.error for each in answers if each.error)
        tolerable = self._settings.max_unavailable_share
        if tolerable is None:
            tolerable = 1.0 if trainer.masks else 0.5
        if missing / count > tolerable:
            raise RewardsUnavailable(f"{missing} of {count} could not be judged: {why}")
        if trainer.masks and not trainer.adds:
            return rewards
        rewards = _like_their_siblings(rewards, siblings(prompts, count))
        if trainer.masks:
            return rewards  # a group without rewards: this function adds nothing to any member
        # All members of a group without rewards get the same value, so their advantages are zero.
        rewards = _like_their_siblings(rewards, [range(count)])
        if None in rewards:
            raise RewardsUnavailable(f"none of {count} could be judged: {why}")
        return rewards


# ---------------------------------------------------------------- requests


def judge(client: Client, batch: Batch) -> list[Answer]:
    """Return an answer for each submission of the batch. Raises only fatal ProctorErrors."""
    return _ask(client, batch.submissions, batch.options)


async def judge_async(client: AsyncClient, batch: Batch) -> list[Answer]:
    """Async version of judge."""
    return await _ask_async(client, batch.submissions, batch.options)


def _ask(client: Client, submissions: Submissions, options: RewardOptions) -> list[Answer]:
    if not submissions:
        return []
    try:
        return [Answer.of(each) for each in client.reward(submissions, **options).results]
    except ProctorError as error:
        if is_mistake(error, client.has_answered):
            raise
        halves = _halves(submissions, options, error)
        if not halves:
            return [Answer.failed(error)] * len(submissions)
    return [answer for half in halves for answer in _ask(client, half, options)]


async def _ask_async(
    client: AsyncClient, submissions: Submissions, options: RewardOptions
) -> list[Answer]:
    if not submissions:
        return []
    try:
        answer = await client.reward(submissions, **options)
        return [Answer.of(each) for each in answer.results]
    except ProctorError as error:
        if is_mistake(error, client.has_answered):
            raise
        halves = _halves(submissions, options, error)
        if not halves:
            return [Answer.failed(error)] * len(submissions)
    return [answer for half in halves for answer in await _ask_async(client, half, options)]


def _halves(
    submissions: Submissions, options: RewardOptions, error: ProctorError
) -> list[Submissions]:
    """Return the halves to ask for instead, or nothing if splitting cannot help."""
    if not isinstance(error, InvalidRequestError) or len(submissions) < 2:
        return []
    if re.split(r"[.:]", error.message)[0] in options:
        return []  # a shared option is at fault
    middle = len(submissions) // 2
    return [submissions[:middle], submissions[middle:]]


# ---------------------------------------------------------------- completions and groups


def text_of(completion: Any) -> str:
    """Return a completion's text; for a list of messages, the last assistant message's text."""
    if not isinstance(completion, str):
        wrote = [each for each in completion if each.get("role") == "assistant"]
        content = wrote[-1].get("content") if wrote else None
        if not isinstance(content, str):
            parts = (part.get("text") for part in content or ())
            content = "".join(part for part in parts if isinstance(part, str))
        completion = content
    # A lone surrogate is replaced: it cannot be sent, but the completion must stay judgeable.
    return str(completion).encode("utf-8", "replace").decode()


def siblings(prompts: Sequence[Any] | None, count: int) -> list[range]:
    """Return the groups: neighbours with the same prompt. Without prompts, there is one group."""
    if prompts is None:
        return [range(count)]
    starts = [place for place in range(count) if not place or prompts[place] != prompts[place - 1]]
    return [range(begin, end) for begin, end in itertools.pairwise([*starts, count])]


def _like_their_siblings(
    rewards: Sequence[float | None], groups: Iterable[range]
) -> list[float | None]:
    """Return the rewards, with the group's mean for each missing reward if the group has a mean."""
    filled = list(rewards)
    for group in groups:
        scored = [reward for reward in (rewards[place] for place in group) if reward is not None]
        if scored:
            mean = math.fsum(scored) / len(scored)
            for place in group:
                filled[place] = mean if rewards[place] is None else rewards[place]
    return filled


def _check(settings: Settings) -> None:
    fields = {**settings.options, "tags": list(settings.tags), "submissions": [{"completion": ""}]}
    try:
        wire.RewardRequest.model_validate(fields)
    except ValidationError as error:
        raise from_validation(error) from None


def _nothing_of(row: Row) -> Mapping[str, Any]:
    return {}
