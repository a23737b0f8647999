"""The fault bench: rewards and rollouts through nginx while the replicas are treated badly.

`bench/faults.py` runs it in full, a test in small.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from policy_server import Act, Asked, calls, policy_server

from fault_rig.faults import Faults
from fault_rig.load import Score, Trainer, same_answers, work
from fault_rig.rig import TOKENS, Rig, rig

AT_ONCE = 24
SETTINGS = {"PROCTOR_MAX_QUEUED": "300", "PROCTOR_GRACE_SECONDS": "20"}
SOLUTION = "def f(x):\n    return x * x"


@dataclass(frozen=True)
class Result:
    """What was seen. `second` sent the same rewards with the same keys, without faults."""

    first: Score
    second: Score
    seconds: float
    faults: Counter[str]
    differences: list[str] = field(default_factory=list)


def play(asked: Asked) -> Act:
    """A policy that tries its code, and submits it."""
    if asked.turn == 0:
        return calls(("execute_code", {"code": f"{SOLUTION}\nprint(f(3))"}))
    return calls(("submit_solution", {"code": SOLUTION}))


def run(rewards: int, rollouts: int, faults: int) -> Result:
    """Runs it: so many submissions and rollouts, and at least so many faults."""
    with rig(SETTINGS) as room, policy_server(play) as server:
        policy = {"base_url": server.url, "model": "policy"}
        begun = time.monotonic()
        over = threading.Event()
        found: list[Score] = []

        def send() -> None:
            try:
                found.append(asyncio.run(_send(room, rewards, rollouts, policy)))
            finally:
                over.set()

        thread = threading.Thread(target=send)
        thread.start()
        plague = Faults(room, over)
        plague.all(faults)
        thread.join()
        seconds = time.monotonic() - begun
        second = asyncio.run(_send(room, rewards, 0, policy))
        [first] = found
        return Result(first, second, seconds, Counter(plague.done), same_answers(first, second))


async def _send(room: Rig, rewards: int, rollouts: int, policy: dict[str, str]) -> Score:
    trainer = Trainer(room.url, TOKENS["trainer"], AT_ONCE)
    async with trainer.client, asyncio.TaskGroup() as group:
        group.create_task(trainer.send_rollouts(rollouts, policy))
        group.create_task(trainer.send_rewards(work(rewards)))
    return trainer.score
