"""A trainer that sends rewards and rollouts, knows what each must come to, and never gives up.

What comes back with an error, and calls that fail after the client's own retries, it sends again, as
trainers do; both are counted. A right answer is a right reward: a fault that became a 0.0 is found here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from proctor_client import AsyncClient, ProctorError, wire

GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4", "assert f(3) == 9"]}
PROGRAMS: tuple[tuple[str, float], ...] = (
    ("def f(x):\n    return x * x\n# {}", 1.0),
    ("def f(x):\n    return x + 2\n# {}", 0.0),
    ("import time\ntime.sleep(0.02)\ndef f(x):\n    return x ** 2\n# {}", 1.0),
    ("def f(x):\n    raise ValueError({})", 0.0),
    ("total = sum(range(200_000))\ndef f(x):\n    return x * x + total * 0\n# {}", 1.0),
    ("I would say that it is {}.", 0.0),
    ("import os\nos._exit({} % 1)", 0.0),
)
SIZES = (1, 3, 10, 25, 50)
DEADLINE_SECONDS = 60.0
MOST_TIMES = 30
"""What was sent so often and was never judged is lost."""


@dataclass(frozen=True)
class Work:
    """One submission, and the reward that it is worth."""

    submission: dict[str, Any]
    reward: float


@dataclass
class Score:
    """What came of it all."""

    judged: int = 0
    rewards: Counter[float] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    failed_calls: Counter[str] = field(default_factory=Counter)
    evaluation_ids: list[str] = field(default_factory=list)
    first_answers: dict[int, wire.RewardResponse] = field(default_factory=dict)


class Keyed(httpx.AsyncBaseTransport):
    """Gives a request the key that its body stands for, so that a second run has the same keys."""

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=256))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends it on."""
        if "idempotency-key" in request.headers:
            body = await request.aread()
            request.headers["idempotency-key"] = hashlib.sha256(body).hexdigest()
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()


def work(count: int) -> list[Work]:
    """So many different submissions."""
    found = []
    for number in range(count):
        text, reward = PROGRAMS[number % len(PROGRAMS)]
        submission = {"id": str(number), "completion": text.format(number), "grader": GRADER}
        found.append(Work(submission, reward))
    return found


def batches(items: Sequence[Work]) -> list[list[Work]]:
    """The same in batches of many sizes."""
    found, begun, turn = [], 0, 0
    while begun < len(items):
        size = SIZES[turn % len(SIZES)]
        found.append(list(items[begun : begun + size]))
        begun, turn = begun + size, turn + 1
    return found


class Trainer:
    """Sends work to a service, so many requests at once."""

    def __init__(self, url: str, token: str, at_once: int) -> None:
        self.client = AsyncClient(url, token=token, transport=Keyed())
        self.score = Score()
        self._places = asyncio.Semaphore(at_once)

    async def send_rewards(self, items: Sequence[Work]) -> None:
        """Sends all of them, until each is judged."""
        async with asyncio.TaskGroup() as group:
            for number, batch in enumerate(batches(items)):
                group.create_task(self._until_judged(number, batch))

    async def send_rollouts(self, count: int, policy: dict[str, Any]) -> None:
        """So many trajectories, each a request."""
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(self._roll_out(number, policy))

    async def _until_judged(self, number: int, batch: list[Work]) -> None:
        for turn in range(MOST_TIMES):
            answer = await self._call(partial(self._rewards, number + turn, batch))
            if answer is None:
                continue
            if turn == 0:
                self.score.first_answers[number] = answer
            batch = [
                each
                for each, result in zip(batch, answer.results, strict=True)
                if not self._right(each, result)
            ]
            if not batch:
                return
        self.score.lost += len(batch)

    async def _rewards(self, number: int, batch: list[Work]) -> wire.RewardResponse:
        """A batch in one answer, or in lines: every other time."""
        submissions = [each.submission for each in batch]
        options: Any = {"deadline_seconds": DEADLINE_SECONDS, "cache": False, "job": "train"}
        options["step"] = number  # or small batches that wait together would be one request
        if number % 2:
            return await self.client.reward(submissions, **options)
        stream = self.client.reward_stream(submissions, **options)
        results = sorted([result async for result in stream], key=lambda result: result.index)
        return wire.RewardResponse(results=results, summary=stream.summary)

    def _right(self, item: Work, result: wire.Result) -> bool:
        """Notes a result; whether it is judged."""
        score = self.score
        if result.error is not None:
            score.errors[result.error.reason] += 1
            if result.reward is not None:
                score.wrong.append(f"{result.id}: an error with reward {result.reward}")
            return False
        score.judged += 1
        score.rewards[item.reward] += 1
        score.evaluation_ids.append(result.evaluation_id)
        if (result.id, result.reward) != (item.submission["id"], item.reward):
            score.wrong.append(
                f"{result.id}: {result.reward} and not {item.reward}; {result.verdict}"
            )
        return True

    async def _roll_out(self, number: int, policy: dict[str, Any]) -> None:
        task = {"id": str(number), "prompt": f"Write f, please: {number}", "grader": GRADER}
        agent = {"kind": "tools", "max_turns": 5}
        options: Any = {"agent": agent, "deadline_seconds": DEADLINE_SECONDS}
        play = partial(self.client.rollout, [task], policy=policy, **options)
        for _ in range(MOST_TIMES):
            answer = await self._call(play)
            if answer is None:
                continue
            [trajectory] = answer.trajectories
            if trajectory.error is None:
                self.score.judged += 1
                if trajectory.reward != 1.0:
                    self.score.wrong.append(f"rollout {number}: {trajectory.reward}")
                return
            self.score.errors[f"rollout: {trajectory.error.reason}"] += 1
        self.score.lost += 1

    async def _call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What a call brings; None, noted, when it failed for good."""
        async with self._places:
            try:
                return await call()
            except ProctorError as error:
                self.score.failed_calls[f"{type(error).__name__}: {error}"] += 1
                return None


def same_answers(first: Score, second: Score) -> list[str]:
    """Where two runs with the same keys differ, in what the first one knew."""
    found = []
    for number, one in first.first_answers.items():
        other = second.first_answers.get(number)
        if other is None:
            found.append(f"batch {number}: no answer the second time")
            continue
        for a, b in zip(one.results, other.results, strict=True):
            if a.error is None and (a.evaluation_id, a.reward, a.verdict) != (
                b.evaluation_id,
                b.reward,
                b.verdict,
            ):
                found.append(
                    f"{a.id}: {a.reward} {a.evaluation_id}, then {b.reward} {b.evaluation_id}"
                )
    return found
