"""Steps shared by `asserts` and `calls`: turn the outcomes of a run's calls into a judgement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proctor_client.wire import MAX_FAILURES, Failure, Verdict
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import FORGED, Raised, Said
from proctor_service.judge.run import Run
from proctor_service.judge.submission import Judgement

NOT_REACHED = Raised("failed", "not reached")


@dataclass(frozen=True, slots=True)
class TestCounts:
    """Summary of test outcomes; `first` is the problem of the first failed test."""

    passed: int
    total: int
    failures: tuple[Failure, ...]
    first: Raised | None


def count_tests(tests: Iterable[tuple[str, Raised | None]]) -> TestCounts:
    """Count tests. Each test is a text and its problem; the problem of a passed test is None."""
    total = passed = 0
    failures: list[Failure] = []
    first: Raised | None = None
    for index, (shown, problem) in enumerate(tests):
        total += 1
        if problem is None:
            passed += 1
            continue
        first = first or problem
        if len(failures) < MAX_FAILURES:
            failures.append(Failure(index=index, test=shown, message=problem.summary))
    return TestCounts(passed, total, tuple(failures), first)


def conclude(finished: Run, said: Said, tests: Iterable[tuple[str, Raised | None]]) -> Judgement:
    """Return the judgement from the interpreter's messages and the outcome of each test."""
    counted = count_tests(tests)
    verdict, message = verdict_of(finished, said, counted.first)
    return finished.judgement(
        verdict,
        passed=counted.passed,
        total=counted.total,
        failures=counted.failures,
        message=message,
        hack_signals=signals(said, verdict),
        unreported=unreported(finished, said),
    )


def unreported(finished: Run, said: Said) -> str:
    """Return, for the logs, how a run without a report ended.

    The text is empty if the run gave a report or met a limit.
    """
    if said.done or said.reached or said.stopped or said.forged:
        return ""
    return "" if verdicts.of_limit(finished.ended) else finished.how_it_ended()


def signals(said: Said, verdict: Verdict) -> tuple[str, ...]:
    """Return the hack signals visible in one run."""
    found = [FORGED] if said.forged else []
    return (*found, "early_exit") if verdict == "early_exit" else tuple(found)


def verdict_of(finished: Run, said: Said, first: Raised | None) -> tuple[Verdict, str]:
    """Return the verdict and its message; `first` is the problem of the first failed test."""
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if said.stopped is not None:
        return said.stopped.verdict, said.stopped.traceback or said.stopped.summary
    if not said.done:
        if said.forged:
            return "failed", "what the program sent is no answer"
        return verdicts.of_silence(finished.ended)
    if first is not None:
        return first.verdict, first.traceback or first.summary
    return "passed", ""
