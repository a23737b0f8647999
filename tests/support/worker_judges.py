"""A judge process with a scripted judge: `python worker_judges.py`, started by a `Pool`.

What the judge does stands in the submission: its source is a word.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from scripted_sandboxes import FakeBackend

from proctor_service.errors import InvalidTask, SandboxLost, StartError
from proctor_service.evaluate import Judge
from proctor_service.features.replicas.judge_processes.process import run
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.environments import Environments
from proctor_service.sandbox.interface import Backend, Sandboxes, Traits, Usage
from proctor_service.settings import Settings, Share

MEBIBYTE = 1 << 20


left: list[bytearray] = []
"""Memory that submissions have left."""


class Unsendable(str):
    """A text that no message can hold."""


def die_once(mark: Path) -> None:
    """Kill this process, unless the mark shows that it has happened."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def judge(submission: Submission, backend: Sandboxes) -> Judgement:
    """Do what the source says."""
    word, _, rest = submission.source.partition(" ")
    match word:
        case "burn":
            end = time.process_time() + float(rest)
            while time.process_time() < end:
                pass
        case "grow":
            held = bytearray(int(rest) * MEBIBYTE)
            await asyncio.sleep(60)
            del held
        case "leave":
            left.append(bytearray(int(rest) * MEBIBYTE))
            await asyncio.sleep(1)
        case "unsendable":
            return Judgement("passed", 1, 1, message=Unsendable("x"))
        case "cancelled":
            raise asyncio.CancelledError
        case "crash":
            os.abort()
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "killed-once":
            die_once(Path(rest))
        case "sleep":
            await asyncio.sleep(float(rest))
        case "lost":
            raise SandboxLost("as the test wants it")
        case "broken":
            raise InvalidTask("the tests are broken")
        case "bug":
            raise ZeroDivisionError("a bug")
        case "pid":
            return Judgement("passed", 1, 1, message=str(os.getpid()))
    return Judgement("passed", 1, 1, message=submission.source, usage=Usage(wall_seconds=0.001))


class SlowToEnd(FakeBackend):
    """Backend that needs a second for its end."""

    async def close(self) -> None:
        """Close it, late."""
        await asyncio.sleep(1)


def build(settings: Settings, share: Share, environments: Environments) -> tuple[Judge, Backend]:
    """Return the scripted judge, and scripted sandboxes."""
    if settings.aviato_image == "refuse":
        raise StartError("as the test wants it")
    if settings.aviato_image == "slow to end":
        return judge, SlowToEnd(Traits("scripted"))
    return judge, FakeBackend(Traits("scripted"))


if __name__ == "__main__":
    run(build, sys.argv[1:])
