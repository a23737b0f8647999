"""Slices of a batch on their way to a peer and back: items to a request, lines to outcomes.

A slice is an ordinary request to /reward, with the token of its tenant: the peer applies the rules
and limits of any request. The peer's answer is checked: a line unfit for its item counts as lost,
and the item is judged here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ValidationError

from proctor_client.wire import Result, long_integers
from proctor_service.errors import InvalidTask
from proctor_service.evaluate import reward
from proctor_service.features.replicas.slices import Packed
from proctor_service.http.body import FINGERPRINT
from proctor_service.http.responses import NDJSON
from proctor_service.judge.submission import Submission
from proctor_service.outcomes import Item, NoCode, Outcome
from proctor_service.rewards.results import judgement_of
from proctor_service.sandbox.interface import DEFAULT, Limits
from proctor_service.scheduling.pacer import Pacer

LARGEST_ITEM_BYTES = 1 << 20
"""Approximate size of an item; to send a larger item would block other work for long."""
LARGEST_SLICE_BYTES = 4 << 20
NODE_BYTES = 16
LEAST_DEADLINE_SECONDS = 0.001
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class RewardSlices:
    """Codec of slices: requests to /reward and their lines.

    `tokens`: by tenant, may be empty. `fingerprint`: digest of this replica's fingerprint.
    """

    def __init__(
        self,
        tokens: Mapping[str, str],
        fingerprint: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._fingerprint = fingerprint
        self._clock = clock

    def headers(self, item: Item) -> dict[str, str]:
        """Return the headers of a request of the item's tenant."""
        headers = {"traceparent": item.traceparent} if item.traceparent else {}
        token = self._tokens.get(item.tenant)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return headers

    def alike(self, one: Item, other: Item) -> bool:
        """Return True if both items, of the same job, may go in the same request."""
        return one.tags == other.tags

    def patience_seconds(self, item: Item) -> float:
        """Return the CPU seconds of the item at a peer, at most."""
        assert isinstance(item.submission, Submission), "there is something to judge"
        return item.submission.limits.cpu_seconds

    async def pack(self, items: Sequence[Item]) -> Packed:
        """Return the request for the first of these items, as many as fit.

        Packed.count is 0 if the first item alone is too large.
        """
        pacer = Pacer()
        sizes = _Sizes()
        first = items[0]
        shared = _submission(first)
        pieces: list[bytes] = []
        room = LARGEST_SLICE_BYTES
        for item in items:
            await pacer.pause()
            submission = _submission(item)
            size = sizes.bytes_of(submission)
            room -= size
            if room < 0 or size > LARGEST_ITEM_BYTES:
                break
            pieces.append(_dump(_submission_body(submission, shared)))
        if not pieces:
            return Packed({}, b"", 0)
        head = {
            "grader": _model(shared.grader),
            "limits": _limits(shared.limits),
            "extract": "none",
            "tags": list(first.tags),
            "job": first.job,
            "priority": first.priority,
            "deadline_seconds": max(
                max(item.deadline for item in items) - self._clock(), LEAST_DEADLINE_SECONDS
            ),
            "cache": False,
        }
        if shared.environment != DEFAULT:  # alone in its request
            head["environment"] = {"image": shared.environment}
        body = b'%s,"submissions":[%s]}' % (_dump(head)[:-1], b",".join(pieces))
        headers = {
            **self.headers(first),
            FINGERPRINT: self._fingerprint(),
            "accept": NDJSON,
            "content-type": "application/json",
        }
        return Packed(headers, body, len(pieces))

    def unpack(
        self, line: bytes, items: Sequence[Item]
    ) -> tuple[int, Outcome | InvalidTask | None]:
        """Return the index of a line's item and its outcome, or None to judge the item here.

        The summary has the index -1. Raises ValueError for a line without an item.
        """
        found = json.loads(line)
        if isinstance(found, dict) and "summary" in found:
            return -1, None
        try:
            result = Result.model_validate(found)
        except ValidationError as error:
            raise ValueError("not a result") from error
        if not 0 <= result.index < len(items):
            raise ValueError("not a result of an item")
        if result.error is not None:
            broken = result.error.reason == InvalidTask.reason and not result.error.retryable
            return result.index, InvalidTask(result.error.message) if broken else None
        submission = _submission(items[result.index])
        judgement = judgement_of(result, submission.scoring)
        if (
            judgement is None
            or judgement.verdict == "no_code"
            or result.reward != reward(judgement, submission)
        ):
            return result.index, None
        seconds = result.usage.queue_seconds
        degraded = tuple(result.degraded)
        return result.index, Outcome(judgement, result.reward, None, seconds, "miss", degraded)


class _Sizes:
    """Approximate sizes of submissions in bytes, counted up to the limit of an item."""

    def __init__(self) -> None:
        self._graders: dict[int, int] = {}

    def bytes_of(self, submission: Submission) -> int:
        grader = submission.grader
        size = self._graders.get(id(grader))
        if size is None:
            size = self._graders[id(grader)] = _bytes_within(grader, LARGEST_ITEM_BYTES + 1)
        left = LARGEST_ITEM_BYTES + 1 - size - len(submission.source)
        return size + len(submission.source) + _bytes_within(submission.files, left)


def _bytes_within(value: object, most: int) -> int:
    """Return the approximate size of a value in JSON; stop counting above `most`."""
    size = 0
    rest: list[Iterator[object]] = [iter((value,))]
    while rest and size <= most:
        each = next(rest[-1], rest)
        if each is rest:
            rest.pop()
            continue
        size += NODE_BYTES
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, int):
            size += each.bit_length() // 3
        elif isinstance(each, BaseModel):
            rest.append(iter(vars(each).values()))
        elif isinstance(each, Mapping):
            rest.append(iter(tuple(each.keys())))
            rest.append(iter(each.values()))
        elif isinstance(each, list | tuple):
            rest.append(iter(each))
    return size


def _submission(item: Item) -> Submission:
    assert not isinstance(item.submission, NoCode), "there is something to judge"
    return item.submission


def _submission_body(submission: Submission, shared: Submission) -> dict[str, Any]:
    body: dict[str, Any] = {"completion": submission.source, "scoring": submission.scoring}
    if submission.grader is not shared.grader:
        body["grader"] = _model(submission.grader)
    if submission.limits is not shared.limits:
        body["limits"] = _limits(submission.limits)
    if submission.negative_control != "signal":
        body["negative_control"] = submission.negative_control
    if submission.compiler is not None:
        body["compiler"] = _model(submission.compiler)
    if submission.language != "python":
        body["language"] = submission.language
    if submission.files:
        body["files"] = dict(submission.files)
    return body


def _limits(limits: Limits) -> dict[str, Any]:
    """Return the limits with a value: an older peer may lack a field."""
    return {name: value for name, value in asdict(limits).items() if value is not None}


def _model(model: BaseModel) -> dict[str, Any]:
    # Python's own values: another mode would lose NaN and lone surrogates.
    return model.model_dump()


def _dump(body: dict[str, Any]) -> bytes:
    return long_integers.dumps(body, _ENCODER).encode("ascii")
