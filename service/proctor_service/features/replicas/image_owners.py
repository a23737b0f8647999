"""Images by name in a fleet: each belongs to few replicas, and its submissions go where it is.

Owners are found by rendezvous hashing of the image's name and the replicas' URLs (Thaler and Ravishankar,
1998): when a replica goes, only its images move. A replica that owns an image judges by itself. Another one
hands the submission over as an ordinary request, marked as forwarded, so that an owner never hands it on. A
replica judges by itself, too, when the owners' queues stay full for long, or when they refuse.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal

import httpx

from proctor_service.errors import Draining, InvalidTask, SandboxLost
from proctor_service.features.replicas.forwarding import Question, Replicas
from proctor_service.features.replicas.reward_slices import RewardSlices
from proctor_service.features.replicas.slices import lines_of
from proctor_service.outcomes import Item, NoCode, Outcome

log = logging.getLogger(__name__)

FULL_SECONDS = 30.0
"""For this time submissions wait for owners with full queues."""
_ASK_AGAIN_SECONDS = 1.0
_GONE_SECONDS = 5.0
"""For this time an owner that does not answer counts as gone."""

_Answer = Outcome | InvalidTask | Literal["full", "gone", "refused"]


def owners_of(image: str, urls: Sequence[str], count: int) -> list[str]:
    """Return the URLs of the replicas that own an image, so many at most."""

    def weight(url: str) -> bytes:
        return hashlib.sha256(f"{url}\n{image}".encode()).digest()

    return sorted(urls, key=weight)[:count]


class ImageOwners:
    """Hands submissions in images by name to the owners of these images.

    `spread`: owners of each image. `image_in`: returns the image by name of an environment.
    """

    def __init__(
        self,
        replicas: Replicas,
        slices: RewardSlices,
        spread: int,
        image_in: Callable[[str], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replicas = replicas
        self._slices = slices
        self._spread = spread
        self._image_in = image_in
        self._clock = clock
        self._gone: dict[str, float] = {}

    async def judged(self, item: Item) -> Outcome | None:
        """Return the outcome from an owner; None: this replica judges. Raises InvalidTask."""
        submission, own = item.submission, self._replicas.identity.url
        image = None if isinstance(submission, NoCode) else self._image_in(submission.environment)
        if image is None or not own:
            return None
        until = self._clock() + FULL_SECONDS
        while True:
            now = self._clock()
            others = await self._replicas.others()
            present = [url for url in others if self._gone.get(url, now) <= now]
            owners = owners_of(image, [own, *present], self._spread)
            if own in owners:
                return None
            first = int(item.evaluation_id[-4:], 16) % len(owners)  # all owners have a share
            for url in (*owners[first:], *owners[:first]):
                answer = await self._ask(url, item)
                if isinstance(answer, Outcome):
                    return answer
                if isinstance(answer, InvalidTask):
                    raise answer
                if answer == "refused":
                    return None
                if answer == "gone":
                    self._gone[url] = self._clock() + _GONE_SECONDS
                    break
            else:
                if self._clock() > until:
                    return None
                await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def _ask(self, url: str, item: Item) -> _Answer:
        packed = await self._slices.pack([item])
        if not packed.count:
            return "refused"
        question = Question("POST", b"/reward", packed.headers, packed.body)
        try:
            async with self._replicas.ask(url, question) as response:
                if response.status_code in (
                    httpx.codes.TOO_MANY_REQUESTS,
                    httpx.codes.SERVICE_UNAVAILABLE,
                ):
                    return "full"
                if response.status_code != httpx.codes.OK:
                    extra = {"replica": url, "status": response.status_code}
                    log.warning("an owner of an image refuses a submission", extra=extra)
                    return "refused"
                async for lines in lines_of(response):
                    for line in lines:
                        index, outcome = self._slices.unpack(line, [item])
                        if index == 0:
                            return "refused" if outcome is None else outcome
        except (SandboxLost, ValueError):
            return "gone"
        except Draining:
            return "refused"
        return "gone"
