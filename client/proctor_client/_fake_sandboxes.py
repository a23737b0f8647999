"""Sandboxes of the fake service: files in memory, and commands with results defined by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import httpx
from pydantic import ValidationError

from proctor_client import wire
from proctor_client._fake_answers import Lines, Plain, as_json, as_line, problem
from proctor_client._fake_journal import EPOCH, FakeJournal, Origin
from proctor_client._runtime import Clock
from proctor_client.errors import from_validation
from proctor_client.stats import Counts, outcome_of

Executed: TypeAlias = wire.ExecResult | str | int | wire.ItemError
"""Result of a command: a whole wire.ExecResult, its stdout, its exit code, or an error."""


@dataclass
class FakeSandbox:
    """Sandbox. Tests may read and change its `files`, with paths without `./`."""

    id: str
    order: wire.SandboxRequest
    created_seconds: float
    expires_seconds: float
    files: dict[str, bytes] = field(default_factory=dict)
    status: wire.SandboxStatus = "running"
    message: str = ""


Execute: TypeAlias = Callable[[FakeSandbox, wire.ExecRequest], Executed]


class FakeSandboxes:
    """All fake sandboxes. Commands run outside the lock, so a test may block a command."""

    def __init__(self, execute: Execute, journal: FakeJournal, clock: Clock) -> None:
        self._execute = execute
        self._journal = journal
        self._clock = clock
        self._lock = threading.Lock()
        self._by_id: dict[str, FakeSandbox] = {}
        self._by_key: dict[str, FakeSandbox] = {}
        self._counts = Counts()

    def all(self) -> list[FakeSandbox]:
        """Return every sandbox in order of creation, after stopping the expired sandboxes."""
        with self._lock:
            for each in self._by_id.values():
                if each.status == "running" and self._clock.monotonic() >= each.expires_seconds:
                    each.status, each.message = "stopped", "its time was up"
            return list(self._by_id.values())

    def handle(self, request: httpx.Request) -> Plain | Lines:
        """Answer a request below /sandboxes."""
        try:
            return self._route(request)
        except ValidationError as error:
            return problem(422, "invalid_request", from_validation(error).message)

    def as_wire(self, sandbox: FakeSandbox) -> wire.Sandbox:
        """Return the sandbox as the wire's model."""
        return wire.Sandbox(
            id=sandbox.id,
            status=sandbox.status,
            tags=sandbox.order.tags,
            backend="fake",
            environment=wire.environment_name(sandbox.order.environment) or "default",
            created_at=EPOCH + timedelta(seconds=sandbox.created_seconds),
            expires_at=EPOCH + timedelta(seconds=sandbox.expires_seconds),
            exec_stats=self._counts.stats().by_sandbox.get(sandbox.id, wire.ExecStats()),
            message=sandbox.message,
        )

    def _route(self, request: httpx.Request) -> Plain | Lines:
        sandbox_id, _, rest = request.url.path.removeprefix("/sandboxes").lstrip("/").partition("/")
        tags = request.url.params.get_list("tag")
        if not sandbox_id:
            match request.method:
                case "POST":
                    return self._create(request)
                case "GET":
                    return self._list(tags, request.url.params.get_list("status"))
                case "DELETE" if tags:
                    return self._stop([each for each in self.all() if _carries(each, tags)])
                case "DELETE":
                    return problem(422, "invalid_request", "tag: at least one is wanted")
        found = next((each for each in self.all() if each.id == sandbox_id), None)
        gone = found is None or found.status != "running"
        if gone and request.method == "DELETE" and request.url.params.get("missing_ok") == "true":
            return as_json(wire.StopResponse(stopped=0))
        if found is None:
            return problem(404, "sandbox_not_found", f"no sandbox {sandbox_id}")
        if not rest and request.method == "GET":
            return as_json(self.as_wire(found))
        if gone:
            return problem(410, "sandbox_stopped", found.message)
        if not rest and request.method == "DELETE":
            return self._stop([found])
        found.expires_seconds = self._clock.monotonic() + found.order.ttl_seconds
        return self._use(found, rest, request)

    def _use(self, sandbox: FakeSandbox, rest: str, request: httpx.Request) -> Plain | Lines:
        verb, _, path = rest.partition("/")
        match request.method, verb:
            case "POST", "exec":
                return self._exec(sandbox, request)
            case "POST", "grade":
                return self._grade(sandbox, request)
            case "PUT", "files":
                sandbox.files[path] = request.content
                return Plain(204, {}, b"")
            case "GET", "files" if path in sandbox.files:
                return Plain(200, {}, sandbox.files[path])
            case "GET", "files":
                return problem(404, "file_not_found", f"no file {path}")
            case _:
                return problem(404, "not_found", f"no {request.method} {request.url.path}")

    def _create(self, request: httpx.Request) -> Plain:
        order = wire.SandboxRequest.model_validate_json(request.content)
        key = request.headers.get("idempotency-key", "")
        with self._lock:
            made = self._by_key.get(key)
            if made is None:
                now = self._clock.monotonic()
                name = f"sb_fake_{len(self._by_id)}"
                made = FakeSandbox(name, order, now, now + order.ttl_seconds)
                made.files = {path: text.encode() for path, text in order.files.items()}
                self._by_id[name] = made
                if key:
                    self._by_key[key] = made
        return as_json(self.as_wire(made), 201)

    def _list(self, tags: list[str], statuses: list[str]) -> Plain:
        found = [
            self.as_wire(each)
            for each in self.all()
            if _carries(each, tags) and (not statuses or each.status in statuses)
        ]
        return as_json(wire.SandboxList(sandboxes=found))

    def _stop(self, sandboxes: list[FakeSandbox]) -> Plain:
        with self._lock:
            running = [each for each in sandboxes if each.status == "running"]
            for each in running:
                each.status, each.message = "stopped", "it was stopped"
        return as_json(wire.StopResponse(stopped=len(running)))

    def _exec(self, sandbox: FakeSandbox, request: httpx.Request) -> Plain | Lines:
        order = wire.ExecRequest.model_validate_json(request.content)
        outcome = self._execute(sandbox, order)
        streams = "application/x-ndjson" in request.headers.get("accept", "")
        if isinstance(outcome, wire.ItemError):
            self._counts.executed(sandbox.id, "error")
            if streams:
                return Lines([], [as_line(wire.ExecLine(error=outcome))])
            return problem(503, outcome.reason, outcome.message)
        if isinstance(outcome, str):
            outcome = wire.ExecResult(exit_code=0, stdout=outcome, ending="exited")
        elif isinstance(outcome, int):
            outcome = wire.ExecResult(exit_code=outcome, ending="exited")
        self._counts.executed(sandbox.id, outcome_of(outcome))
        if not streams:
            return as_json(outcome)
        output = [
            wire.ExecLine(stdout=outcome.stdout or None),
            wire.ExecLine(stderr=outcome.stderr or None),
        ]
        printed = [as_line(each) for each in output if each.stdout or each.stderr]
        return Lines(printed, [as_line(wire.ExecLine(result=outcome))])

    def _grade(self, sandbox: FakeSandbox, request: httpx.Request) -> Plain:
        order = wire.GradeRequest.model_validate_json(request.content)
        submission = wire.Submission(
            completion=sandbox.files.get("solution.py", b"").decode(errors="replace"),
            grader=order.grader,
            scoring=order.scoring,
            limits=order.limits,
        )
        created = sandbox.order
        origin = Origin(created.job, order.step, created.tags, graded_sandbox_id=sandbox.id)
        result = self._journal.judge(0, submission, origin)
        return as_json(result.model_copy(update={"sandbox_id": sandbox.id}))


def _carries(sandbox: FakeSandbox, tags: list[str]) -> bool:
    return set(tags) <= set(sandbox.order.tags)
