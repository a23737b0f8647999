"""Calls about stateful sandboxes, each as a flow for a client's driver.

A path with `..` is rejected, because URL parsers resolve `..`, and the result would be another
route. An execution is sent again only if the earlier attempt surely did not begin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote, urlencode

from proctor_client import wire
from proctor_client._answers import parse_exec_line, parse_model
from proctor_client._calls import CodeOptions, longest_seconds
from proctor_client._flow import Call, Emit, Flow, Policy, Reply, answer_flow, lines_flow
from proctor_client._requests import checked, encode, strings
from proctor_client._runtime import Clock
from proctor_client.errors import (
    InvalidRequestError,
    ProctorError,
    SandboxFileError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxTimeoutError,
    surely_unbegun,
)
from proctor_client.stats import ActiveCount

T = TypeVar("T")
M = TypeVar("M", bound=wire.Response)
L = TypeVar("L", wire.SandboxList, wire.StopResponse)
E = TypeVar("E", wire.ExecResult, wire.ExecLine)
AnyGrader: TypeAlias = wire.Grader | Mapping[str, Any]
AnyLimits: TypeAlias = wire.Limits | Mapping[str, Any]

CREATE_SECONDS = 120.0
# Waiting for a core counts against no command. The client allows the same wait as for a batch.
QUEUE_SECONDS = 630.0
UNLIMITED_EXEC_SECONDS = 120.0
ACTIVE: tuple[wire.SandboxStatus, ...] = ("pending", "running")


class SandboxOptions(TypedDict, total=False):
    """Fields of wire.SandboxRequest, with the model's defaults."""

    tags: Iterable[str]
    """Labels for searches and for the logs; default: none."""
    ttl_seconds: float
    """The service stops a sandbox that is idle for this long; default: 600."""
    limits: AnyLimits | None
    """Memory, processes and disk of all commands, time of each; None: the server's limits."""
    files: Mapping[str, str]
    """Initial files, as path to text; default: none."""
    job: str
    """Name of the training run, used for fair sharing of the service; default: "default"."""
    environment: wire.EnvironmentChoice | None
    """Environment of the sandbox; None selects `default`."""
    repository: wire.RepositoryGrader | Mapping[str, Any] | None
    """Task of an agent about a repository, in the sandbox's image; default: none."""


def sandbox_request(options: SandboxOptions) -> wire.SandboxRequest:
    """Build the wire.SandboxRequest. Raises InvalidRequestError, which names the wrong field."""
    return checked(wire.SandboxRequest, options)


def exec_request(
    command: Sequence[str] | None, code: str | None, stdin: str, timeout_seconds: float | None
) -> wire.ExecRequest:
    """Build the wire.ExecRequest, without fields at their default. Raises InvalidRequestError."""
    if isinstance(command, str):
        raise InvalidRequestError('command: an argv is wanted, such as ["bash", "-c", "…"]')
    fields = {"command": command, "code": code, "timeout_seconds": timeout_seconds}
    present = {name: value for name, value in fields.items() if value is not None}
    return checked(wire.ExecRequest, {**present, "stdin": stdin} if stdin else present)


