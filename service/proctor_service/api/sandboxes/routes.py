"""/sandboxes: create, list, use and stop stateful sandboxes over HTTP.

The result of a command is data. A failure is an HTTP error: a rejected request, or a failure of the
service, which is never reported as the result of a command.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.api.body import parse_body, read_body
from proctor_service.api.connection import while_connected
from proctor_service.api.forwarding import Fleet
from proctor_service.api.rewards.examples import NDJSON
from proctor_service.api.rewards.idempotency import IdempotencyStore, key_of, name_any_request
from proctor_service.api.rewards.items import Machine
from proctor_service.api.rewards.results import Line, encode
from proctor_service.api.rewards.routes import RewardHandler
from proctor_service.api.rewards.streaming import StreamedExecution
from proctor_service.api.sandboxes import docs as docs
from proctor_service.api.sandboxes.wire import (
    SOLUTION,
    command,
    exec_body,
    grading_limits,
    needs_solution,
    nothing_to_judge,
    order,
    sandbox_body,
    submission,
)
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidRequest,
    SandboxEnded,
    SandboxNotFound,
)
from proctor_service.evaluate import Item, NoCode
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Limits
from proctor_service.scheduling.queue import FairQueue
from proctor_service.sessions import Registry, Session

Tags = Annotated[list[str], Query(default_factory=list)]

CREATION_BYTES = 4096  # approximate memory of an ended sandbox
GRADING_SECONDS = 600.0
"""Deadline of a waiting grading; after that the result has the error `deadline`, as in /reward."""


class Creation:
    """The creation of one sandbox, shared by all requests with the same key."""

    def __init__(self, making: Coroutine[Any, Any, Session]) -> None:
        self.failed = False
        self.size_bytes = CREATION_BYTES
        self._making = asyncio.create_task(making)
        self.when_done(self._note)

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` when the creation succeeds or fails."""
        self._making.add_done_callback(lambda _: then())

    async def session(self) -> Session:
        """Return the sandbox. Creation continues after a disconnect, for the client's retry."""
        return await asyncio.shield(self._making)

    def _note(self) -> None:
        self.failed = self._making.cancelled() or self._making.exception() is not None
        if not self.failed:
            self.size_bytes += sum(map(len, self._making.result().tags))


