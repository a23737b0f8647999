"""Core of every reward function: completions and columns in, `list[float | None]` out.

Each call sends a batched request. An unjudged item gets None. If the
trainer would read None as 0.0, the item gets the mean reward of its siblings, and a call without
any judged item raises RewardsUnavailable. A reward of 0.0 would teach the
policy to avoid its own action. Fatal errors, such as a wrong token, are raised at once: see
`mistakes`.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import ValidationError

from proctor_client import (
    AsyncClient,
    Client,
    RewardOptions,
    environment_tags,
    wire,
)
from proctor_client.errors import from_validation
from proctor_client.reporting import PREFIX, Reporter, session_metrics
from proctor_client.stats import Counts
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import BadTask, Row, TaskOf, fields_of
from proctor_trainers.answers import Answer, count_executions, line_of, metrics_of
from proctor_trainers.completions import like_their_siblings, siblings, text_of
from proctor_trainers.requests import Submissions, ask, ask_async

log = logging.getLogger("proctor_trainers")

_LISTED_REASONS = 3


class RewardsUnavailable(RuntimeError):
    """Raised when the share of unjudged items in a batch exceeds the limit."""


def say_line(line: str) -> None:
    """Print a whole line in a single write, and flush, also for files and parallel ranks."""
    print(f"{line}\n", end="", flush=True)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a reward function.

    `name` is the name of its metrics and columns: two functions in a trainer need two names.
    `task` maps a row to its judging fields. A call with a share of unjudged items above
    `max_unavailable_share` raises RewardsUnavailable; None means 1.0 (never) if the trainer masks
    None, else 0.5. `say` gets a line for each call; None prints nothing. `report_to` and
    `metrics_prefix` are for W&B, as in proctor_client.reporting; with None, metrics are reported
    there only if the trainer logs no metrics itself.
    """

    name: str = "proctor"
    task: TaskOf = task_from_row
    tags: Sequence[str] = ()
    max_unavailable_share: float | None = None
    say: Callable[[str], None] | None = say_line
    report_to: Sequence[str] | None = None
    metrics_prefix: str = PREFIX
    options: RewardOptions = field(default_factory=RewardOptions)


@dataclass(frozen=True, slots=True)
class Part:
    """The completions of a process, in a joint call of several processes.

    `error` is the reason of an unjudged completion; empty if all were judged.
    """

    prompts: Sequence[Any]
    rewards: Sequence[float | None]
    error: str


