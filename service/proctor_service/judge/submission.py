"""Input and output of the judge, as frozen values, and the rules of graders.

Graders are the models of the wire format: they are frozen and complete, and a second definition
would drift from the first.
"""

from __future__ import annotations

import io
import math
import tokenize
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor_client.wire import (
    AuthorProgram,
    Compiler,
    ControlOutcome,
    Extract,
    Failure,
    GeneratedCases,
    Grader,
    Integrity,
    Level,
    NegativeControl,
    RepositoryResult,
    Scoring,
    StdioGrader,
    Verdict,
    VerifierGrader,
)
from proctor_service.sandbox.interface import (
    DEFAULT,
    Limits,
    Operation,
    Sandboxes,
    StatefulSandbox,
    Usage,
)

if TYPE_CHECKING:
    from proctor_service.judge.control.expectations import Tests


@dataclass(frozen=True, slots=True)
class Submission:
    """Code to judge, already extracted from its completion, with its grader and limits.

    `state`: the files of a stateful sandbox (`StatefulSandbox.snapshot`), restored before `files`.
    `asked_at` and `deadline`: beginning and end of its item, by the monotonic clock. `completion`, `prompt`:
    for a grader of completions alone, as plain JSON; its `source` is empty for a completion without code.
    `reference`: the source of the grader's own completion, found as this one's. `tree_file`: path of a file
    with the repository of an agent's sandbox, for a grader of repositories.
    """

    source: str
    grader: Grader
    limits: Limits
    scoring: Scoring = "all"
    language: str = "python"
    files: Mapping[str, str] = field(default_factory=dict)
    state: bytes | None = None
    environment: str = DEFAULT
    negative_control: NegativeControl = "signal"
    deadline: float = math.inf
    asked_at: float = -math.inf
    compiler: Compiler | None = None
    completion: str = ""
    prompt: Any = None
    reference: str | None = None
    tree_file: str | None = None


SOLUTION = "solution.py"
_ENCODINGS = ("utf-8", "utf-8-sig", "ascii", "iso-8859-1", "iso-8859-15", "cp1252")


def author_programs(grader: Grader) -> Iterator[tuple[str, AuthorProgram]]:
    """Return the programs of the task's author, by the names of their fields."""
    if isinstance(grader, VerifierGrader) and grader.source:
        yield (
            "verifier",
            AuthorProgram.model_construct(  # its fields are checked already
                language=grader.verifier_language,
                source=grader.source,
                files=grader.files,
                limits=grader.verifier_limits,
                environment=grader.environment,
            ),
        )
    if not isinstance(grader, StdioGrader):
        return
    if isinstance(grader.checker, AuthorProgram):
        yield "checker", grader.checker
    if grader.interactor is not None:
        yield "interactor", grader.interactor
    if isinstance(grader.cases, GeneratedCases):
        yield "cases.generator", grader.cases.generator
        if grader.cases.reference is not None:
            yield "cases.reference", grader.cases.reference


def needs_solution(grader: Grader) -> bool:
    """Return False for a grader that judges a working directory without a solution.py, too."""
    return grader.judges == "program"


def integrity_of(grader: Grader) -> Integrity:
    """Return the integrity of a grader's results, as far as decided by the grader alone.

    Of `asserts` without a stated integrity, the analysis of its tests decides.
    """
    requested: Integrity | None = getattr(grader, "integrity", None)
    return requested or grader.by_default


