"""Programs of a task's author, each in a sandbox of its own: checkers, interactors, generators, references.

The submission never sees their source, their files or their input.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from proctor_client.wire.base import Arguments, Request, Texts
from proctor_client.wire.limits import Limits

CheckerName = Literal["unordered_lines", "unordered_tokens", "one_of", "permutation", "float_lists"]
MAX_SEEDS = 4096
MAX_SUBTASK_PLACES = 16_384
"""Cases and requirements of all subtasks together."""
_MAX_POINTS = 1e12


class AuthorProgram(Request):
    """Program of the task's author. Compiled once for a task, and kept."""

    language: str = "python"
    source: str = Field(min_length=1)
    files: Texts = Field(
        default_factory=dict,
        description="Path to text, beside the source, also for its compiler: `testlib.h`.",
    )
    limits: Limits | None = Field(None, description="Of one run; by default the server's.")
    environment: str | None = Field(None, description="By default `default`.")


class Checker(AuthorProgram):
    """Program for checking an output.

    `testlib`: gets the paths `input output answer`; its exit code is 0 for right, 1 or 2 for wrong, 7 for
    points (`points 0.5` on stderr). `icpc`, for the validators of ICPC's problem packages, DOMjudge and
    Kattis: gets the paths `input answer folder`, and the output on stdin; its exit code is 42 for right, 43
    for wrong. `open_r1`: gets the paths `input answer output`, and prints only a score from 0 to 1. The input
    is the case's stdin, or the only file of a case without stdin.
    """

    convention: Literal["testlib", "icpc", "open_r1"] = "testlib"
    argv: Arguments = Field(default_factory=list, description="Arguments behind the paths.")
    max_points: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Points of testlib that are the whole score."
    )


class Interactor(AuthorProgram):
    """Program talking with the submission: each reads the other's stdout on stdin.

    The paths in its arguments and its exit codes are as for a checker: `testlib`: `input output answer`, with
    `output` open for writing; `icpc`: `input answer folder`.
    """

    convention: Literal["testlib", "icpc"] = "testlib"
    argv: Arguments = Field(default_factory=list, description="Arguments behind the paths.")
    max_points: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Points of testlib that are the whole score."
    )


class GeneratedCases(Request):
    """Cases with inputs printed by a generator, and expected outputs printed by a reference.

    Made once for a task, and kept. The generator gets the seed as its arguments, split at spaces.
    """

    generator: AuthorProgram
    seeds: list[int | str] = Field(min_length=1, max_length=MAX_SEEDS)
    reference: AuthorProgram | None = Field(
        None, description="Not needed by a checker or an interactor that needs no answer."
    )


class Subtask(Request):
    """Group of cases; all must pass to earn the group's points.

    Among cases with a score from 0 to 1, the least score is the earned part of the points.
    """

    points: float = Field(gt=0, le=_MAX_POINTS, allow_inf_nan=False)
    cases: list[int] = Field(min_length=1, max_length=4096, description="Places, from 0.")
    requires: list[int] = Field(
        default_factory=list,
        max_length=4096,
        description="Places of earlier subtasks without whose full points this one earns nothing.",
    )


def _kind_of_checker(value: Any) -> str:
    return "name" if isinstance(value, str) else "Checker"


CheckerField: TypeAlias = Annotated[
    Annotated[CheckerName, Tag("name")] | Annotated[Checker, Tag("Checker")],
    Discriminator(_kind_of_checker),
]
