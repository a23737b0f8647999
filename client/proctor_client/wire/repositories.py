"""Grader `repository`: a change of a repository, judged by named tests of its project."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from proctor_client.wire.base import (
    Arguments,
    Base64Texts,
    GraderBase,
    Request,
    Response,
    Texts,
    Variables,
)

ReportName = Literal[
    "pytest",
    "unittest",
    "django",
    "go",
    "jest",
    "vitest",
    "mocha",
    "node",
    "cargo",
    "junit",
    "sympy",
    "exit_code",
]
TestOutcome = Literal["passed", "failed", "error", "skipped", "expected_failure", "unexpected_pass"]
Accepted = Literal[
    "passed", "failed", "error", "skipped", "expected_failure", "unexpected_pass", "missing"
]
NameForm = Literal[
    "cut_at_blank",
    "dotted",
    "without_package",
    "without_timing",
    "prefix",
    "short_paths",
    "button_numbers",
]

MOST_EXPECTED = 65_536
MOST_PATTERNS = 1024
_ACTIVATION = re.compile(r"conda:[A-Za-z0-9_.-]+|/[^\0]*")
"""`conda:testbed`, or the folder of a virtual environment: `/opt/venv`; not `testbed`."""

Patterns: TypeAlias = Annotated[list[str], Field(max_length=MOST_PATTERNS, fail_fast=True)]


def _outcomes_by_name(value: Any) -> Any:
    """Return the value. Raises a single ValueError for a large or wrong map, in place of an error for each
    entry.
    """
    if isinstance(value, dict):
        if len(value) > MOST_EXPECTED:
            raise ValueError(f"{len(value)} entries, and at most {MOST_EXPECTED} are taken")
        for name, outcome in value.items():
            if outcome not in get_args(TestOutcome):
                words = ", ".join(get_args(TestOutcome))
                raise ValueError(f"the outcome of {str(name)[:100]!r} is none of: {words}")
    return value


class RepositoryPreparation(Request):
    """State of the repository for the policy, made from the image's."""

    patch: str = Field("", description="A unified diff, applied to the image's repository.")
    reverse: bool = Field(False, description="Apply `patch` in reverse.")
    commands: list[str] = Field(
        [],
        max_length=256,
        description="For a shell, each; they run after the patch, in `directory`, and are not charged.",
    )


class FilesOfCommit(Request):
    """Files of another commit of the image's repository, put in place for grading."""

    commit: str = Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")
    paths: Patterns = Field(min_length=1)


class JunitReport(Request):
    """JUnit XML written by the runner."""

    junit: Patterns = Field(
        min_length=1,
        description="Patterns of files below `directory`: `target/surefire-reports/*.xml`.",
    )


class ScriptReport(Request):
    """Program of the task's author for reading the outcomes from the run's output.

    The program runs in a sandbox of its own, gets a JSON object on stdin (`stdout`, `stderr`, `exit_code`,
    and `files` by path) and prints a JSON object from names of tests to outcomes.
    """

    script: str = Field(min_length=1, description="Python.")
    collect: Patterns = Field(
        [], description="Patterns of files below `directory`, or absolute ones, that it gets."
    )


class RepositoryRule(Request):
    """Outcomes counting as passed, in place of the default outcomes.

    Default of `fail_to_pass`: `passed`. Default of `pass_to_pass`: `passed`, and a skip or an expected
    failure if the run of the reference had the same.
    """

    fail_to_pass: list[Accepted] | None = Field(None, max_length=16)
    pass_to_pass: list[Accepted] | None = Field(None, max_length=16)
    unlisted: Literal["ignored", "none_failed"] | None = Field(
        None,
        description="Tests that no list names. `none_failed`: each failed one is a failure. By default "
        "they are ignored; with `expected`, any other test is a failure.",
    )


