"""/sandboxes: sandboxes that keep their state, made, listed, used and stopped over HTTP.

What a sandbox did is data. What goes wrong is an HTTP error: a refusal, or a failure of ours that is
never taken for something that the commands in the sandbox did.
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
from proctor_service.admission.queue import FairQueue
from proctor_service.api import sandbox_docs as docs
from proctor_service.api.body import parse_body, read_body
from proctor_service.api.connection import while_connected
from proctor_service.api.examples import NDJSON
from proctor_service.api.forwarding import Fleet
from proctor_service.api.idempotency import Ledger, key_of, name_any_request
from proctor_service.api.results import Line, encode
from proctor_service.api.rewards import RewardDesk
from proctor_service.api.sandbox_wire import (
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
from proctor_service.api.streaming import StreamedExecution
from proctor_service.api.translate import Machine
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidRequest,
    SandboxEnded,
    SandboxNotFound,
)
from proctor_service.evaluate import Item, NoCode
from proctor_service.judge.submission import Submission
from proctor_service.registry import Kept, Registry
from proctor_service.sandbox.interface import Limits

Tags = Annotated[list[str], Query(default_factory=list)]

CREATION_BYTES = 4096  # what is left of a sandbox that ended, about
GRADING_SECONDS = 600.0
"""By then a grading that still waits comes back with the error `deadline`, as for /reward."""


class Creation:
    """A sandbox that is made once for all requests with one key."""

    def __init__(self, making: Coroutine[Any, Any, Kept]) -> None:
        self.failed = False
        self.size_bytes = CREATION_BYTES
        self._making = asyncio.create_task(making)
        self.when_done(self._note)

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls `then` once it is made or could not be."""
        self._making.add_done_callback(lambda _: then())

    async def kept(self) -> Kept:
        """The sandbox. It is made to the end though a client goes away: its retry is to find it."""
        return await asyncio.shield(self._making)

    def _note(self) -> None:
        self.failed = self._making.cancelled() or self._making.exception() is not None
        if not self.failed:
            self.size_bytes += sum(map(len, self._making.result().tags))


