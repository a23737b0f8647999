"""The journal of the fake service: judged submissions, in memory."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import httpx
from pydantic import ValidationError

from proctor_client import wire
from proctor_client._fake_answers import Judged, Plain, as_json, problem, result_of
from proctor_client._runtime import Clock
from proctor_client.errors import from_validation

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
ROUTES = ("evaluations", "rollouts", "jobs")
VERSION = "fake"
_AS_JUDGED = ("verdict", "reward", "tests", "message", "stdout", "stderr", "integrity", "level",
              "hack_signals", "negative_control", "exit_code")  # fmt: skip
_AS_RESULT = (*_AS_JUDGED, "truncated", "cache", "usage", "sandbox_id")


@dataclass(frozen=True)
class Origin:
    """The request of a submission: fields of the journal, own and shared."""

    job: str = "default"
    step: int | None = None
    tags: Sequence[str] = ()
    extract: wire.Extract = "auto"
    scoring: wire.Scoring = "all"
    grader: wire.Grader | None = None
    limits: wire.Limits | None = None
    environment: str | None = None
    graded_sandbox_id: str | None = None

    @classmethod
    def of(cls, request: wire.RewardRequest) -> Origin:
        """Return the origin of a request's submissions."""
        return cls(
            job=request.job,
            step=request.step,
            tags=request.tags,
            extract=request.extract,
            scoring=request.scoring,
            grader=request.grader,
            limits=request.limits,
            environment=wire.environment_name(request.environment),
        )


@dataclass(frozen=True)
class _Record:
    number: int
    submission: wire.Submission
    detail: wire.EvaluationDetail


@dataclass
class FakeJournal:
    """Judges by the test's judge, records, and answers the journal's routes."""

    ask: Callable[[wire.Submission], Judged]
    clock: Clock
    _records: list[_Record] = field(default_factory=list)
    _rollouts: dict[str, wire.RolloutRecord] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _rollout_numbers: itertools.count[int] = field(default_factory=itertools.count)

    def judge(self, index: int, submission: wire.Submission, origin: Origin) -> wire.Result:
        """Record the judge's answer, and return the result."""
        judged = self.ask(submission)
        number = next(self._numbers)
        result = result_of(index, submission, judged, f"ev_fake_{number}")
        if not isinstance(judged, wire.Result):
            own = wire.environment_name(submission.environment)
            chosen = own or origin.environment or result.environment
            result = result.model_copy(update={"environment": chosen})
        self._records.append(_Record(number, submission, self._detail(submission, origin, result)))
        return result

    def new_rollout_id(self) -> str:
        """Return a unique id of a rollout."""
        return f"ro_fake_{next(self._rollout_numbers)}"

    def rolled_out(self, request: wire.RolloutRequest, trajectory: wire.Trajectory) -> None:
        """Record a trajectory under its own id."""
        self._rollouts[trajectory.rollout_id] = wire.RolloutRecord(
            id=trajectory.rollout_id,
            at=self._now(),
            job=request.job,
            step=request.step,
            task=trajectory.task_id,
            tags=request.tags,
            verdict=trajectory.verdict,
            reward=trajectory.reward,
            error=None if trajectory.error is None else trajectory.error.reason,
            error_message="" if trajectory.error is None else trajectory.error.message,
            metrics=trajectory.metrics,
            sandbox_id=trajectory.sandbox_id,
            version=VERSION,
            messages_and_choices=trajectory.messages_and_choices,
            tools=trajectory.tools or [],
        )

    def handle(self, request: httpx.Request) -> Plain:
        """Answer a request for a route of `ROUTES`."""
        path = request.url.raw_path.partition(b"?")[0].decode("ascii")
        kind, *parts = [unquote(part) for part in path.strip("/").split("/")]
        match request.method, kind, parts:
            case "GET", "evaluations", []:
                try:
                    query = wire.EvaluationQuery.model_validate(dict(request.url.params))
                except ValidationError as error:
                    return problem(422, "invalid_request", from_validation(error).message)
                return as_json(self._page(query))
            case "GET", "evaluations", [id_] if found := self._found(id_):
                return as_json(found.detail)
            case "POST", "evaluations", [id_, "replay"] if found := self._found(id_):
                if not found.detail.replayable:
                    return problem(
                        409, "not_replayable", f"evaluation {id_} cannot be judged again"
                    )
                return as_json(self._replay(found))
            case "GET", "rollouts", [id_] if id_ in self._rollouts:
                return as_json(self._rollouts[id_])
            case "GET", "jobs", []:
                return as_json(wire.JobList(jobs=self._jobs()))
            case "GET", "jobs", [name] if records := self._of(name):
                steps = sorted(
                    {each.step for each in records}, key=lambda step: (step is not None, step)
                )
                points = [_point(step, [r for r in records if r.step == step]) for step in steps]
                return as_json(wire.JobSeries(job=name, series=points))
            case _:
                return problem(404, "not_found", f"no {request.method} {request.url.path}")

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.clock.monotonic())

    def _found(self, id_: str) -> _Record | None:
        return next((each for each in reversed(self._records) if each.detail.id == id_), None)

    def _of(self, job: str) -> list[wire.EvaluationDetail]:
        return [each.detail for each in self._records if each.detail.job == job]

    def _detail(
        self, submission: wire.Submission, origin: Origin, result: wire.Result
    ) -> wire.EvaluationDetail:
        grader, limits = submission.grader or origin.grader, submission.limits or origin.limits
        text, has_code = _text(submission.completion), result.verdict not in (None, "no_code")
        return wire.EvaluationDetail(
            **{name: getattr(result, name) for name in _AS_RESULT},
            id=result.evaluation_id,
            at=self._now(),
            job=origin.job,
            step=origin.step,
            task=result.group,
            submission_id=result.id,
            tags=list(origin.tags),
            error=None if result.error is None else result.error.reason,
            error_message="" if result.error is None else result.error.message,
            seconds=result.usage.wall_seconds,
            graded_sandbox_id=origin.graded_sandbox_id,
            version=VERSION,
            grader_kind=None if grader is None else grader.kind,
            completion_characters=len(text),
            with_texts=True,
            replayable=has_code and origin.graded_sandbox_id is None,
            completion=text,
            source=text if has_code else None,
            source_begin=0 if has_code else None,
            extract=origin.extract,
            language=submission.language,
            environment=result.environment,
            grader=None if grader is None else wire.dump(grader),
            limits=None if limits is None else wire.dump(limits),
            scoring=submission.scoring or origin.scoring,
            files=submission.files,
        )

    def _page(self, query: wire.EvaluationQuery) -> wire.EvaluationPage:
        before = None if query.cursor is None else int(query.cursor)
        fit = [
            each
            for each in reversed(self._records)
            if (before is None or each.number < before) and _fits(each.detail, query)
        ]
        page = fit[: query.limit]
        return wire.EvaluationPage(
            evaluations=[_listed(each.detail) for each in page],
            next=str(page[-1].number) if len(fit) > len(page) else None,
        )

    def _replay(self, found: _Record) -> wire.Replay:
        result = result_of(0, found.submission, self.ask(found.submission), found.detail.id)
        recorded = _judged(found.detail)
        replayed = _judged(self._detail(found.submission, Origin(), result))
        same = all(
            getattr(recorded, name) == getattr(replayed, name)
            for name in ("verdict", "reward", "error")
        )
        return wire.Replay(id=found.detail.id, same=same, recorded=recorded, replayed=replayed)

    def _jobs(self) -> list[wire.JobSummary]:
        names = dict.fromkeys(each.detail.job for each in reversed(self._records))
        return [_summary(name, self._of(name)) for name in names]