@dataclass(frozen=True)
class SandboxCalls:
    """Builder of the flows."""

    policy: Policy
    clock: Clock
    create_seconds: float = CREATE_SECONDS

    def hasty(self) -> SandboxCalls:
        """Return the same calls with short limits, for clean-up: a few attempts within seconds."""
        policy = replace(
            self.policy,
            max_attempts=min(self.policy.max_attempts, 3),
            retry_budget_seconds=min(self.policy.retry_budget_seconds, 5.0),
            timeout_seconds=min(self.policy.timeout_seconds, 10.0),
        )
        return replace(self, policy=policy, create_seconds=policy.timeout_seconds)

    def create(self, request: wire.SandboxRequest, key: str) -> Flow[wire.Sandbox]:
        """Build the flow of POST /sandboxes. The same `key` always refers to the same sandbox."""
        seconds = max(self.policy.timeout_seconds, self.create_seconds)
        call = Call("POST", "/sandboxes", seconds, content=encode(request), key=key)
        return self._model(call, wire.Sandbox)

    def get(self, sandbox_id: str) -> Flow[wire.Sandbox]:
        """Build the flow of GET /sandboxes/{id}."""
        return self._model(self._call("GET", _path(sandbox_id)), wire.Sandbox)

    def find(self, tags: Iterable[str], statuses: str | Iterable[str]) -> Flow[list[wire.Sandbox]]:
        """Build the flow of GET /sandboxes."""
        names = [statuses] if isinstance(statuses, str) else strings("status", statuses)
        query = urlencode({"tag": strings("tags", tags), "status": names}, doseq=True)
        call = self._call("GET", f"/sandboxes?{query}" if query else "/sandboxes")
        return self._answer(call, lambda body: _whole(wire.SandboxList, body).sandboxes)

    def count(self, tags: Iterable[str]) -> Flow[ActiveCount]:
        """Build the flow of GET /sandboxes, which counts the sandboxes by status."""
        query = urlencode({"tag": strings("tags", tags), "status": ACTIVE}, doseq=True)
        return self._answer(self._call("GET", f"/sandboxes?{query}"), _count)

    def exec(
        self, sandbox_id: str, request: wire.ExecRequest, limits: wire.Limits | None
    ) -> Flow[wire.ExecResult]:
        """Build the flow of POST …/exec with one JSON answer."""
        call = self._exec_call(sandbox_id, request, limits, accept="application/json")
        return self._model(call, wire.ExecResult)

    def stream(
        self, sandbox_id: str, request: wire.ExecRequest, limits: wire.Limits | None
    ) -> Flow[wire.ExecLine]:
        """Build the flow of POST …/exec with streamed output."""
        call = self._exec_call(sandbox_id, request, limits, accept="application/x-ndjson")
        return lines_flow(
            call, parse_exec_line, lambda line: line.result is not None, self.policy, self.clock
        )

    def read_file(self, sandbox_id: str, path: str) -> Flow[bytes]:
        """Build the flow of GET …/files/{path}."""
        call = replace(self._call("GET", _file_path(sandbox_id, path)), accept="*/*")
        return _file_flow(self._answer(call, bytes))

    def write_file(self, sandbox_id: str, path: str, data: bytes | str) -> Flow[None]:
        """Build the flow of PUT …/files/{path}."""
        call = self._call("PUT", _file_path(sandbox_id, path))
        call = replace(call, content=_bytes(data), content_type="application/octet-stream")
        return _file_flow(self._answer(call, lambda body: None))

    def grade(
        self,
        sandbox_id: str,
        grader: AnyGrader,
        scoring: wire.Scoring,
        limits: AnyLimits | None,
        step: int | None = None,
        negative_control: wire.NegativeControl = "signal",
        code: CodeOptions | None = None,
    ) -> Flow[wire.Result]:
        """Build the flow of POST …/grade. Raises InvalidRequestError at once."""
        own: dict[str, Any] = {"limits": limits, "step": step, **(code or {})}
        if negative_control != "signal":  # the default of a service that knows the field
            own["negative_control"] = negative_control
        options = {name: value for name, value in own.items() if value is not None}
        request = checked(wire.GradeRequest, {"grader": grader, "scoring": scoring, **options})
        seconds = max(self.policy.timeout_seconds, QUEUE_SECONDS)
        if isinstance(request.grader, wire.HarborGrader):  # its verifier may run twice
            seconds += 2 * request.grader.timeout_seconds
        if isinstance(request.grader, wire.RepositoryGrader):  # the tests may run twice
            seconds += 2 * longest_seconds(request.limits)
        path = _path(sandbox_id, "/grade")
        return self._model(Call("POST", path, seconds, content=encode(request)), wire.Result)

    def stop(self, sandbox_id: str, *, missing_ok: bool) -> Flow[bool]:
        """Build the flow of DELETE /sandboxes/{id}; it emits True if this call stopped it."""
        call = self._call("DELETE", _path(sandbox_id, "?missing_ok=true" if missing_ok else ""))
        flow = self._answer(call, lambda body: parse_model(wire.StopResponse, body).stopped > 0)
        return _stopped_once(flow)

    def stop_tagged(self, tags: Iterable[str]) -> Flow[int]:
        """Build the flow of DELETE /sandboxes?tag=…, which emits the number of stopped sandboxes.

        Raises InvalidRequestError for an empty `tags`.
        """
        listed = strings("tags", tags)
        if not listed:
            raise InvalidRequestError(
                "tags: at least one is wanted, or everything would be stopped"
            )
        call = self._call("DELETE", f"/sandboxes?{urlencode({'tag': listed}, doseq=True)}")
        return self._answer(call, lambda body: _whole(wire.StopResponse, body).stopped)

    def _exec_call(
        self,
        sandbox_id: str,
        request: wire.ExecRequest,
        limits: wire.Limits | None,
        *,
        accept: str,
    ) -> Call:
        path, content = _path(sandbox_id, "/exec"), encode(request)
        seconds = QUEUE_SECONDS + _exec_seconds(request, limits)
        return Call("POST", path, seconds, content=content, accept=accept, repeatable=False)

    def _call(self, method: str, path: str) -> Call:
        return Call(method, path, self.policy.timeout_seconds)

    def _model(self, call: Call, model: type[M]) -> Flow[M]:
        return self._answer(call, partial(parse_model, model))

    def _answer(self, call: Call, parse: Callable[[bytes], T]) -> Flow[T]:
        return answer_flow(call, parse, self.policy, self.clock)