Gather: TypeAlias = Callable[[Part], tuple[Sequence[Part], int]]
"""Function that gives away this process's part of a call, and returns the parts of all processes
and the place of its own among them."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Behaviour of the trainer for the rewards of this call, and its log functions.

    `masks` is true if the trainer skips completions with None for every reward. `adds` is true if
    the trainer adds up the rewards of several functions, and so reads None as 0.0 if another
    function returned a number. `step` is the step of the training run; None if unknown. `gather` is
    for siblings on other processes. Each call then gathers once, also if its own items are all
    judged: the other processes wait for its part.
    """

    masks: bool = True
    adds: bool = False
    step: int | None = None
    log_metric: Callable[[str, float], None] | None = None
    log_extra: Callable[[str, list[Any]], None] | None = None
    gather: Gather | None = None


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
    """The calls of a reward function, without I/O: `begin`, then `judge`, then `end`.

    Raises InvalidRequestError for options that are invalid in every request.
    """

    def __init__(self, settings: Settings) -> None:
        _check(settings)
        self._settings = settings
        self._begun = 0
        self._reporter = Reporter(settings.report_to, settings.metrics_prefix)
        self._counts = Counts()
        self._counted_row: int | None = None
        self._task = settings.task
        if settings.options.get("grader") is not None and settings.task is task_from_row:
            self._task = _nothing_of

    def begin(
        self,
        completions: Sequence[Any],
        columns: Mapping[str, Sequence[Any]],
        step: int | None = None,
    ) -> Batch:
        """Build the request of a call.

        `completions` are texts, or lists of messages, of which the last assistant message counts.
        Each of `columns` has a value for each completion. `step` is the step of the training
        run, for the service's journal. Raises MissingColumns without a column for the judging, and
        ValueError for a column of another length.
        """
        for name, column in columns.items():
            if len(column) != len(completions):
                raise ValueError(f"column {name}: {len(column)} values, not {len(completions)}")
        submissions, places = [], []
        unfit: dict[int, Answer] = {}
        for place, completion in enumerate(completions):
            row = {name: column[place] for name, column in columns.items()}
            made = self.submission_of(completion, row)
            if isinstance(made, Answer):
                unfit[place] = made
            else:
                submissions.append(made)
                places.append(place)
        begun = time.perf_counter()
        options = self.options_at(step)
        return Batch(self.next_number(), begun, submissions, places, unfit, options)

    def submission_of(
        self, completion: Any, row: Row, group: str | None = None
    ) -> Mapping[str, Any] | Answer:
        """Return the submission of a completion, or the answer for an unusable row.

        Raises MissingColumns without a column for the judging.
        """
        try:
            task = fields_of(self._task(row))
        except BadTask as error:
            return Answer.unjudged("invalid_task", str(error))
        grouped = {} if group is None else {"group": group}
        return {"completion": text_of(completion), **grouped, **task}

    def options_at(self, step: int | None) -> RewardOptions:
        """Return the options of a request at this step of the training run; None: unknown."""
        # Read for each call: a run may get its id after the creation of the reward function.
        tags = dict.fromkeys([*self._settings.tags, *environment_tags()])
        options: RewardOptions = {**self._settings.options, "tags": list(tags)}
        if step is not None:
            options["step"] = step
        return options

    def next_number(self) -> int:
        """Return the number of a new call, from 1."""
        self._begun += 1
        return self._begun

    def end(
        self,
        batch: Batch,
        answers: Sequence[Answer],
        trainer: Trainer,
        prompts: Sequence[Any] | None = None,
    ) -> list[float | None]:
        """Return the rewards in the order of the completions; print and log the call's summary.

        `prompts`, a prompt for each completion, define siblings: neighbours with the same prompt. Raises
        RewardsUnavailable, in all processes of a call with `Trainer.gather`.
        """
        seconds = time.perf_counter() - batch.begun
        by_place = {**batch.unfit, **dict(zip(batch.places, answers, strict=True))}
        whole = [by_place[place] for place in range(len(by_place))]
        self.summarize(batch.number, whole, seconds, trainer)
        return self._set_results(whole, trainer, prompts)

    def summarize(
        self, number: int, answers: Sequence[Answer], seconds: float, trainer: Trainer
    ) -> None:
        """Print a call's summary, log its metrics, and warn of unjudged completions."""
        self._report(number, answers, seconds)
        self._measure(metrics_of(answers, seconds), self._executions(number, answers), trainer)
        if trainer.log_extra is not None:
            trainer.log_extra(
                f"{self._settings.name}/verdict", [each.verdict_text for each in answers]
            )

    def _measure(
        self, metrics: Mapping[str, float], executions: Mapping[str, float], trainer: Trainer
    ) -> None:
        judged = {name: value for name, value in metrics.items() if not math.isnan(value)}
        if trainer.log_metric is not None:
            for metric, value in metrics.items():
                trainer.log_metric(f"{self._settings.name}/{metric}", value)
            if not self._reporter.is_asked:
                judged = {}
        self._reporter.report({**judged, **executions})

    def _executions(self, number: int, answers: Sequence[Answer]) -> dict[str, float]:
        """Return the counts of all calls of the active W&B run's open row."""
        row = self._reporter.open_row()
        if row is None or row != self._counted_row:
            self._counts.reset()
            self._counted_row = row
        count_executions(self._counts, number, answers)
        return session_metrics(self._counts.stats())

    def _report(self, number: int, answers: Sequence[Answer], seconds: float) -> None:
        if self._settings.say is not None:
            self._settings.say(line_of(number, answers, seconds))
        why = Counter(each.error for each in answers if each.error)
        for error, count in why.most_common(_LISTED_REASONS):
            message = "reward call %d: %d of %d could not be judged: %s"
            log.warning(message, number, count, len(answers), error)

    def _set_results(
        self, answers: Sequence[Answer], trainer: Trainer, prompts: Sequence[Any] | None
    ) -> list[float | None]:
        """Return the rewards in the form of the trainer."""
        rewards = [each.reward for each in answers]
        error = next((each.error for each in answers if each.error), "")
        mine = Part([None] * len(rewards) if prompts is None else prompts, rewards, error)
        parts, place = ([mine], 0) if trainer.gather is None else trainer.gather(mine)
        # From the parts of all processes, so that either all of them return or all raise.
        filled = self._fill(parts, trainer)
        begin = sum(len(each.rewards) for each in parts[:place])
        return filled[begin : begin + len(rewards)]

    def _fill(self, parts: Sequence[Part], trainer: Trainer) -> list[float | None]:
        """Return the rewards of all parts, with the mean of the siblings for an unjudged item."""
        rewards = [reward for part in parts for reward in part.rewards]
        missing, count = rewards.count(None), len(rewards)
        if not missing:
            return rewards
        why = next(part.error for part in parts if part.error)
        tolerable = self._settings.max_unavailable_share
        if tolerable is None:
            tolerable = 1.0 if trainer.masks else 0.5
        if missing / count > tolerable:
            raise RewardsUnavailable(f"{missing} of {count} could not be judged: {why}")
        if trainer.masks and not trainer.adds:
            return rewards
        prompts = [prompt for part in parts for prompt in part.prompts]
        rewards = like_their_siblings(rewards, siblings(prompts, count))
        if trainer.masks:
            return rewards  # a group without rewards: this function adds nothing to any member
        # All members of a group without rewards get the same value, so their advantages are zero.
        rewards = like_their_siblings(rewards, [range(count)])
        if None in rewards:
            raise RewardsUnavailable(f"none of {count} could be judged: {why}")
        return rewards


def judge(client: Client, batch: Batch) -> list[Answer]:
    """Return an answer for each submission of the batch. Raises only fatal ProctorErrors."""
    return ask(client, batch.submissions, batch.options)


async def judge_async(client: AsyncClient, batch: Batch) -> list[Answer]:
    """Async version of judge."""
    return await ask_async(client, batch.submissions, batch.options)


def _check(settings: Settings) -> None:
    fields = {**settings.options, "tags": list(settings.tags), "submissions": [{"completion": ""}]}
    try:
        wire.RewardRequest.model_validate(fields)
    except ValidationError as error:
        raise from_validation(error, wire.RewardRequest) from None


def _nothing_of(row: Row) -> Mapping[str, Any]:
    return {}