class SandboxHandler:
    """Handlers of the /sandboxes routes, one method per route."""

    def __init__(
        self,
        machine: Machine,
        registry: Registry,
        rewards: RewardHandler,
        gradings: FairQueue,
        ledger: IdempotencyStore[Creation],
        fleet: Fleet,
    ) -> None:
        """`gradings`: queue to limit how many gradings hold a sandbox's files in memory."""
        self.fleet = fleet
        self._machine = machine
        self._registry = registry
        self._rewards = rewards
        self._gradings = gradings
        self._ledger = ledger

    async def drain(self) -> None:
        """Cancel the waiting gradings; the reward handler owns the running gradings."""
        await self._gradings.drain()

    async def create_sandbox(self, request: Request) -> Response:
        """Create a sandbox that keeps its state between calls."""
        tenant = _tenant(request)
        body = await self._body(request)
        name = await name_any_request(tenant, key_of(request.headers), body)
        asked = order(self._machine, await parse_body(wire.SandboxRequest, body), tenant)
        if name is None:
            session = await while_connected(self._registry.create(asked), request.receive)
            return self._sandbox(session, 201)
        # No `await` from here to `remember`: two requests with the same key create one sandbox.
        creation = self._ledger.find(name)
        if creation is None or creation.failed:
            creation = Creation(self._registry.create(asked))
            self._ledger.remember(name, creation)
        return self._sandbox(await while_connected(creation.session(), request.receive), 201)

    async def list_sandboxes(
        self,
        request: Request,
        tag: Tags,
        status: Annotated[list[wire.SandboxStatus], Query(default_factory=list)],
    ) -> Response:
        """List the tenant's sandboxes that have all of these tags and any of these statuses."""
        _check_query(request, "tag", "status")
        others, missing = await self.fleet.elsewhere(request)
        found = self._registry.all(_tenant(request), tag, status)
        backend = self._machine.traits.name
        listed = [sandbox_body(session, backend) for session in found]
        for other in others:
            listed += other["sandboxes"]
        return _json({"sandboxes": listed, "replicas_missing": missing})

    async def get_sandbox(self, request: Request, sandbox_id: str) -> Response:
        """Return a sandbox. This request does not extend its ttl."""
        return self._sandbox(self._registry.find(_tenant(request), sandbox_id), 200)

    async def execute(self, request: Request, sandbox_id: str) -> Response:
        """Run a command or Python code, and return its result when it ends."""
        session = self._live(request, sandbox_id)
        with session.using():
            body = await self._body(request)
            asked = command(self._machine, await parse_body(wire.ExecRequest, body))
            run = partial(self._registry.execute, session.tenant, session.id, asked)
            if NDJSON in request.headers.get("accept", ""):
                return StreamedExecution(run)
            return _json(exec_body(await while_connected(run(), request.receive)))

    async def write_file(self, request: Request, sandbox_id: str, path: str) -> Response:
        """Write a whole file; the request body is the file's content."""
        session = self._live(request, sandbox_id)
        with session.using():
            _check_encoding(request)
            body = await read_body(request, self._machine.settings.max_file_mb)
            await self._registry.write_file(session.tenant, session.id, path, bytes(body))
        return Response(status_code=204)

    async def read_file(self, request: Request, sandbox_id: str, path: str) -> Response:
        """Return the content of a whole file."""
        _check_encoding(request)
        data = await self._registry.read_file(_tenant(request), sandbox_id, path)
        return Response(data, media_type="application/octet-stream")

    async def grade(self, request: Request, sandbox_id: str) -> Response:
        """Judge the sandbox's current files, in a fresh sandbox.

        A sandbox that its own programs ended has no files; the result is then a verdict too.
        """
        session = self._registry.find(_tenant(request), sandbox_id)
        if not session.by_own_act:
            session.check()
        begun = time.monotonic()
        with session.using():
            asked = await parse_body(wire.GradeRequest, await self._body(request))
            limits = grading_limits(self._machine, asked, session)
            grading = self._grade(session, asked, limits, begun + GRADING_SECONDS)
            line = await while_connected(grading, request.receive)
        return Response(line.json, media_type="application/json")

    async def stop_sandbox(
        self, request: Request, sandbox_id: str, missing_ok: bool = False
    ) -> Response:
        """Stop a sandbox, and answer when it is fully removed."""
        _check_query(request, "missing_ok")
        stopped = False
        try:
            session = self._registry.find(_tenant(request), sandbox_id)
            stopped = await self._registry.stop(session.tenant, session.id)
            if not (stopped or missing_ok):
                session.check()
        except SandboxNotFound:
            if not missing_ok:
                raise
        return _json({"stopped": int(stopped)})

    async def stop_sandboxes(self, request: Request, tag: Tags) -> Response:
        """Stop all sandboxes that have all of these tags."""
        _check_query(request, "tag")
        stopped = await self._registry.stop_tagged(_tenant(request), tag)
        others, missing = await self.fleet.elsewhere(request)
        stopped += sum(other["stopped"] for other in others)
        return _json({"stopped": stopped, "replicas_missing": missing})

    def _live(self, request: Request, sandbox_id: str) -> Session:
        """Return the sandbox if usable; raise its error before the body is read."""
        session = self._registry.find(_tenant(request), sandbox_id)
        session.check()
        return session

    async def _body(self, request: Request) -> bytearray:
        return await read_body(request, self._machine.settings.max_body_mb)

    def _sandbox(self, session: Session, status: int) -> Response:
        return _json(sandbox_body(session, self._machine.traits.name), status)

    async def _grade(
        self, session: Session, asked: wire.GradeRequest, limits: Limits, deadline: float
    ) -> Line:
        gradings = self._gradings
        with closing(gradings.reserve(1, (session.tenant, session.job))):
            async with gradings.admit(session.tenant, session.job, deadline):
                item = Item(
                    evaluation_id=f"ev_{uuid.uuid4().hex}",
                    submission=await self._submission(session, asked, limits),
                    tenant=session.tenant,
                    job=session.job,
                    deadline=deadline,
                    tags=session.tags,
                    graded_sandbox_id=session.id,
                )
                batch = self._rewards.judge_one(item)
                with batch.reading():
                    await batch.wait()
        return batch.lines()[0]

    async def _submission(
        self, session: Session, asked: wire.GradeRequest, limits: Limits
    ) -> Submission | NoCode:
        try:
            return await self._state(session, asked, limits)
        except SandboxEnded as ended:
            if not session.by_own_act:
                raise
            return nothing_to_judge(asked, ended.message)

    async def _state(
        self, session: Session, asked: wire.GradeRequest, limits: Limits
    ) -> Submission | NoCode:
        where = (session.tenant, session.id)
        solution = None
        try:
            solution = await self._registry.read_file(*where, SOLUTION)
        except (FileMissing, FileRefused) as refusal:
            if needs_solution(asked):
                return nothing_to_judge(asked, refusal.message)
        try:
            state = await self._registry.snapshot(*where)
        except FileRefused as refusal:
            return nothing_to_judge(asked, refusal.message)
        return submission(asked, limits, solution, state)


def _tenant(request: Request) -> str:
    tenant: str = request.state.tenant
    return tenant


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(encode(body), status, media_type="application/json")


def _check_query(request: Request, *known: str) -> None:
    """Raise InvalidRequest for an unknown name: a misspelt filter must not match all sandboxes."""
    for name in request.query_params:
        if name not in known:
            raise InvalidRequest(f"{name[:100]}: unknown field of the query")


def _check_encoding(request: Request) -> None:
    """Raise InvalidRequest for a path in invalid UTF-8: decoding would name another file."""
    try:
        unquote_to_bytes(request.scope["raw_path"]).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("path: it is not UTF-8") from None


class _FilePath(PathConvertor):
    """A file's path, in which every character is allowed, line breaks included."""

    regex = "(?s:.*)"


register_url_convertor("file", _FilePath())


def sandbox_routes(handler: SandboxHandler) -> APIRouter:
    """Return all routes of /sandboxes."""
    routes = APIRouter(route_class=handler.fleet.route_class())
    add = routes.add_api_route
    one = "/sandboxes/{sandbox_id}"
    file = one + "/files/{path:file}"
    add("/sandboxes", handler.create_sandbox, methods=["POST"], **docs.create())
    add("/sandboxes", handler.list_sandboxes, methods=["GET"], **docs.listing())
    add("/sandboxes", handler.stop_sandboxes, methods=["DELETE"], **docs.stop_tagged())
    add(one, handler.get_sandbox, methods=["GET"], **docs.get())
    add(one, handler.stop_sandbox, methods=["DELETE"], **docs.stop())
    add(one + "/exec", handler.execute, methods=["POST"], **docs.execute())
    add(file, handler.write_file, methods=["PUT"], **docs.write_file())
    add(file, handler.read_file, methods=["GET"], **docs.read_file())
    add(one + "/grade", handler.grade, methods=["POST"], **docs.grade())
    return routes