class SandboxDesk:
    """The routes of /sandboxes, a method for each."""

    def __init__(
        self,
        machine: Machine,
        registry: Registry,
        rewards: RewardDesk,
        gradings: FairQueue,
        ledger: Ledger[Creation],
        fleet: Fleet,
    ) -> None:
        """`gradings`: how many at once may hold a sandbox's files in the service's memory."""
        self.fleet = fleet
        self._machine = machine
        self._registry = registry
        self._rewards = rewards
        self._gradings = gradings
        self._ledger = ledger

    async def drain(self) -> None:
        """Hands back what waits to be graded; what is being graded belongs to the rewards."""
        await self._gradings.drain()

    async def create_sandbox(self, request: Request) -> Response:
        """Makes a sandbox that keeps its state between calls."""
        tenant = _tenant(request)
        body = await self._body(request)
        name = await name_any_request(tenant, key_of(request.headers), body)
        asked = order(self._machine, await parse_body(wire.SandboxRequest, body), tenant)
        if name is None:
            kept = await while_connected(self._registry.create(asked), request.receive)
            return self._sandbox(kept, 201)
        # Nothing waits between looking and remembering: of two requests with one key one makes it.
        creation = self._ledger.find(name)
        if creation is None or creation.failed:
            creation = Creation(self._registry.create(asked))
            self._ledger.remember(name, creation)
        return self._sandbox(await while_connected(creation.kept(), request.receive), 201)

    async def list_sandboxes(
        self,
        request: Request,
        tag: Tags,
        status: Annotated[list[wire.SandboxStatus], Query(default_factory=list)],
    ) -> Response:
        """The tenant's sandboxes that carry all these tags and have one of these statuses."""
        _check_query(request, "tag", "status")
        others, missing = await self.fleet.elsewhere(request)
        found = self._registry.all(_tenant(request), tag, status)
        backend = self._machine.traits.name
        listed = [sandbox_body(kept, backend) for kept in found]
        for other in others:
            listed += other["sandboxes"]
        return _json({"sandboxes": listed, "replicas_missing": missing})

    async def get_sandbox(self, request: Request, sandbox_id: str) -> Response:
        """One sandbox; asking for it does not renew its ttl."""
        return self._sandbox(self._registry.find(_tenant(request), sandbox_id), 200)

    async def execute(self, request: Request, sandbox_id: str) -> Response:
        """Runs a command, or Python code, and waits for its end."""
        kept = self._live(request, sandbox_id)
        with kept.using():
            body = await self._body(request)
            asked = command(self._machine, await parse_body(wire.ExecRequest, body))
            run = partial(self._registry.execute, kept.tenant, kept.id, asked)
            if NDJSON in request.headers.get("accept", ""):
                return StreamedExecution(run)
            return _json(exec_body(await while_connected(run(), request.receive)))

    async def write_file(self, request: Request, sandbox_id: str, path: str) -> Response:
        """Writes a whole file; the body is its bytes."""
        kept = self._live(request, sandbox_id)
        with kept.using():
            _check_encoding(request)
            body = await read_body(request, self._machine.settings.max_file_mb)
            await self._registry.write_file(kept.tenant, kept.id, path, bytes(body))
        return Response(status_code=204)

    async def read_file(self, request: Request, sandbox_id: str, path: str) -> Response:
        """A whole file's bytes."""
        _check_encoding(request)
        data = await self._registry.read_file(_tenant(request), sandbox_id, path)
        return Response(data, media_type="application/octet-stream")

    async def grade(self, request: Request, sandbox_id: str) -> Response:
        """Judges the sandbox's files as they are now, in a fresh sandbox.

        One that ended by its own act has none left, and that is a verdict too.
        """
        kept = self._registry.find(_tenant(request), sandbox_id)
        if not kept.by_own_act:
            kept.check()
        begun = time.monotonic()
        with kept.using():
            asked = await parse_body(wire.GradeRequest, await self._body(request))
            limits = grading_limits(self._machine, asked, kept)
            grading = self._grade(kept, asked, limits, begun + GRADING_SECONDS)
            line = await while_connected(grading, request.receive)
        return Response(line.json, media_type="application/json")

    async def stop_sandbox(
        self, request: Request, sandbox_id: str, missing_ok: bool = False
    ) -> Response:
        """Stops a sandbox, and answers when nothing is left of it."""
        _check_query(request, "missing_ok")
        stopped = False
        try:
            kept = self._registry.find(_tenant(request), sandbox_id)
            stopped = await self._registry.stop(kept.tenant, kept.id)
            if not (stopped or missing_ok):
                kept.check()
        except SandboxNotFound:
            if not missing_ok:
                raise
        return _json({"stopped": int(stopped)})

    async def stop_sandboxes(self, request: Request, tag: Tags) -> Response:
        """Stops all sandboxes that carry all these tags."""
        _check_query(request, "tag")
        stopped = await self._registry.stop_tagged(_tenant(request), tag)
        others, missing = await self.fleet.elsewhere(request)
        stopped += sum(other["stopped"] for other in others)
        return _json({"stopped": stopped, "replicas_missing": missing})

    def _live(self, request: Request, sandbox_id: str) -> Kept:
        """The sandbox, if it can be used: else that is said before the body is read."""
        kept = self._registry.find(_tenant(request), sandbox_id)
        kept.check()
        return kept

    async def _body(self, request: Request) -> bytearray:
        return await read_body(request, self._machine.settings.max_body_mb)

    def _sandbox(self, kept: Kept, status: int) -> Response:
        return _json(sandbox_body(kept, self._machine.traits.name), status)

    async def _grade(
        self, kept: Kept, asked: wire.GradeRequest, limits: Limits, deadline: float
    ) -> Line:
        gradings = self._gradings
        with closing(gradings.reserve(1, (kept.tenant, kept.job))):
            async with gradings.admit(kept.tenant, kept.job, deadline):
                item = Item(
                    evaluation_id=f"ev_{uuid.uuid4().hex}",
                    submission=await self._submission(kept, asked, limits),
                    tenant=kept.tenant,
                    job=kept.job,
                    deadline=deadline,
                    tags=kept.tags,
                    graded_sandbox_id=kept.id,
                )
                batch = self._rewards.judge_one(item)
                with batch.reading():
                    await batch.wait()
        return batch.lines()[0]

    async def _submission(
        self, kept: Kept, asked: wire.GradeRequest, limits: Limits
    ) -> Submission | NoCode:
        try:
            return await self._state(kept, asked, limits)
        except SandboxEnded as ended:
            if not kept.by_own_act:
                raise
            return nothing_to_judge(asked, ended.message)

    async def _state(
        self, kept: Kept, asked: wire.GradeRequest, limits: Limits
    ) -> Submission | NoCode:
        where = (kept.tenant, kept.id)
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
    """A misspelt filter must not mean all sandboxes. Raises InvalidRequest."""
    for name in request.query_params:
        if name not in known:
            raise InvalidRequest(f"{name[:100]}: unknown field of the query")


def _check_encoding(request: Request) -> None:
    """Raises InvalidRequest for a path that is not UTF-8: it was read as that of another file."""
    try:
        unquote_to_bytes(request.scope["raw_path"]).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("path: it is not UTF-8") from None


class _FilePath(PathConvertor):
    """A path as a file may have it: with any character, line breaks among them."""

    regex = "(?s:.*)"


register_url_convertor("file", _FilePath())


def sandbox_routes(desk: SandboxDesk) -> APIRouter:
    """All routes of /sandboxes."""
    routes = APIRouter(route_class=desk.fleet.route_class())
    add = routes.add_api_route
    one = "/sandboxes/{sandbox_id}"
    file = one + "/files/{path:file}"
    add("/sandboxes", desk.create_sandbox, methods=["POST"], **docs.create())
    add("/sandboxes", desk.list_sandboxes, methods=["GET"], **docs.listing())
    add("/sandboxes", desk.stop_sandboxes, methods=["DELETE"], **docs.stop_tagged())
    add(one, desk.get_sandbox, methods=["GET"], **docs.get())
    add(one, desk.stop_sandbox, methods=["DELETE"], **docs.stop())
    add(one + "/exec", desk.execute, methods=["POST"], **docs.execute())
    add(file, desk.write_file, methods=["PUT"], **docs.write_file())
    add(file, desk.read_file, methods=["GET"], **docs.read_file())
    add(one + "/grade", desk.grade, methods=["POST"], **docs.grade())
    return routes
