"""Texts of completions, and groups of siblings: the completions of a prompt."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any


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
    """Return the groups: neighbours with the same prompt. Without prompts, all are a single group."""
    if prompts is None:
        return [range(count)]
    starts = [place for place in range(count) if not place or prompts[place] != prompts[place - 1]]
    return [range(begin, end) for begin, end in itertools.pairwise([*starts, count])]


def like_their_siblings(
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
