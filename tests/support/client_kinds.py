"""The same calls by the client for threads and by the one for event loops."""

from __future__ import annotations

from typing import Any

from client_blocking import Kind, a_client

from proctor_client import ProctorError
from proctor_client.testing import FakeClock

SUBMISSIONS = ["a", "b", "c"]


def in_either(kind: Kind, url: str, clock: FakeClock, calls: list[str]) -> list[Any]:
    """What the calls give, one after the other, or the ProctorErrors that they raise."""
    found: list[Any] = []
    with a_client(kind, url, clock=clock) as client:
        for call in calls:
            try:
                if call == "stream":
                    found.append([each.index for each in client.reward_stream(SUBMISSIONS)])
                elif call == "exec":
                    found.append(client.attach("sb_1").exec(["ls"]))
                else:
                    found.append(client.reward(SUBMISSIONS))
            except ProctorError as error:
                found.append(error)
    return found
