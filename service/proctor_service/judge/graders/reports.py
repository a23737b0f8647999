"""Reports of the test runners of `pytest` and `shared`, parsed as untrusted data.

These runners share a process with the submission. Each line carries a secret word known only to the
runner, and the last line carries a second secret word. Lines without these words are forged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proctor_client.wire import Verdict
from proctor_service.inside.values import Malformed, loads
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.frames import FORGED, Raised, left, raised
from proctor_service.judge.run import Run

PATCHED = "harness_patched"
_OUTCOMES = ("passed", "failed", "excused", "raised", "exit")


@dataclass(slots=True)
class Report:
    """Report of a test runner: number of tests, outcome of each test, and exit code.

    `tests`: a name, an outcome and a text each. `stopped`: reason why the submission did not load.
    """

    collected: int = 0
    tests: list[tuple[str, str, str]] = field(default_factory=list)
    status: int | None = None
    stopped: Raised | None = None
    broken: str | None = None
    left: bool = False
    patched: str | None = None
    lied: bool = False
    forged: bool = False


def read(finished: Run, word: str, end: str, *, reveal: bool) -> Report:
    """Parse the runner's lines. The content of a test is hidden unless `reveal` is true."""
    report = Report()
    for line in finished.lines:
        try:
            said, *frame = loads(line)
        except (Malformed, TypeError, ValueError):
            said, frame = None, []
        if said != word or report.status is not None:
            report.forged = True
            continue
        try:
            _take(report, frame, end, reveal=reveal)
        except (TypeError, ValueError):
            report.forged = True
    return report


def _take(report: Report, frame: list[object], end: str, *, reveal: bool) -> None:
    match frame:
        case ["collected", int(count)] if not report.collected:
            report.collected = count
        case ["test", str(name), str(outcome), str(hint), str(text)] if outcome in _OUTCOMES:
            # A test's parameters may be expected values.
            shown = name if reveal else name.partition("[")[0]
            report.tests.append((shown, outcome, text if reveal else hint))
        case ["finished", str(proof), int(status)] if proof == end:
            report.status = status
        case ["syntax", str(text)]:
            report.stopped = Raised("syntax_error", f"SyntaxError: {text}")
        case ["stopped", *rest]:
            report.stopped = raised(rest)
        case ["exit", int(code)]:
            report.stopped = left(code)
        case ["broken", str(hint), str(text)]:
            report.broken = report.broken or (text if reveal else hint)
        case ["left"]:
            report.left = True
        case ["patched", str(what)]:
            report.patched = what
        case ["lied"]:
            report.lied = True
        case _:
            report.forged = True


def verdict_of(finished: Run, report: Report) -> tuple[Verdict, str] | None:
    """Return the verdict that overrides the tests' own outcomes; None if the outcomes decide."""
    limited = verdicts.of_limit(finished.ended)
    if limited is not None:
        return limited
    if report.stopped is not None:
        return report.stopped.verdict, report.stopped.traceback or report.stopped.summary
    if report.left or (report.status is None and finished.ended.exit_code is not None):
        return "early_exit", "the program left before the tests had finished"
    if report.status is None:
        return verdicts.of_silence(finished.ended)
    if report.patched is not None:
        return "failed", f"what runs the tests was replaced: {report.patched}"
    if report.forged or report.status != finished.ended.exit_code:
        return "failed", "the test report is not the runner's own"
    if report.lied:
        return "failed", "an object says that it equals whatever it is compared with"
    return None


def unreported(finished: Run, report: Report) -> str:
    """Return, for the logs, how a runner ended before its report was complete.

    The text is empty if the report is complete or a limit ended the run.
    """
    whole = report.status is not None or report.stopped is not None or report.left
    return "" if whole or verdicts.of_limit(finished.ended) else finished.how_it_ended()


def signals(report: Report, verdict: Verdict) -> tuple[str, ...]:
    """Return the hack signals of the report."""
    tried = {
        FORGED: report.forged,
        PATCHED: report.patched is not None,
        "lying_equality": report.lied,
        "early_exit": verdict == "early_exit",
    }
    return tuple(name for name, was in tried.items() if was)
