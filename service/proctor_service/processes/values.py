"""Submissions, judgements, commands and errors as plain values for a `Connection`, and back."""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sized
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from proctor_client.wire import (
    AuthorProgram,
    Call,
    Checker,
    Compiler,
    Failure,
    FilesOfCommit,
    GeneratedCases,
    Grader,
    Interactor,
    JunitReport,
    RepositoryPreparation,
    RepositoryResult,
    RepositoryRule,
    ScriptReport,
    StdioCase,
    Subtask,
    Tolerance,
)
from proctor_client.wire import Limits as WireLimits
from proctor_client.wire.graders import GRADERS
from proctor_service.errors import ProctorServiceError, SandboxLost
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Command, Ended, Limits, Operation, Traits, Usage

Values = tuple[Any, ...]

_PARTS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            *(Call, StdioCase, Tolerance, WireLimits, AuthorProgram, Checker, Interactor),
            *(GeneratedCases, Subtask),
            *(RepositoryPreparation, FilesOfCommit, JunitReport, ScriptReport, RepositoryRule),
        )
    }
)
"""Models within graders."""
_REMEMBERED_GRADERS = 32
_REMEMBERED_BYTES = 32 << 20

limits_values = attrgetter(*Limits.__slots__)
command_values = attrgetter(*Command.__slots__)
operation_values = attrgetter(*Operation.__slots__)
traits_values = attrgetter(*Traits.__slots__)
_usage_values = attrgetter(*Usage.__slots__)
_ended_values = attrgetter(
    "ending", "exit_code", "signal", "stdout", "stderr", "truncated", "doubt"
)
_judgement_values = attrgetter(
    "verdict", "passed", "total", "message", "stdout", "stderr", "truncated", "exit_code",
    "integrity", "level", "hack_signals", "negative_control", "sandbox_id", "unreported",
    "score",
)  # fmt: skip


class Graders:
    """Graders as bytes, and back; the submissions of a group share their grader, so a few are kept."""

    def __init__(self) -> None:
        self._encoded: OrderedDict[int, tuple[Grader, bytes]] = OrderedDict()
        self._decoded: OrderedDict[bytes, Grader] = OrderedDict()
        self._encoded_bytes = 0
        self._decoded_bytes = 0

    def encode(self, grader: Grader) -> bytes:
        """Return the grader as bytes."""
        entry = self._encoded.get(id(grader))
        if entry is None:
            text = marshal.dumps((grader.kind, _fields_of(grader)))
            entry = self._encoded[id(grader)] = (grader, text)  # the reference keeps the id unique
            self._encoded_bytes += len(text)
            while _is_too_much(self._encoded, self._encoded_bytes):
                _, (_, oldest) = self._encoded.popitem(last=False)
                self._encoded_bytes -= len(oldest)
        return entry[1]

    def decode(self, text: bytes) -> Grader:
        """Return the grader passed to `encode`."""
        grader = self._decoded.get(text)
        if grader is None:
            kind, fields = marshal.loads(text)
            # Without a second validation: the values come from a valid grader.
            made: Any = GRADERS[kind].model_construct(**_decoded_fields(fields))
            grader = self._decoded[text] = made
            self._decoded_bytes += len(text)
            while _is_too_much(self._decoded, self._decoded_bytes):
                oldest, _ = self._decoded.popitem(last=False)
                self._decoded_bytes -= len(oldest)
        return grader


