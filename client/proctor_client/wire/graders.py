"""Graders: the rules by which a submission is judged, and their tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from proctor_client.wire.base import (
    AnyJson,
    Arguments,
    Base64Texts,
    GraderBase,
    Integrity,
    JsonArray,
    JsonObject,
    Request,
    Texts,
    Variables,
)
from proctor_client.wire.limits import Limits
from proctor_client.wire.programs import (
    MAX_SUBTASK_PLACES,
    CheckerField,
    GeneratedCases,
    Interactor,
    Subtask,
)
from proctor_client.wire.repositories import RepositoryGrader

Runner = Literal["cargo_test", "go_test", "jest", "junit", "pytest"]
_TOLERANCE = "For numbers with a fraction. A number `t` allows `t * max(1, |expected|)`."


class Tolerance(Request):
    """Allowed distance of a number from the expected number: `absolute + relative * |expected|`."""

    absolute: float = Field(0.0, ge=0, allow_inf_nan=False)
    relative: float = Field(0.0, ge=0, allow_inf_nan=False)


_Tolerance: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Tolerance


class ExecGrader(GraderBase):
    """Program run: passes when the program reaches its end and exits with code 0."""

    any_language = True

    kind: Literal["exec"]
    entry_point: str | None = Field(
        None, description="The function that `prompt_code` begins; no other field needs it."
    )
    empty_stderr: bool = Field(
        False,
        description="Also nothing may be on stderr: JavaScript's `console.assert` writes there, and "
        "fails nothing.",
    )
    setup: str = Field(
        "", description="A source in the submission's language that runs before the submission."
    )
    tests: str = Field(
        "",
        description="A source in the submission's language that runs after the submission. The program "
        "passes when this source reaches its end, too: the return from its main function, in a language "
        "that has one. A main function of the submission does not run.",
    )


Method = Literal["as_named", "either"]


class AssertsGrader(GraderBase):
    """Test statements, in the form of MBPP and HumanEval: passes when every statement holds."""

    by_default = "separated"

    kind: Literal["asserts"]
    tests: list[str] = Field(min_length=1, max_length=4096, description="Python statements.")
    setup: str = Field("", description="Python that runs after the submission, before the tests.")
    entry_point: str | None = Field(
        None,
        description="The function that a `check(candidate)` among the tests is called with: `f`, "
        "`Solution().f` or `Solution.f`.",
    )
    method: Method = Field(
        "as_named",
        description="`either`: the method `Solution().f`, or else the function `f`.",
    )
    integrity: Integrity | None = Field(
        None,
        description="`separated`: tests that need the submission's process are an `invalid_task`. "
        "`in_process`: run the tests there in any case. Default: as the tests need it.",
    )


class Call(Request):
    """Call of the entry point, and the expected return value."""

    args: JsonArray = Field(default_factory=list)
    kwargs: JsonObject = Field(default_factory=dict)
    expected: AnyJson


class CallsGrader(GraderBase):
    """Function calls: passes when each call of `entry_point` returns the expected value."""

    by_default = "separated"

    kind: Literal["calls"]
    entry_point: str = Field(
        min_length=1, description="`f`, `Solution().f` or `Solution.f`; each call has a new object."
    )
    method: Method = Field(
        "as_named",
        description="`either`: the method `Solution().f`, or else the function `f`.",
    )
    cases: list[Call] = Field(min_length=1, max_length=4096)
    equality: Literal["json", "python", "apps"] = Field(
        "json",
        description="`json`: tuples and arrays equal lists, and keys are compared in their JSON form. "
        "`python`: as Python's `==`. `apps`: as `json`, with two rules of the checkers of APPS and PRIME: an "
        "argument that is an object whose keys are all integers' texts has integers as keys, and an "
        "expected list of one item stands for the item, too.",
    )
    tolerance: _Tolerance = Field(0.0, union_mode="left_to_right", description=_TOLERANCE)


class StdioCase(Request):
    """Run of the program: its standard input and the expected standard output."""

    stdin: str = ""
    stdout: str | Annotated[list[str], Field(min_length=1)] | None = Field(
        None,
        description="Expected output, or a list of accepted ones. A `checker` or an `interactor` may do "
        "without.",
    )
    argv: Arguments = Field(default_factory=list, description="Arguments of the program.")
    files: Texts = Field(
        default_factory=dict, description="Path to text; written into the sandbox of this case."
    )
    output_file: str | None = Field(
        None, min_length=1, description="File that has the output, in place of standard output."
    )


def _kind_of_cases(value: Any) -> str:
    return "GeneratedCases" if isinstance(value, dict | GeneratedCases) else "list"


_Cases: TypeAlias = Annotated[
    Annotated[list[StdioCase], Field(min_length=1, max_length=4096), Tag("list")]
    | Annotated[GeneratedCases, Tag("GeneratedCases")],
    Discriminator(_kind_of_cases),
]


class StdioGrader(GraderBase):
    """Program runs: passes when each run prints the expected output and exits with code 0."""

    by_default = "separated"
    any_language = True

    kind: Literal["stdio"]
    cases: _Cases
    compare: Literal["tokens", "lines", "trimmed", "exact"] = Field(
        "tokens",
        description="`tokens`: words between ASCII white space. `trimmed`: lines without white space at "
        "both ends, and without blank lines.",
    )
    ignore_case: bool = Field(False, description="Letters in upper and lower case are equal.")
    tolerance: _Tolerance = Field(0.0, union_mode="left_to_right", description=_TOLERANCE)
    checker: CheckerField | None = Field(
        None,
        description="A program of the task's author that judges each output in place of `compare`, or the "
        "name of a ready one.",
    )
    interactor: Interactor | None = Field(
        None, description="A program of the task's author that each run talks to."
    )
    subtasks: list[Subtask] = Field(
        default_factory=list,
        max_length=4096,
        description="For the scoring `points`; by default each case earns one point.",
    )

    @model_validator(mode="after")
    def _judgeable(self) -> Self:
        if self.checker is not None and self.interactor is not None:
            raise ValueError("cases have either a checker or an interactor")
        has_answers = isinstance(self.cases, GeneratedCases) and self.cases.reference is not None
        if isinstance(self.cases, list):
            has_answers = all(case.stdout is not None for case in self.cases)
        needs_answers = self.checker is None or isinstance(self.checker, str)
        if needs_answers and self.interactor is None and not has_answers:
            raise ValueError("each case needs its stdout, or generated cases a reference")
        count = len(self.cases.seeds if isinstance(self.cases, GeneratedCases) else self.cases)
        places = sum(len(each.cases) + len(each.requires) for each in self.subtasks)
        if places > MAX_SUBTASK_PLACES:
            raise ValueError(f"the subtasks name more than {MAX_SUBTASK_PLACES} places")
        for place, subtask in enumerate(self.subtasks):
            if not all(0 <= case < count for case in subtask.cases):
                raise ValueError(f"subtask {place} names a case that there is not")
            if not all(0 <= earlier < place for earlier in subtask.requires):
                raise ValueError(f"subtask {place} requires one that is not before it")
        return self


class PytestGrader(GraderBase):
    """pytest run: passes when pytest collects tests in `files`, and all pass."""

    judges = "files"

    kind: Literal["pytest"]
    files: Texts = Field(min_length=1)


class CommandGrader(GraderBase):
    """Command: passes when the command exits with the expected code.

    With a `runner` in place of `argv`: passes when the tool runs tests, and all pass.
    """

    any_language = True
    judges = "files"

    kind: Literal["command"]
    argv: Arguments = Field(default_factory=list)
    entry_point: str | None = Field(
        None, description="The function that `prompt_code` begins; no other field needs it."
    )
    expect_exit_code: int = 0
    runner: Runner | None = Field(
        None,
        description="The tool that runs the tests in `files`; it needs the submission's language: go, "
        "java, javascript, python or rust.",
    )
    files: Texts = Field(
        default_factory=dict, description="Test files by path; they replace the submission's."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.argv) == (self.runner is not None):
            raise ValueError("a command has either an argv or a runner")
        if self.runner is not None and not self.files:
            raise ValueError("a runner needs files with tests")
        return self


class VerifierGrader(GraderBase):
    """Verifier of the task's author: Python, or a program of any language, that returns a score from 0 to 1.

    It runs in a sandbox of its own and gets the completion, its code, the prompt, `params`, and a handle
    to the submission: docs/verifiers.md.
    """

    by_default = "separated"
    any_language = True
    judges = "completion"

    kind: Literal["verifier"]
    name: str | None = Field(
        None, description="A verifier of the service, as in GET /verifiers, in place of `source`."
    )
    source: str = ""
    verifier_language: str = Field("python", description="Of `source`.")
    files: Texts = Field(default_factory=dict, description="Files beside the verifier, by path.")
    environment: str | None = Field(None, description="Of the verifier; by default `default`.")
    verifier_limits: Limits | None = Field(None, description="Of the verifier.")
    params: JsonObject = Field(default_factory=dict, description="Data of the task.")
    reference: str | None = Field(
        None,
        description="A completion that is right: the verifier judges it once for a task, and a score below "
        "1.0 is an `invalid_task`.",
    )
    min: float = Field(0.0, allow_inf_nan=False, description="Reward of the score 0.")
    max: float = Field(1.0, allow_inf_nan=False, description="Reward of the score 1.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.name is None) == (not self.source):
            raise ValueError("a verifier has either a name or a source")
        if not self.min < self.max:
            raise ValueError("min is not below max")
        return self


class HarborGrader(GraderBase):
    """Verifier of a Harbor task: `/tests/test.sh` writes the reward below `/logs/verifier`.

    Judges the files of a sandbox of an image, in a fresh sandbox of the same
    image: for /rollout and /sandboxes/{id}/grade.
    """

    judges = "sandbox"

    kind: Literal["harbor"]
    tests: Texts = Field(min_length=1, description="Path below `/tests` to text; with a `test.sh`.")
    binary_tests: Base64Texts = Field({}, description="Path below `/tests` to base64.")
    env: Variables = Field({}, description="Variables of `test.sh`, beside the image's own.")
    timeout_seconds: float = Field(600, gt=0, description="Of `test.sh`.")
    separate: bool = Field(
        False, description="Take over only the files in `keep`, and none by default."
    )
    keep: list[str] = Field(
        [],
        max_length=256,
        description="Absolute paths whose changes the verifier sees, also below system folders.",
    )

    @field_validator("tests")
    @classmethod
    def _with_a_script(cls, files: dict[str, str]) -> dict[str, str]:
        if "test.sh" not in files:
            raise ValueError("there is no test.sh")
        return files

    @field_validator("keep")
    @classmethod
    def _absolute(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
                raise ValueError(f"{path[:100]!r} is no absolute path")
        return paths


Grader = Annotated[
    ExecGrader
    | AssertsGrader
    | CallsGrader
    | StdioGrader
    | PytestGrader
    | CommandGrader
    | VerifierGrader
    | HarborGrader
    | RepositoryGrader,
    Field(discriminator="kind"),
]

GRADERS: Mapping[str, type[GraderBase]] = MappingProxyType(
    {
        get_args(each.model_fields["kind"].annotation)[0]: each
        for each in get_args(get_args(Grader)[0])
    }
)
"""Model of each kind of grader."""
