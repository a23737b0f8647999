"""Substitutes of a missing reward, for trainers that need a number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from proctor_trainers.answers import Answer

OnUnjudged: TypeAlias = Literal["raise", "nan"]
"""`raise`: raise NotJudged, which ends the training. `nan`: return NaN instead of a reward."""
OnUnjudgedInBatch: TypeAlias = Literal["raise", "nan", "mean"]
"""Also `mean`: the mean reward of the completions of the same group; without any, `raise`."""


class NotJudged(BaseException):
    """Raised in a trainer without a form for a missing reward.

    The class derives from BaseException: several trainers catch Exception around a reward function
    and continue with a reward of 0.0, a lesson to the policy about a wrong answer.
    """


@contextmanager
def as_not_judged() -> Iterator[None]:
    """Raise NotJudged instead of another exception, for example about a wrong token or a missing column."""
    try:
        yield
    except Exception as error:
        raise NotJudged(f"{type(error).__name__}: {error}") from error


def number_of(answer: Answer, on_unjudged: OnUnjudged) -> float:
    """Return the reward. Raises NotJudged for an answer without one, or returns NaN."""
    if answer.reward is not None:
        return answer.reward
    if on_unjudged == "nan":
        return math.nan
    raise NotJudged(f"a completion could not be judged: {answer.error}")


def numbers_of(
    answers: Sequence[Answer], groups: Sequence[Hashable], on_unjudged: OnUnjudgedInBatch
) -> list[float]:
    """Return the rewards of a batch. `groups` has the group of each completion."""
    if on_unjudged != "mean":
        return [number_of(each, on_unjudged) for each in answers]
    scored = defaultdict(list)
    for answer, group in zip(answers, groups, strict=True):
        if answer.reward is not None:
            scored[group].append(answer.reward)
    return [
        math.fsum(scored[group]) / len(scored[group])
        if answer.reward is None and scored[group]
        else number_of(answer, "raise")
        for answer, group in zip(answers, groups, strict=True)
    ]
