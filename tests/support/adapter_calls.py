"""Completions for the tests of the adapters: 64 that are right, and 64 that are wrong."""

from __future__ import annotations

from dataclasses import dataclass

DOWN = "http://127.0.0.1:9"
"""An address at which no service listens."""


@dataclass(frozen=True)
class Case:
    """A prompt with its tests, a completion for it, and the reward that it earns."""

    prompt: str
    completion: str
    tests: list[str]
    reward: float


def cases(count: int = 128) -> list[Case]:
    """Completions of different programs: every other one is right."""
    return [_case(number, number % 2 == 0) for number in range(count)]


def _case(number: int, is_right: bool) -> Case:
    returned = f"n + {number}" if is_right else f"n - {number} - 1"
    return Case(
        prompt=f"Write add_{number}(n), which adds {number}.",
        completion=f"Here it is:\n```python\ndef add_{number}(n):\n    return {returned}\n```\n",
        tests=[f"assert add_{number}(1) == {number + 1}", f"assert add_{number}(0) == {number}"],
        reward=float(is_right),
    )
