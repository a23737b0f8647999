"""`--dry-run`: checks the parts of a training with a rollout, without training; a line per check.

The script leaves calls of the policy to the service, which may reach hosts that
are unreachable from this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from proctor_client import ProctorError
from proctor_client.tasks.task import DatasetError
from proctor_trainers.addresses import Unreachable, check_service, client_for
from proctor_trainers.art.arguments import Job
from proctor_trainers.art.backends import MissingKey, check_backend, set_tinker_key
from proctor_trainers.art.policies import Endpoint
from proctor_trainers.art.rollouts import Order
from proctor_trainers.art.trajectories import trajectory_of
from proctor_trainers.extras import MissingExtra
from proctor_trainers.problems import Problem

T = TypeVar("T")

MISTAKES = (DatasetError, MissingExtra, MissingKey, ProctorError, Unreachable)


class Unfit(RuntimeError):
    """Raised for a rollout unusable for training; the message gives a remedy."""


class Checks:
    """Prints each finished check, and records if all checks passed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.all_well = True
        self._say = say

    def check(self, name: str, work: Callable[[], tuple[T, str]]) -> T | None:
        """Run `work`, print its text, and return its value; None if the check fails."""
        try:
            value, text = work()
        except (*MISTAKES, Unfit) as error:
            self.all_well = False
            self._say(f"FAILED  {name}: {error}")
            return None
        self._say(f"ok      {name}: {text}")
        return value

    def skip(self, name: str, why: str) -> None:
        """Print a line for a skipped check."""
        self._say(f"-       {name}: not checked, {why}")


def dry_run(job: Job, order: Order, say: Callable[[str], None] = print) -> bool:
    """Run all checks. Returns True if all of them passed."""
    args = job.args
    checks = Checks(say)
    endpoint = checks.check("keys", lambda: _keys(job))
    checks.check("backend", lambda: (True, check_backend(args.backend)))
    problems = checks.check("problems", lambda: _problems(job))
    service = checks.check("service", lambda: _service(args.service_url))
    if not (endpoint and problems and service):
        checks.skip("policy and rollout", "which needs a key, a problem and the service")
        return False
    name = f"policy {endpoint.model} at {endpoint.base_url}"

    def roll_out() -> tuple[bool, str]:
        return True, _roll_out(args.service_url, order, problems[0], endpoint)

    if job.is_served_by_backend(endpoint):
        checks.skip(
            name, f"nothing listens there: --backend {args.backend} serves it, once it trains"
        )
    else:
        checks.check(name, roll_out)
    return checks.all_well


def _keys(job: Job) -> tuple[Endpoint, str]:
    endpoint = job.endpoint()
    names = [endpoint.key_name] if endpoint.key_name else []
    if job.args.backend == "tinker":
        names.append(set_tinker_key())
    return endpoint, ", ".join(names) or "none is needed"


def _problems(job: Job) -> tuple[list[Problem], str]:
    problems = job.problems()
    return problems, f"{len(problems)} of {job.args.dataset}"


def _service(url: str | None) -> tuple[bool, str]:
    check_service(url)
    return True, "it answers, and lets us in"


def _roll_out(url: str | None, order: Order, problem: Problem, endpoint: Endpoint) -> str:
    """Return a short description of a rollout. Raises Unfit and ProctorError."""
    task = problem.rollout_task()
    with client_for(url, retry_seconds=0.0) as client:
        answer = client.rollout([task], policy=endpoint.policy(), **order.of(problem))
    [trajectory] = answer.trajectories
    error = trajectory.error
    if error is not None and error.reason == "policy_unavailable":
        raise Unfit(
            f"it gives no answer: {error.message}\n"
            f"start one with: vllm serve {endpoint.model} --enable-auto-tool-choice "
            "--tool-call-parser hermes\n"
            "or give another address with --base-url"
        )
    if error is not None:
        raise Unfit(f"{error.reason}: {error.message}")
    trajectory_of(trajectory)
    tokens = sum(map(_logprobs, trajectory.messages_and_choices))
    if not tokens and endpoint.needs_logprobs:
        raise Unfit("its answers have no logprobs, without which ART trains on nothing")
    return (
        f"one rollout of problem {problem.id}: {trajectory.verdict}, reward {trajectory.reward}, "
        f"{trajectory.metrics.get('turns', 0):.0f} turns, {tokens} tokens with logprobs"
    )


def _logprobs(each: dict[str, Any]) -> int:
    """Return the number of tokens with logprobs in a choice; 0 for a message."""
    logprobs = each.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return len(content) if isinstance(content, list) else 0