def _text(completion: str | Sequence[wire.Message]) -> str:
    if isinstance(completion, str):
        return completion
    texts = [each.content for each in completion if each.role == "assistant"]
    return texts[-1] if texts and isinstance(texts[-1], str) else ""


def _fits(detail: wire.EvaluationDetail, query: wire.EvaluationQuery) -> bool:
    """Return True if all conditions of the query hold."""
    completion = (detail.completion or "").lower()
    is_any_error = query.error == "*" and detail.error is not None
    names = ("job", "step", "task", "verdict", "reward", "rollout_id")
    wanted: dict[str, Any] = {name: getattr(query, name) for name in names}
    return (
        all(value is None or getattr(detail, name) == value for name, value in wanted.items())
        and (query.tag is None or query.tag in detail.tags)
        and (query.signal is None or query.signal in detail.hack_signals)
        and (query.error is None or query.error == detail.error or is_any_error)
        and all(word in completion for word in (query.text or "").lower().split())
    )


def _listed(detail: wire.EvaluationDetail) -> wire.Evaluation:
    fields = {name: getattr(detail, name) for name in wire.Evaluation.model_fields}
    return wire.Evaluation(**{**fields, "tests": detail.tests.model_copy(update={"failures": []})})


def _judged(detail: wire.EvaluationDetail) -> wire.Judged:
    fields = {name: getattr(detail, name) for name in (*_AS_JUDGED, "error", "version")}
    return wire.Judged(**{**fields, "message": detail.error_message or detail.message})


def _rewards(records: Sequence[wire.EvaluationDetail]) -> list[float]:
    return [each.reward for each in records if each.reward is not None]


def _point(step: int | None, records: Sequence[wire.EvaluationDetail]) -> wire.JobPoint:
    rewards = _rewards(records)
    return wire.JobPoint(
        step=step,
        count=len(records),
        judged=len(rewards),
        mean_reward=statistics.fmean(rewards) if rewards else None,
        spread=statistics.pstdev(rewards) if rewards else None,
        verdicts=Counter(each.verdict or "error" for each in records),
    )


def _summary(name: str, records: Sequence[wire.EvaluationDetail]) -> wire.JobSummary:
    rewards = _rewards(records)
    return wire.JobSummary(
        job=name,
        evaluations=len(records),
        judged=len(rewards),
        mean_reward=statistics.fmean(rewards) if rewards else None,
        last_step=max((each.step for each in records if each.step is not None), default=None),
        last_at=records[-1].at,
    )