def followed(
    flow: Flow[E], request: wire.ExecRequest, note: Callable[[wire.ExecResult | None], None]
) -> Flow[E]:
    """Wrap an execution's flow; call `note` once, with the result or with None.

    Raises SandboxTimeoutError at the end if a time limit ended the command.
    """
    result: wire.ExecResult | None = None
    reply: Reply = None
    try:
        while True:
            try:
                step = flow.send(reply)
            except StopIteration:
                break
            if isinstance(step, Emit):
                item = step.item
                result = item if isinstance(item, wire.ExecResult) else item.result
            reply = yield step
    finally:
        flow.close()
        note(result)
    if result is not None and result.ending in ("wall_limit", "cpu_limit"):
        raise SandboxTimeoutError(_timed_out(result, request), result)


def _stopped_once(flow: Flow[bool]) -> Flow[bool]:
    """Wrap a stop's flow: after a lost answer, a missing sandbox counts as stopped by this call."""
    lost = False
    reply: Reply = None
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return
        except (SandboxStoppedError, SandboxNotFoundError):
            if not lost:
                raise
            yield Emit(True)
            return
        reply = yield step
        lost = lost or (isinstance(reply, ProctorError) and not surely_unbegun(reply))


def check_id(sandbox_id: str) -> str:
    """Return the id. Raises InvalidRequestError for an id with characters of a URL's path."""
    if not sandbox_id or quote(sandbox_id, safe="") != sandbox_id or set(sandbox_id) <= {"."}:
        raise InvalidRequestError("sandbox_id: it is not the id of a sandbox")
    return sandbox_id


def _path(sandbox_id: str, rest: str = "") -> str:
    return f"/sandboxes/{check_id(sandbox_id)}{rest}"


def _file_path(sandbox_id: str, path: str) -> str:
    """Return the route of a file. Raises SandboxFileError for a path impossible in a URL."""
    parts = path.split("/")
    if ".." in parts:
        raise _refused("path: it has .. in it; give it without, or from the root")
    if parts[-1] in ("", "."):
        raise _refused("path: it names no file")
    clean_path = "/".join(part for part in parts if part not in ("", "."))
    try:
        # The slash of an absolute path is quoted, because some proxies merge two slashes into one.
        return _path(
            sandbox_id, f"/files/{'%2F' if path.startswith('/') else ''}{quote(clean_path)}"
        )
    except UnicodeEncodeError:
        raise _refused("path: it is no Unicode") from None


def _bytes(data: bytes | str) -> bytes:
    try:
        return data.encode() if isinstance(data, str) else bytes(memoryview(data))
    except UnicodeEncodeError:
        raise _refused("data: a lone surrogate cannot be written as UTF-8") from None


def _refused(why: str) -> SandboxFileError:
    return SandboxFileError(why, reason=InvalidRequestError.reason)


def _file_flow(flow: Flow[T]) -> Flow[T]:
    """Wrap a flow: an InvalidRequestError about a file becomes a SandboxFileError."""
    try:
        yield from flow
    except InvalidRequestError as error:
        raise SandboxFileError(
            error.message, reason=error.reason, status_code=error.status_code
        ) from None


def _exec_seconds(request: wire.ExecRequest, limits: wire.Limits | None) -> float:
    if request.timeout_seconds is not None:
        return request.timeout_seconds
    if limits is None:
        return UNLIMITED_EXEC_SECONDS
    half = UNLIMITED_EXEC_SECONDS / 2
    return (limits.cpu_seconds or half) + (limits.wall_seconds or half)


def _timed_out(result: wire.ExecResult, request: wire.ExecRequest) -> str:
    if request.timeout_seconds is not None:
        plural = "" if request.timeout_seconds == 1 else "s"
        return f"command timed out after {request.timeout_seconds:g} second{plural}"
    used_up = "its CPU time was used up" if result.ending == "cpu_limit" else "it idled too long"
    return f"command timed out: {used_up}"


def _whole(model: type[L], body: bytes) -> L:
    """Return the answer; log a warning if the sandboxes of unavailable replicas are missing."""
    answer = parse_model(model, body)
    if answer.replicas_missing:
        message = "%d replicas did not answer: their sandboxes are left out"
        logging.getLogger("proctor_client").warning(message, answer.replicas_missing)
    return answer


def _count(body: bytes) -> ActiveCount:
    found = [each.status for each in _whole(wire.SandboxList, body).sandboxes]
    return ActiveCount(running=found.count("running"), pending=found.count("pending"))
