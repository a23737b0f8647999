"""The same calls by the client for threads and by the one for event loops."""

from __future__ import annotations

import asyncio
from typing import Any

from client_blocking import Kind

from proctor_client import AsyncClient, Client, ProctorError
from proctor_client.testing import FakeClock

SUBMISSIONS = ["a", "b", "c"]


def in_either(kind: Kind, url: str, clock: FakeClock, calls: list[str]) -> list[Any]:
    """What the calls give, one after the other, or the ProctorErrors that they raise."""
    found: list[Any] = []

    async def in_a_loop() -> None:
        async with AsyncClient(url, clock=clock) as client:
            for call in calls:
                try:
                    if call == "stream":
                        stream = client.reward_stream(SUBMISSIONS)
                        found.append([each.index async for each in stream])
                    elif call == "exec":
                        found.append(await client.attach("sb_1").exec(["ls"]))
                    else:
                        found.append(await client.reward(SUBMISSIONS))
                except ProctorError as error:
                    found.append(error)

    if kind == "loops":
        asyncio.run(in_a_loop())
        return found
    with Client(url, clock=clock) as client:
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
