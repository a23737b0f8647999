"""The training loop: gather trajectories, train on them, log, and print a summary of each step.

    loop = TrainingLoop(plan, problems, model, backend, client, policy)
    await loop.run()

`model` is an art.TrainableModel registered with `backend`, an art.Backend. A step with more failed
rollouts than allowed raises TooManyFailures; the training of earlier steps is kept.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import art

from proctor_client import AsyncClient, SessionStats
from proctor_client.reporting import Reporter, session_metrics
from proctor_client.stats import Counts
from proctor_trainers.art.rollouts import Order, Rollouts
from proctor_trainers.art.trajectories import RolloutFailed
from proctor_trainers.problems import Problem
from proctor_trainers.rewards import say_line

log = logging.getLogger("proctor_trainers")

PolicyOf: TypeAlias = Callable[[], Mapping[str, Any]]
"""Function that returns the wire's current policy; some backends rename the model each step."""
_LISTED_REASONS = 3
_LISTED_METRICS = 3


class TooManyFailures(RuntimeError):
    """Raised when more of a step's rollouts failed than allowed."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Settings of the training.

    `max_exceptions` is the allowed share of failed rollouts per step, 0 to 1. `num_steps` counts
    from the model's first step, including the steps of an earlier process. `train_options` are
    further arguments of the backend's `train`.
    """

    order: Order
    num_steps: int
    batch_size: int
    learning_rate: float
    max_exceptions: float = 0.25
    train_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Summary:
    """Totals of a run so far. `successful` counts the trajectories with all tests passed."""

    trajectories: int = 0
    successful: int = 0
    steps: int = 0

    def lines(self) -> list[str]:
        """Return the totals as lines for the user."""
        share = f" ({self.successful / self.trajectories:.1%})" if self.trajectories else ""
        return [
            f"  Total trajectories: {self.trajectories}",
            f"  Successful: {self.successful}{share}",
            f"  Steps completed: {self.steps}",
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rollouts of a step."""

    groups: Sequence[art.TrajectoryGroup]

    @property
    def trajectories(self) -> list[art.Trajectory]:
        """Trajectories with a reward."""
        return [trajectory for group in self.groups for trajectory in group.trajectories]

    @property
    def passed(self) -> int:
        """Number of passed trajectories."""
        return self.verdicts["passed"]

    @property
    def verdicts(self) -> Counter[str]:
        """Number of trajectories by verdict."""
        return Counter(each.metadata["verdict"] for each in self.trajectories)

    @property
    def failures(self) -> Counter[str]:
        """Number of failed rollouts by reason."""
        return Counter(each.message for group in self.groups for each in group.exceptions)

    def line(self, step: int, seconds: float) -> str:
        """Return the summary of the step as a line."""
        judged, failed = len(self.trajectories), self.failures.total()
        unavailable = f", {failed} unavailable" if failed else ""
        if not judged:
            return f"Step {step}: no rollout was judged, time={seconds:.1f}s{unavailable}"
        reward = math.fsum(each.reward for each in self.trajectories) / judged
        return (
            f"Step {step}: reward={reward:.3f}, success={self.passed / judged:.1%} "
            f"({self.passed}/{judged}), time={seconds:.1f}s{unavailable}"
        )

    def metrics(self, seconds: float) -> dict[str, float]:
        """Return the metrics of the step, in addition to ART's own metrics of trajectories."""
        judged, failed = len(self.trajectories), self.failures.total()
        metrics = {
            "proctor/unavailable_rate": failed / max(1, judged + failed),
            "proctor/latency_seconds": seconds,
        }
        if judged:
            metrics["proctor/pass_rate"] = self.passed / judged
            metrics["proctor/no_code_rate"] = self.verdicts["no_code"] / judged
        return metrics

    def executions(self) -> SessionStats:
        """Return the sandboxes and executions of the step, counted as a session counts its own.

        A trajectory has a sandbox, and an execution for each executed tool call, at least a single execution:
        its judging. A rollout without a verdict is an error.
        """
        counts = Counts()
        for number, each in enumerate(self.trajectories):
            _count(counts, str(number), each)
        for number in range(self.failures.total()):
            counts.created(f"failed {number}")
            counts.executed(f"failed {number}", "error")
        return counts.stats()


def _count(counts: Counts, sandbox: str, trajectory: art.Trajectory) -> None:
    metrics = trajectory.metrics
    calls = int(metrics.get("tool_calls", 0)) - int(metrics.get("bad_tool_calls", 0))
    ran = max(calls or int(metrics.get("turns", 0)), 1)
    verdict = trajectory.metadata["verdict"]
    failures = min(int(metrics.get("exec_errors", 0)) if calls else ran - 1, ran - 1)
    counts.created(sandbox)
    if verdict == "timeout":
        counts.executed(sandbox, "error")
    else:
        counts.executed(sandbox, "success" if verdict == "passed" else "failure")
    for each in range(ran - 1):
        counts.executed(sandbox, "failure" if each < failures else "success")


class TrainingLoop:
    """A training loop for a single run. `summary` is readable at any time, even after a failure."""

    def __init__(
        self,
        plan: TrainingPlan,
        problems: Sequence[Problem],
        model: art.TrainableModel,
        backend: art.Backend,
        client: AsyncClient,
        policy: PolicyOf,
        *,
        say: Callable[[str], None] = say_line,
    ) -> None:
        self.summary = Summary()
        self._plan = plan
        self._problems = problems
        self._model = model
        self._backend = backend
        self._client = client
        self._policy = policy
        self._say = say
        self._rollouts: Rollouts | None = None
        self._reporter = Reporter()

    async def run(self) -> None:
        """Run all remaining steps. Raises TooManyFailures, ProctorError, and backend errors."""
        self._open_wandb_run()
        begun = await self._model.get_step()
        if begun:
            self._say(f"{begun} steps of {self._plan.order.run_name} are trained already")
        for step in range(begun + 1, self._plan.num_steps + 1):
            await self._step(step)

    def cancel(self) -> None:
        """End the rollouts in progress. Call this before cancelling the task of `run`.

        ART's gather treats a cancellation as a further failed rollout, and waits for the other
        rollouts.
        """
        if self._rollouts is not None:
            self._rollouts.cancel()

    def _open_wandb_run(self) -> None:
        """Open ART's run before its first step, for a complete first row."""
        open_run = getattr(self._model, "_get_wandb_run", None)
        if open_run is None or "WANDB_API_KEY" not in os.environ:
            return
        run = open_run()
        if run is not None:
            self._reporter = Reporter(run=run)  # ART's runs are not the active run
            self._say(f"W&B run: {run.url or f'{run.name} (offline, in {run.dir})'}")

    async def _step(self, step: int) -> None:
        begun = time.monotonic()
        outcome = await self._gather(step)
        gathered = time.monotonic()
        metrics = outcome.metrics(gathered - begun)
        trainable = [group for group in outcome.groups if group.trajectories]
        if trainable:
            result = await self._backend.train(
                self._model,
                trainable,
                learning_rate=self._plan.learning_rate,
                **self._plan.train_options,
            )
            metrics |= result.metrics
        self._reporter.report(session_metrics(outcome.executions()))  # ART's row is the same one
        # Without trajectories for training, None avoids an empty trajectory file for the step.
        await self._model.log(
            outcome.groups if trainable else None, split="train", metrics=metrics, step=step
        )
        self.summary.steps += 1
        self._say(outcome.line(step, time.monotonic() - begun))

    async def _gather(self, step: int) -> Outcome:
        problems = self._batch(step)
        requested = len(problems) * self._plan.order.trajectories_per_problem
        async with Rollouts(self._client, self._plan.order, self._policy(), step) as rollouts:
            self._rollouts = rollouts
            try:
                groups = await art.gather_trajectory_groups(
                    [rollouts.group(problem) for problem in problems],
                    pbar_desc=f"step {step}",
                    # A count, because ART reads a share of 1.0 as one rollout.
                    max_exceptions=math.floor(self._plan.max_exceptions * requested),
                    max_metrics=_LISTED_METRICS,
                )
            except RolloutFailed as failure:
                if rollouts.mistake is not None:
                    raise rollouts.mistake from None
                share = f"{self._plan.max_exceptions:.0%}"
                raise TooManyFailures(
                    f"step {step}: more than {share} of {requested} rollouts failed: {failure}"
                ) from None
            finally:
                self._rollouts = None
        if rollouts.mistake is not None:  # regardless of the allowed failures
            raise rollouts.mistake
        outcome = Outcome(groups)
        self.summary.trajectories += len(outcome.trajectories)
        self.summary.successful += outcome.passed
        for why, count in outcome.failures.most_common(_LISTED_REASONS):
            log.warning("step %d: %d of %d rollouts failed: %s", step, count, requested, why)
        return outcome

    def _batch(self, step: int) -> list[Problem]:
        """Return the problems of a step, in rotation; each problem at most once per step."""
        size = min(self._plan.batch_size, len(self._problems))
        first = (step - 1) * size
        return [self._problems[(first + each) % len(self._problems)] for each in range(size)]
