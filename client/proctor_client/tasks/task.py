"""Tasks: everything about a problem before a completion comes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from proctor_client import wire

Completion: TypeAlias = str | list[dict[str, Any]]
Row: TypeAlias = Mapping[str, Any]


class DatasetError(ValueError):
    """Raised for an unreadable file and for an unusable row; the message names the row."""


class BadTask(ValueError):
    """Raised for an unusable row. Its completions stay unrewarded, rather than getting 0.0."""


class MissingColumns(ValueError):
    """Raised when the columns of the data set leave the judging of a completion undefined."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Completion in form of a Python expression, rather than a program.

    The expression is the value of a call, or with `of_arguments` a call of `function`: then its arguments
    count. `code` defines the names allowed in an answer with arguments.
    """

    of_arguments: bool
    function: str = "f"
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Judging fields of a wire.Submission, as values of JSON, and their origin.

    `id` and `place` (`file:line`) name the row. `reference` is the row's own solution. `text` is the
    text for a policy, or None. `answer` is set where completions are other things than programs.
    """

    grader: Mapping[str, Any] | None = None
    language: str = "python"
    prelude: str | None = None
    prompt_code: str | None = None
    suffix_code: str | None = None
    compiler: Mapping[str, Any] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] | None = None
    scoring: str | None = None
    negative_control: str | None = None
    extract: str | Mapping[str, Any] | None = None
    environment: str | Mapping[str, Any] | None = None
    prompt: Any = None
    group: str | None = None
    id: str = ""
    place: str = ""
    reference: Completion | None = None
    text: str | None = None
    answer: Answer | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any], **origin: Any) -> Self:
        """Return the task with these fields of a submission. Raises BadTask for an unknown field."""
        for name in fields:
            if name not in SUBMISSION_FIELDS:
                raise BadTask(f"{name}: no field of a submission{near(name, SUBMISSION_FIELDS)}")
        return cls(**{name: value for name, value in fields.items() if value is not None}, **origin)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the submission with other values than the default."""
        return {
            name: value
            for name in SUBMISSION_FIELDS
            if (value := getattr(self, name)) is not None and value != _DEFAULTS.get(name)
        }

    def with_fields(self, changed: Mapping[str, Any]) -> Self:
        """Return the same task with other values of these attributes, such as `id` and `limits`."""
        return dataclasses.replace(self, **changed)


SUBMISSION_FIELDS: tuple[str, ...] = tuple(
    each.name
    for each in dataclasses.fields(Task)
    if each.name not in ("id", "place", "reference", "text", "answer")
)
"""Names of the fields of a wire.Submission that belong to its task."""
_DEFAULTS: Mapping[str, Any] = {"language": "python", "files": {}}

_TYPO = 0.85
"""Likeness of `entrypoint` and `entry_point`, by difflib, is 0.95; that of `name` and `fn_name` 0.73."""

TaskOf: TypeAlias = Callable[[Row], Task | Mapping[str, Any]]
"""Function from a row to its task, or to the fields of a task; it raises BadTask."""


def fields_of(made: Task | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a submission returned by a TaskOf."""
    return made.fields if isinstance(made, Task) else made


def submission_of(
    task: Task, completion: Completion, *, id: str | None = None, group: str | None = None
) -> wire.Submission:
    """Return the submission of a completion. Raises pydantic's ValidationError for an invalid task."""
    from proctor_client import wire

    named = {name: value for name, value in (("id", id), ("group", group)) if value is not None}
    return wire.Submission.model_validate({**named, **task.fields, "completion": completion})


def near(name: str, names: tuple[str, ...], closeness: float = 0.6) -> str:
    """Return `: did you mean x?` for the nearest of the names, or an empty text."""
    found = get_close_matches(name, names, 1, closeness)
    return f": did you mean {found[0]}?" if found else ""


def refuse_typos(
    fields: Mapping[str, Any], names: tuple[str, ...], closeness: float = _TYPO
) -> None:
    """Raise BadTask for a field with a name close to an absent name of `names`.

    Rows have fields of their own, but `entrypoint` without an `entry_point` is a typo.
    """
    absent = [name for name in names if fields.get(name) is None]
    for name, value in fields.items():
        if name in names or value is None:
            continue
        # A letter that only one name has is unmatched, and like names have few: most need no comparison.
        alike = tuple(
            each
            for each in absent
            if len({*name} ^ {*each}) <= (1 - closeness) * (len(name) + len(each))
        )
        hint = near(name, alike, closeness) if alike else ""
        if hint:
            raise BadTask(f"{name[:100]}{hint}")