def _fields_of(model: BaseModel) -> dict[str, Any]:
    """Return the fields of a model; a model among them is a tuple of its name and its fields."""
    return {name: _plain(value) for name, value in model.__dict__.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return type(value).__name__, _fields_of(value)
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return [_plain(each) for each in value]
    return value


def _decoded_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields passed to `_fields_of`."""
    return {name: _made(value) for name, value in fields.items()}


def _made(value: Any) -> Any:
    if isinstance(value, tuple):  # JSON has none
        name, fields = value
        return _PARTS[name].model_construct(**_decoded_fields(fields))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return [_made(each) for each in value]
    return value


def grader_json(text: bytes) -> dict[str, Any]:
    """Return a grader passed to `Graders.encode` as its JSON object."""
    kind, fields = marshal.loads(text)
    return {"kind": kind, **_json_of(fields)}


def _json_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: _json_value(value) for name, value in fields.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return _json_of(value[1])
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return [_json_of(fields) for _, fields in value]
    return value


def _is_too_much(graders: Sized, size_bytes: int) -> bool:
    """Return True if the oldest grader must go; the last stays, of any size."""
    return len(graders) > 1 and (
        len(graders) > _REMEMBERED_GRADERS or size_bytes > _REMEMBERED_BYTES
    )


def submission_values(submission: Submission, graders: Graders) -> Values:
    """Return a submission as values."""
    return (
        submission.source,
        graders.encode(submission.grader),
        limits_values(submission.limits),
        submission.scoring,
        submission.language,
        dict(submission.files),
        submission.state,
        submission.environment,
        submission.negative_control,
        submission.deadline,
        submission.asked_at,
        compiler_values(submission.compiler),
        submission.completion,
        submission.prompt,
        submission.reference,
        submission.tree_file,
    )


def compiler_values(compiler: Compiler | None) -> dict[str, Any] | None:
    """Return the options of a compiler as values."""
    return None if compiler is None else compiler.model_dump()


def submission_of(values: Values, graders: Graders) -> Submission:
    """Return the submission of `submission_values`."""
    source, grader, limits, *rest, compiler, completion, prompt, reference, tree_file = values
    options = None if compiler is None else Compiler(**compiler)
    submission = Submission(source, graders.decode(grader), Limits(*limits), *rest)
    return replace(
        submission,
        compiler=options,
        completion=completion,
        prompt=prompt,
        reference=reference,
        tree_file=tree_file,
    )


def judgement_values(judgement: Judgement) -> Values:
    """Return a judgement as values."""
    failures = [(each.index, each.test, each.message) for each in judgement.failures]
    repository = None if judgement.repository is None else judgement.repository.model_dump()
    return (*_judgement_values(judgement), repository, failures, _usage_values(judgement.usage))


def judgement_of(values: Values) -> Judgement:
    """Return the judgement of `judgement_values`."""
    (
        verdict, passed, total, message, stdout, stderr, truncated, exit_code,
        integrity, level, hack_signals, negative_control, sandbox_id, unreported, score,
        repository, failures, usage,
    ) = values  # fmt: skip
    return Judgement(
        verdict=verdict,
        passed=passed,
        total=total,
        failures=tuple(
            Failure(index=index, test=test, message=message) for index, test, message in failures
        ),
        message=message,
        stdout=stdout,
        stderr=stderr,
        truncated=truncated,
        exit_code=exit_code,
        integrity=integrity,
        level=level,
        hack_signals=hack_signals,
        negative_control=negative_control,
        usage=Usage(*usage),
        sandbox_id=sandbox_id,
        unreported=unreported,
        score=score,
        repository=None if repository is None else RepositoryResult.model_validate(repository),
    )


def ended_values(ended: Ended) -> Values:
    """Return the ending of a command or a sandbox as values."""
    return (*_ended_values(ended), _usage_values(ended.usage))


def ended_of(values: Values) -> Ended:
    """Return the ending of `ended_values`."""
    ending, exit_code, number, stdout, stderr, truncated, doubt, usage = values
    return Ended(ending, exit_code, number, stdout, stderr, truncated, Usage(*usage), doubt)


class WorkerFault(Exception):
    """A bug of the service in a judge process; the message is the traceback there."""


def error_of(name: str, message: str) -> Exception:
    """Return the error with this class name and message; a WorkerFault for an unknown name."""
    found = _ERRORS.get(name)
    return WorkerFault(message) if found is None else found(message)


def _with_subclasses(base: type[ProctorServiceError]) -> Iterator[type[ProctorServiceError]]:
    yield base
    for each in base.__subclasses__():
        yield from _with_subclasses(each)


_ERRORS: Mapping[str, type[ProctorServiceError]] = MappingProxyType(
    {each.__name__: each for each in _with_subclasses(ProctorServiceError)}
)


def lost_with_worker() -> SandboxLost:
    """Return the error of a sandbox after its judge process's end."""
    return SandboxLost("the judge process that held this sandbox has ended")