class RepositoryGrader(GraderBase):
    """Repository: passes when the named tests pass after the submission's change.

    Judges a diff or edits in a completion, or the repository in the sandbox left by an agent.
    """

    by_default = "in_process"
    judges: ClassVar[Literal["repository"]] = "repository"

    kind: Literal["repository"]
    directory: str | None = Field(
        None,
        description="Absolute path of the repository; by default the image's working directory.",
    )
    prepare: RepositoryPreparation | None = Field(
        None, description="State that the policy meets; in the agent's sandbox, too."
    )
    hide: Patterns = Field(
        [],
        description="Patterns of paths, absolute or below `directory`, that the agent's sandbox lacks.",
    )
    test_patch: str = Field("", description="A unified diff with the task's tests.")
    files: Texts = Field({}, description="The task's tests: path below `directory` to text.")
    binary_files: Base64Texts = Field({}, description="Path below `directory` to base64.")
    remove: Patterns = Field([], description="Paths below `directory` that grading lacks.")
    files_from: FilesOfCommit | None = Field(
        None, description="Tests from another commit of the image's repository."
    )
    protect: Patterns | None = Field(
        None,
        description="Patterns of further paths whose changes do not count, beside those of the kind of "
        "report.",
    )
    reference: str | None = Field(
        None,
        description="The right change, as a diff: protected files get the state that it makes. No agent's "
        "sandbox has it.",
    )
    activate: str | None = Field(
        None,
        description="`conda:NAME`, or the folder of a virtual environment, for `build` and `test`, and for "
        "the agent's commands.",
    )
    env: Variables = Field({}, description="Variables of `build` and `test`.")
    build: str | Arguments | None = Field(
        None,
        description="Command before the tests: a text for a shell, or the words of one command.",
    )
    build_if: Patterns = Field(
        [],
        description="Build only if a file of the change, of `prepare.patch` or of the task's tests matches: "
        "`*.pyx`, `setup.py`.",
    )
    test: str | Arguments = Field(
        min_length=1,
        description="Command of the tests, in `directory`: a text for a shell, which may have several "
        "commands, or the words of one command.",
    )
    report: ReportName | JunitReport | ScriptReport = Field(
        "pytest", union_mode="left_to_right", description="How outcomes are reported."
    )
    fail_to_pass: Arguments = Field([], description="Names of tests that the change makes pass.")
    pass_to_pass: Arguments = Field([], description="Names of tests that go on passing.")
    expected: Annotated[dict[str, TestOutcome], BeforeValidator(_outcomes_by_name)] | None = Field(
        None, description="The outcome of each test, in place of the two lists."
    )
    rule: RepositoryRule | None = Field(None, description="Outcomes that count as passed.")
    names: list[NameForm] = Field(
        [], max_length=7, description="How the lists write names, where not as reported."
    )
    deliver: str | None = Field(
        None,
        description="Absolute path where the submission's diff is written, since `test` applies it itself "
        "to the unchanged repository.",
    )
    writable: Patterns = Field(
        [], description="Patterns of the tests' files that a suite rewrites."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.expected is not None and (self.fail_to_pass or self.pass_to_pass):
            raise ValueError("a task has either expected outcomes or lists of tests")
        return self

    @field_validator("directory", "deliver")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if path is not None and (
            not path.startswith("/") or ".." in path.split("/") or "\0" in path or len(path) > 1024
        ):
            raise ValueError(f"{path[:100]!r} is no absolute path")
        return path

    @field_validator("activate")
    @classmethod
    def _activation(cls, text: str | None) -> str | None:
        if text is not None and not _ACTIVATION.fullmatch(text):
            raise ValueError(f"{text[:100]!r} is neither conda:NAME nor an absolute path")
        return text

    @field_validator("build", "test")
    @classmethod
    def _without_zero(cls, command: str | list[str] | None) -> str | list[str] | None:
        if command is not None and any("\0" in each for each in command):
            raise ValueError("a command has a zero byte")
        return command

    @field_validator("hide", "remove", "protect", "build_if", "writable")
    @classmethod
    def _patterns(cls, patterns: list[str] | None) -> list[str] | None:
        for pattern in patterns or ():
            if not pattern or len(pattern) > 1024 or "\0" in pattern or ".." in pattern.split("/"):
                raise ValueError(f"{pattern[:100]!r} is no pattern of paths")
        return patterns


class LeftOutFile(Response):
    """Part of the change left out, and the reason."""

    path: str
    reason: str


class NamedTests(Response):
    """Tests of a list: number of the passed ones, of all, and names of up to ten failed ones."""

    passed: int = 0
    total: int = 0
    failed: list[str] = Field([])


class RepositoryResult(Response):
    """Details of a judged repository.

    `applied`: repairs in reading the diff: `line_ends`, `fuzz 1`. `left_out`: up to a hundred. `report`: the
    kind of report with the outcomes.
    """

    applied: list[str] = Field([])
    left_out: list[LeftOutFile] = Field([])
    report: str | None = None
    fail_to_pass: NamedTests = NamedTests()
    pass_to_pass: NamedTests = NamedTests()