def source_of(solution: bytes, grader: Grader) -> str:
    """Return the source in a solution.py; bytes outside of its encoding are a syntax error in Python, too.

    An empty source leaves the file unchanged, for a grader that judges the working directory.
    """
    encoding = "utf-8"
    is_program = grader.judges in ("program", "completion")
    if is_program:
        with suppress(SyntaxError):
            named, _ = tokenize.detect_encoding(io.BytesIO(solution).readline)
            # Others, such as punycode, take time in proportion to the square of the length.
            encoding = named if named in _ENCODINGS else encoding
    try:
        return solution.decode(encoding)
    except UnicodeDecodeError:
        return solution.decode("utf-8", "surrogateescape") if is_program else ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its evidence. `evaluate.py` turns the judgement into a reward."""

    verdict: Verdict
    passed: int = 0
    total: int = 0
    failures: tuple[Failure, ...] = ()
    message: str = ""
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    exit_code: int | None = None
    integrity: Integrity = "separated"
    level: Level | None = None
    hack_signals: tuple[str, ...] = ()
    negative_control: ControlOutcome | None = None
    usage: Usage = field(default_factory=Usage)
    sandbox_id: str | None = None
    unreported: str = ""
    """Ending of a program without a report, due to the submission or a failure of our runner."""
    score: float | None = None
    """Score of the task's own verifier, or share of the points, 0.0 to 1.0; else None."""
    repository: RepositoryResult | None = None
    limited: int | None = None
    """Place of the test in which a limit ended the program; for `rest.py` alone."""


def test_list(grader: Grader) -> tuple[str, Sequence[Any]]:
    """Return name and value of a grader's list of tests, if any."""
    for name in ("cases", "tests"):
        tests = getattr(grader, name, None)
        if isinstance(tests, list):
            return name, tests
    return "", ()


def test_count(grader: Grader) -> int:
    """Return the number of tests of a grader; 0 if the tests cannot be counted."""
    if isinstance(grader, StdioGrader) and isinstance(grader.cases, GeneratedCases):
        return len(grader.cases.seeds)
    return len(test_list(grader)[1])


@dataclass(frozen=True, slots=True)
class Place:
    """Where a grader judges: after a session or a rollout, or a completion.

    `has_image`: its environment has an image. `max_seconds`: the server's ceiling of wall time.
    `keeps_files`: False for an agent with an answer apart from its files. `has_operations`: its sandboxes
    run code of the service (`StatefulSandbox.operate`).
    """

    has_image: bool
    max_seconds: float
    keeps_files: bool = True
    has_operations: bool = True


Control = Callable[[str, str], "Tests | None"]
"""Returns the tests of a grader with changeable expected values, for a source and its language."""


class DefaultLimits(NamedTuple):
    """Limits of a kind of grader, as defaults behind the task's and the environment's limits."""

    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    disk_mb: int
    processes: int


OpenTree = Callable[
    [Any, Sandboxes, Limits, str, Mapping[str, str], Sequence[str]],
    AbstractAsyncContextManager[StatefulSandbox],
]


@dataclass(frozen=True, slots=True)
class TreeRules:
    """Rules of a grader of repositories for an agent's sandbox.

    `open`: opens a sandbox in the agent's initial state, for a grader, with limits, environment, files of
    the task, and tags. Raises InvalidTask. `save`: returns the operation to write the repository to a file;
    the path of the file is the last argument.
    """

    open: OpenTree
    save: Callable[[Any, Limits, str], Operation]


@dataclass(frozen=True, slots=True)
class GraderRules:
    """Functions of the graders of a kind: check, judge, and control.

    `judge`: raises a `Failure`, Unfit, JobTooLong and ValueTooLarge. `integrity`: awaits the integrity by
    an analysis of the tests; None where the kind decides. `check`: raises InvalidRequest for an
    unsuitable place; the last argument names the field. `control`: returns None for a grader without a
    negative control. `code`: returns the code in a completion, for a grader of its own kind of code, or
    None; raises InvalidRequest for a rule of other code. `limits`: defaults in place of the server's.
    """

    kind: str
    judge: Callable[[Submission, Any, Sandboxes], Awaitable[Judgement]]
    integrity: Callable[[Any], Awaitable[Integrity]] | None = None
    check: Callable[[Any, Place, str], None] | None = None
    control: Callable[[Any], Control | None] | None = None
    code: Callable[[str, Extract], str | None] | None = None
    limits: DefaultLimits | None = None
    tree: TreeRules | None = None


Graders = Mapping[str, GraderRules]
"""The registry: rules by the kind of the wire model."""
