"""Fingerprints of the peers, compared with that of this replica.

Each peer is asked at the start, every 30 s, and when its /capacity has another digest than before. A
peer with another fingerprint, or of a version without fingerprints, gets no slice. The log has a line
for each change; /readyz and the metrics name the peers that differ at present.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

import httpx
from pydantic import ValidationError

from proctor_client.wire import Fingerprint
from proctor_service.features.replicas.forwarding import Question, Replicas
from proctor_service.rewards.fingerprint import differences

log = logging.getLogger(__name__)

CHECK_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.5
"""Pause after a check with peers that did not answer; doubled up to CHECK_SECONDS."""
ANSWER_SECONDS = 5.0
_OLD = "its version has no fingerprint"


class PeerFingerprints:
    """Which peers judge as this replica does. `headers`: of a request of any tenant."""

    def __init__(
        self, replicas: Replicas, own: Callable[[], Fingerprint], headers: Mapping[str, str]
    ) -> None:
        self._replicas = replicas
        self._own = own
        self._headers = headers
        self._digests: dict[str, str | None] = {}
        self._differences: dict[str, str] = {}  # empty for a peer with the same fingerprint
        self._check_now = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin, in the running loop."""
        self._runner = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._runner is not None:
            self._runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner

    def is_own(self, url: str, digest: str | None) -> bool:
        """Return True for the digest of this replica in the /capacity of a peer; None: it has none."""
        if digest != self._digests.get(url, ""):
            self._check_now.set()
        return digest == self._own().digest

    def mismatched(self) -> dict[str, str]:
        """Return in what each peer with another fingerprint differs, by its URL."""
        return {url: text for url, text in self._differences.items() if text}

    def by_peer(self) -> dict[str, float]:
        """Return 1 for each peer with another fingerprint, and 0 for each with the same."""
        return {url: float(bool(text)) for url, text in self._differences.items()}

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            self._check_now.clear()
            try:
                all_answered = await self._check_all()
            except Exception:
                log.exception("the fingerprints of the replicas were not compared")
                all_answered = False
            pause = CHECK_SECONDS if all_answered else min(2 * pause, CHECK_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._check_now.wait()
                    pause = FIRST_PAUSE_SECONDS
                    await asyncio.sleep(pause)  # at most two checks a second

    async def _check_all(self) -> bool:
        """Compare all peers; return True if all have answered."""
        urls = await self._replicas.others()
        for gone in self._differences.keys() - set(urls):
            self._forget(gone)
        return all(await asyncio.gather(*map(self._check, urls)))

    async def _check(self, url: str) -> bool:
        """Compare a peer; return False without an answer."""
        question = Question("GET", b"/fingerprint", self._headers)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                async with self._replicas.sent(url, question) as response:
                    body = await response.aread()
        except (httpx.ConnectError, httpx.ConnectTimeout):
            self._forget(url)  # the next one at this address may be another
            return False
        except (httpx.HTTPError, OSError, TimeoutError):
            return False  # too busy to answer
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            return False
        digest, text = self._compared(response.status_code, body)
        self._note(url, digest, text)
        return True

    def _compared(self, status: int, body: bytes) -> tuple[str | None, str]:
        """Return the digest in an answer to /fingerprint, and the difference as a text."""
        if status == httpx.codes.NOT_FOUND:
            return None, _OLD
        if status != httpx.codes.OK:
            return (
                None,
                f"it answers /fingerprint with the status {status}: are its tokens the same?",
            )
        try:
            found = Fingerprint.model_validate_json(body)
        except ValidationError:
            return None, "its answer to /fingerprint is none"
        own = self._own()
        if found.digest == own.digest:
            return found.digest, ""
        return found.digest, differences(found.parts, own.parts) or f"digest {found.digest}"

    def _note(self, url: str, digest: str | None, text: str) -> None:
        self._digests[url] = digest
        before = self._differences.get(url, "")
        self._differences[url] = text
        if text and text != before:
            what = "a replica may judge otherwise, so no slice goes there or comes from there"
            log.warning(what, extra={"replica": url, "difference": text})
        elif before and not text:
            log.info("a replica judges as this one again", extra={"replica": url})

    def _forget(self, url: str) -> None:
        self._digests.pop(url, None)
        self._differences.pop(url, None)
