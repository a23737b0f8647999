"""Capacity and health of the service, and the body of its error responses."""

from __future__ import annotations

from pydantic import ConfigDict

from proctor_client.wire.base import RefusalReason, Response


class Capacity(Response):
    """Capacity and load of the service, for the choice of a batch size."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "slots": 3,
                    "busy": 2,
                    "queued": 120,
                    "max_queued": 20000,
                    "draining": False,
                    "recent_rewards_per_second": 187.5,
                    "fingerprint": "5d41402abc4b2a76b9719d911017c592",
                }
            ]
        }
    )

    slots: int
    busy: int
    queued: int
    max_queued: int
    draining: bool
    recent_rewards_per_second: float
    fingerprint: str | None = None


class Fingerprint(Response):
    """What verdicts of a replica depend on, beside the request: texts by part and name.

    Replicas judge for each other and share results only with the same `digest`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "digest": "5d41402abc4b2a76b9719d911017c592",
                    "parts": {"interpreter": {"version": "3.11.7"}, "packages": {"numpy": "2.1.0"}},
                }
            ]
        }
    )

    digest: str
    parts: dict[str, dict[str, str]]


class Health(Response):
    """Answer of /healthz and /readyz. `version`: of the service, with its commit; /healthz has it.

    `mismatched_peers`: other replicas with another fingerprint, each with the difference; of /readyz.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"status": "ok", "reason": None, "version": "0.2.0+abc1234"}]
        }
    )

    status: str
    reason: str | None = None
    version: str | None = None
    mismatched_peers: dict[str, str] | None = None


class Problem(Response):
    """Error of a request. `reason` is stable; `message` is for people."""

    reason: RefusalReason | str
    message: str
    retryable: bool = False
    retry_after_seconds: float | None = None


class ProblemBody(Response):
    """Body of every 4xx and 5xx."""

    error: Problem
