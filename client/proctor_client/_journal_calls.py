"""Calls about the journal, each as a flow for a client's driver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypedDict, TypeVar
from urllib.parse import quote, urlencode

from proctor_client import wire
from proctor_client._answers import parse_model
from proctor_client._flow import Call, Flow, Policy, answer_flow
from proctor_client._requests import checked
from proctor_client._runtime import Clock
from proctor_client.errors import InvalidRequestError

M = TypeVar("M", bound=wire.Response)

# A replay is judged like a submission, with the service's default deadline and some grace.
REPLAY_SECONDS = 630.0


class EvaluationOptions(TypedDict, total=False):
    """Fields of wire.EvaluationQuery, with the model's defaults; all conditions hold."""

    job: str | None
    """Name of the training run."""
    step: int | None
    """Step of the training run."""
    task: str | None
    """The group of a submission, or the task of a rollout."""
    tag: str | None
    """One of the labels."""
    signal: str | None
    """One of the hack signals."""
    verdict: wire.Verdict | None
    """The verdict."""
    error: Literal["*"] | wire.ErrorReason | None
    """The reason of the error; `*` stands for any."""
    reward: float | None
    """Exactly this reward."""
    rollout_id: str | None
    """The rollout of the evaluation."""
    text: str | None
    """Words that all stand in the completion."""
    limit: int
    """Longest page, up to 500; default: 50."""
    cursor: str | None
    """The `next` of the page before."""


@dataclass(frozen=True)
class JournalCalls:
    """Builder of the flows."""

    policy: Policy
    clock: Clock

    def evaluations(self, options: EvaluationOptions) -> Flow[wire.EvaluationPage]:
        """Build the flow of GET /evaluations. Raises InvalidRequestError at once."""
        fields = {name: value for name, value in options.items() if value is not None}
        query = urlencode(wire.dump(checked(wire.EvaluationQuery, fields)), errors="replace")
        path = f"/evaluations?{query}" if query else "/evaluations"
        return self._get(path, wire.EvaluationPage)

    def evaluation(self, evaluation_id: str) -> Flow[wire.EvaluationDetail]:
        """Build the flow of GET /evaluations/{id}."""
        return self._get(f"/evaluations/{_part(evaluation_id)}", wire.EvaluationDetail)

    def replay(self, evaluation_id: str) -> Flow[wire.Replay]:
        """Build the flow of POST /evaluations/{id}/replay."""
        seconds = max(self.policy.timeout_seconds, REPLAY_SECONDS)
        call = Call("POST", f"/evaluations/{_part(evaluation_id)}/replay", seconds)
        return self._answer(call, wire.Replay)

    def rollout(self, rollout_id: str) -> Flow[wire.RolloutRecord]:
        """Build the flow of GET /rollouts/{id}."""
        return self._get(f"/rollouts/{_part(rollout_id)}", wire.RolloutRecord)

    def jobs(self) -> Flow[wire.JobList]:
        """Build the flow of GET /jobs."""
        return self._get("/jobs", wire.JobList)

    def job(self, name: str, by: Literal["step", "time"]) -> Flow[wire.JobSeries]:
        """Build the flow of GET /jobs/{job}. Raises InvalidRequestError at once."""
        query = urlencode(wire.dump(checked(wire.JobQuery, {"by": by})))
        return self._get(f"/jobs/{_part(name)}?{query}", wire.JobSeries)

    def _get(self, path: str, model: type[M]) -> Flow[M]:
        return self._answer(Call("GET", path, self.policy.timeout_seconds), model)

    def _answer(self, call: Call, model: type[M]) -> Flow[M]:
        return answer_flow(call, partial(parse_model, model), self.policy, self.clock)


def _part(name: str) -> str:
    """Return a part of a path. Raises InvalidRequestError for characters that a URL's path cannot hold."""
    if name in ("", ".", ".."):
        raise InvalidRequestError("an id or a name is wanted")
    return quote(name, safe="", errors="replace")
