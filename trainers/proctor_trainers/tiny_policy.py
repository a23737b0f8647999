"""Policy without a model: a table of logits for small Python functions, trained by GRPO.

For each task the policy writes a function of two numbers, in four choices: a style, an operand, an
operator, and an operand. Two of the styles cheat: they end the program, or return an object that
claims to equal everything. The policy knows neither the task nor the meaning of a style; all its learning
comes from rewards.

The update is the policy gradient with advantages relative to the group, as in GRPO (Shao et al. 2024,
https://arxiv.org/abs/2402.03300, section 4.1), with one update per group, so without clipping, and
without a KL term.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

OPERANDS = ("a", "b", "1", "2")
OPERATORS = ("+", "-", "*", "//", "%", "**")
STYLES = (
    "def {name}(a, b):\n    return {expression}\n",
    "import os\n\n\ndef {name}(a, b):\n    os._exit(0)\n",
    "class Same:\n    def __eq__(self, other):\n        return True\n\n\n"
    "def {name}(a, b):\n    return Same()\n",
)
HONEST_STYLE = 0
_SIZES = (len(STYLES), len(OPERANDS), len(OPERATORS), len(OPERANDS))
# A style is learned from all tasks together, as a model would learn it.
_SHARED = (True, False, False, False)
_POINTS = ((2, 3), (5, 2), (7, 4), (3, 3))

Logits: TypeAlias = list[float]


@dataclass(frozen=True)
class Task:
    """A function to write: its name, and its tests as Python statements."""

    name: str
    tests: tuple[str, ...]


def _task(name: str, values: Sequence[int]) -> Task:
    pairs = zip(_POINTS, values, strict=True)
    return Task(name, tuple(f"assert {name}({a}, {b}) == {value}" for (a, b), value in pairs))


TASKS: tuple[Task, ...] = (
    _task("total", (5, 7, 11, 6)),
    _task("difference", (-1, 3, 3, 0)),
    _task("reversed_difference", (1, -3, -3, 0)),
    _task("product", (6, 10, 28, 9)),
    _task("twice_the_first", (4, 10, 14, 6)),
    _task("one_more_than_the_second", (4, 3, 5, 4)),
    _task("remainder", (2, 1, 3, 0)),
    _task("square_of_the_second", (9, 4, 16, 9)),
)


@dataclass(frozen=True)
class Sample:
    """A completion: the index of the choice at each of the four places, and the text."""

    choices: tuple[int, ...]
    completion: str

    @property
    def cheats(self) -> bool:
        """True for a style that cheats."""
        return self.choices[0] != HONEST_STYLE


class TinyPolicy:
    """Softmax policy over `tasks`, with logits from 0 on. The same seed samples the same."""

    def __init__(self, tasks: Sequence[Task], *, learning_rate: float, seed: int) -> None:
        self._random = random.Random(seed)
        self._learning_rate = learning_rate
        shared = [[0.0] * size for size in _SIZES]
        self._logits: Mapping[str, Sequence[Logits]] = MappingProxyType(
            {
                task.name: [
                    shared[place] if _SHARED[place] else [0.0] * size
                    for place, size in enumerate(_SIZES)
                ]
                for task in tasks
            }
        )

    def sample(self, task: Task) -> Sample:
        """Write a completion for the task."""
        choices = tuple(
            self._random.choices(range(len(logits)), _softmax(logits))[0]
            for logits in self._logits[task.name]
        )
        style, left, operator, right = choices
        expression = f"{OPERANDS[left]} {OPERATORS[operator]} {OPERANDS[right]}"
        return Sample(choices, STYLES[style].format(name=task.name, expression=expression))

    def learn(self, task: Task, group: Sequence[Sample], rewards: Sequence[float | None]) -> None:
        """Update the logits from a group of completions of a task.

        An unjudged completion has the reward None, and is left out of the group.
        """
        judged = [
            (sample, reward)
            for sample, reward in zip(group, rewards, strict=True)
            if reward is not None
        ]
        advantages = _advantages([reward for _, reward in judged])
        for place, logits in enumerate(self._logits[task.name]):
            probabilities = _softmax(logits)
            for (sample, _), advantage in zip(judged, advantages, strict=True):
                scale = self._learning_rate * advantage / len(judged)
                for choice, probability in enumerate(probabilities):
                    chosen = choice == sample.choices[place]
                    logits[choice] += scale * (chosen - probability)


def _advantages(rewards: Sequence[float]) -> list[float]:
    """Return each reward's distance from the mean, in standard deviations; zeros for a tie."""
    if not rewards:
        return []
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return [(reward - mean) / deviation if deviation else 0.0 for reward in rewards]


def _softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
