"""Graders: the rules by which a submission is judged, and their tests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from proctor_client.wire.base import Integrity, Request


class _Grader(Request):
    reveal: bool = Field(False, description="Let expected values appear in messages and failures.")


class ExecGrader(_Grader):
    """Program run: passes when the program reaches its end and exits with code 0."""

    kind: Literal["exec"]
    empty_stderr: bool = Field(
        False,
        description="Also nothing may be on stderr: JavaScript's `console.assert` writes there, and "
        "fails nothing.",
    )


class AssertsGrader(_Grader):
    """Test statements, in the form of MBPP and HumanEval: passes when every statement holds."""

    kind: Literal["asserts"]
    tests: list[str] = Field(min_length=1, max_length=4096, description="Python statements.")
    setup: str = Field("", description="Python that runs after the submission, before the tests.")
    entry_point: str | None = Field(
        None, description="The function that a `check(candidate)` among the tests is called with."
    )
    integrity: Integrity | None = Field(
        None,
        description="`separated`: tests that need the submission's process are an `invalid_task`. "
        "`in_process`: run the tests there in any case. Default: as the tests need it.",
    )


class Call(Request):
    """One call of the entry point, and the expected return value."""

    args: list[JsonValue] = Field(default_factory=list)
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    expected: JsonValue


class CallsGrader(_Grader):
    """Function calls: passes when each call of `entry_point` returns the expected value."""

    kind: Literal["calls"]
    entry_point: str = Field(min_length=1)
    cases: list[Call] = Field(min_length=1, max_length=4096)
    tolerance: float = Field(0.0, ge=0, description="Relative and absolute, for floats.")


class StdioCase(Request):
    """One run of the program: its standard input and the expected standard output."""

    stdin: str = ""
    stdout: str


class StdioGrader(_Grader):
    """Program runs: passes when each run prints the expected output and exits with code 0."""

    kind: Literal["stdio"]
    cases: list[StdioCase] = Field(min_length=1, max_length=4096)
    compare: Literal["tokens", "lines", "exact"] = "tokens"
    tolerance: float = Field(0.0, ge=0, description="Relative and absolute, for numeric tokens.")


class PytestGrader(_Grader):
    """pytest run: passes when pytest collects at least one test in `files`, and all pass."""

    kind: Literal["pytest"]
    files: dict[str, str] = Field(min_length=1)


class CommandGrader(_Grader):
    """Command: passes when the command exits with the expected code."""

    kind: Literal["command"]
    argv: list[str] = Field(min_length=1)
    expect_exit_code: int = 0


Grader = Annotated[
    ExecGrader | AssertsGrader | CallsGrader | StdioGrader | PytestGrader | CommandGrader,
    Field(discriminator="kind"),
]
