"""/sandboxes: create, list, use and stop stateful sandboxes over HTTP.

The result of a command is data. A failure is an HTTP error: a rejected request, or a failure of the
service, which is never reported as the result of a command.

The output of a command is part of its result, or a stream of NDJSON lines with the result at the
end. A failure before the first output is an ordinary error response, since the status line is sent
with that output. A slow reader delays only itself: the command continues, and the sandbox's output
limit bounds the unsent output.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.errors import Failure, InvalidRequest, Refusal, SandboxNotFound
from proctor_service.http.body import key_of, name_any_request, parse_body, read_body
from proctor_service.http.fleet import Fleet
from proctor_service.http.json import encode
from proctor_service.http.openapi import Answers, answers, body_of, problems
from proctor_service.http.problems import within_stream
from proctor_service.http.responses import (
    NDJSON,
    RequestTask,
    StreamedResponse,
    Value,
    json_response,
    task_of,
    value_of,
    while_connected,
)
from proctor_service.http.task_store import TaskStore
from proctor_service.rewards.machine import Machine, check_files, check_tags
from proctor_service.sandbox.interface import Command, Hear, StreamName
from proctor_service.sandboxes.grading import Gradings
from proctor_service.sandboxes.registry import CommandEnd, Order, Registry, Session

Tags = Annotated[list[str], Query(default_factory=list)]

MOST_PIECES = 256
LINE_BYTES = 1 << 16

Execute = Callable[[Hear], Awaitable[CommandEnd]]

CREATION_BYTES = 4096  # approximate memory of an ended sandbox
_Docs = dict[str, Any]

_BYTES = {"schema": {"type": "string", "format": "binary"}, "example": "42\n"}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 255},
    "description": "A repeated request gets the sandbox that the first one made.",
}
_OF_A_SANDBOX = (401, 404, 410, 500)


class SandboxHandler:
    """Handlers of the /sandboxes routes, one method per route."""

    def __init__(
        self,
        machine: Machine,
        registry: Registry,
        gradings: Gradings,
        creations: TaskStore[Value[Session]],
        fleet: Fleet,
    ) -> None:
        """`creations`: store of creations by key, each shared by all requests with the key."""
        self.fleet = fleet
        self._machine = machine
        self._registry = registry
        self._gradings = gradings
        self._creations = creations
        self._creating: set[RequestTask[Value[Session]]] = set()

    async def create_sandbox(self, request: Request) -> Response:
        """Create a sandbox that keeps its state between calls."""
        tenant: str = request.state.tenant
        body = await read_body(request, self._machine.settings.max_body_mb)
        key = key_of(request.headers)
        name = None if key is None else await name_any_request(tenant, key, body)
        sandbox_order = order(self._machine, await parse_body(wire.SandboxRequest, body), tenant)
        if name is None:
            session = await while_connected(self._registry.create(sandbox_order), request.receive)
        else:
            # No `await` from here to `remember`: requests with the same key create one sandbox.
            creation = self._creations.find(name)
            if creation is None or creation.retryable:
                size_bytes = CREATION_BYTES + sum(map(len, sandbox_order.tags))
                create = partial(self._registry.create, sandbox_order)
                creation = task_of(create, self._creating, size_bytes)
                self._creations.remember(name, creation)
            # The creation continues after a disconnect, for the client's retry.
            await while_connected(creation.wait(), request.receive)
            session = value_of(creation)
        return json_response(sandbox_body(session, self._machine.backend.traits.name), 201)

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
        backend = self._machine.backend.traits.name
        listed = [sandbox_body(session, backend) for session in found]
        for other in others:
            listed += other["sandboxes"]
        return json_response({"sandboxes": listed, "replicas_missing": missing})

    async def get_sandbox(self, request: Request, sandbox_id: str) -> Response:
        """Return a sandbox. This request does not extend its ttl."""
        session = self._registry.find(_tenant(request), sandbox_id)
        return json_response(sandbox_body(session, self._machine.backend.traits.name))

    async def execute(self, request: Request, sandbox_id: str) -> Response:
        """Run a command or Python code, and return its result when it ends."""
        session = self._live(request, sandbox_id)
        with session.using():
            body = await self._body(request)
            exec_command = command(self._machine, await parse_body(wire.ExecRequest, body))
            run = partial(self._registry.execute, session.tenant, session.id, exec_command)
            if NDJSON in request.headers.get("accept", ""):
                return streamed_execution(run)
            return json_response(exec_body(await while_connected(run(), request.receive)))

    async def write_file(self, request: Request, sandbox_id: str, path: str) -> Response:
        """Write a whole file; the request body is the file's content."""
        session = self._live(request, sandbox_id)
        with session.using():
            _check_encoding(request)
            body = await read_body(request, self._registry.file_bytes >> 20)
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
            grading = await parse_body(wire.GradeRequest, await self._body(request))
            grader = self._machine.resolved(grading.grader, "grader")
            grading = grading.model_copy(update={"grader": grader})
            limits = self._gradings.check(grading, session)
            work = self._gradings.grade(session, grading, limits, begun)
            line = await while_connected(work, request.receive)
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
        return json_response({"stopped": int(stopped)})

    async def stop_sandboxes(self, request: Request, tag: Tags) -> Response:
        """Stop all sandboxes that have all of these tags."""
        _check_query(request, "tag")
        stopped = await self._registry.stop_tagged(_tenant(request), tag)
        others, missing = await self.fleet.elsewhere(request)
        stopped += sum(other["stopped"] for other in others)
        return json_response({"stopped": stopped, "replicas_missing": missing})

    def _live(self, request: Request, sandbox_id: str) -> Session:
        """Return the sandbox if usable; raise its error before the body is read."""
        session = self._registry.find(_tenant(request), sandbox_id)
        session.check()
        return session

    async def _body(self, request: Request) -> bytearray:
        return await read_body(request, self._machine.settings.max_body_mb)


def order(machine: Machine, body: wire.SandboxRequest, tenant: str) -> Order:
    """Return the order for a new sandbox. Raises InvalidRequest."""
    check_files(body.files, "files")
    check_tags(body.tags)
    environment = machine.environment(body.environment, "environment")
    defaults, open_tree = None, None
    if body.repository is not None:
        machine.check_grader(body.repository, "repository")
        machine.check_place(body.repository, environment, "repository")
        rules = machine.graders[body.repository.kind]
        defaults = rules.limits
        assert rules.tree is not None, "it judges repositories"
        open_tree = partial(rules.tree.open, body.repository)
    return Order(
        tenant=tenant,
        limits=machine.limits(body.limits, "limits", environment=environment, defaults=defaults),
        environment=environment,
        tags=tuple(body.tags),
        ttl_seconds=body.ttl_seconds,
        files=body.files,
        job=body.job,
        open_tree=open_tree,
    )


def command(machine: Machine, body: wire.ExecRequest) -> Command:
    """Return the command to run. Raises InvalidRequest."""
    ceiling = machine.settings.max_wall_seconds
    seconds = body.timeout_seconds
    if seconds is not None and not seconds <= ceiling:
        raise InvalidRequest(f"timeout_seconds: {seconds} is above this server's {ceiling}")
    argv = tuple(body.command or ())
    for index, word in enumerate(argv):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise InvalidRequest(f"command.{index}: no argument of a program can hold that")
    stdin = body.stdin.encode("utf-8", "surrogatepass")
    return Command(argv, body.code, stdin, seconds)


def sandbox_body(session: Session, backend: str) -> dict[str, Any]:
    """Return a sandbox in its wire form."""
    return {
        "id": session.id,
        "status": session.status,
        "tags": session.tags,
        "backend": backend,
        "environment": session.environment,
        "created_at": session.created_at.isoformat(),
        "expires_at": session.expires_at.isoformat(),
        "exec_stats": {
            "total": session.execs.total(),
            "successes": session.execs["success"],
            "failures": session.execs["failure"],
            "errors": session.execs["error"],
        },
        "message": session.message,
    }


def _tenant(request: Request) -> str:
    tenant: str = request.state.tenant
    return tenant


def _check_query(request: Request, *names: str) -> None:
    """Raise InvalidRequest for an unknown name: a misspelt filter must not match all sandboxes."""
    for name in request.query_params:
        if name not in names:
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


class Output:
    """Unread output of a command, in order."""

    def __init__(self) -> None:
        self.more = asyncio.Event()
        self._pieces: deque[tuple[StreamName, bytearray]] = deque()
        # The same decoding as in the result, so the pieces add up to the result's texts.
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def hear(self, name: StreamName, data: bytes) -> None:
        """Add output, if possible to an earlier piece: single-byte pieces waste memory."""
        pieces = self._pieces
        # Above MOST_PIECES pieces, the order between stdout and stderr is lost.
        open_pieces = 2 if len(pieces) > MOST_PIECES else min(1, len(pieces))
        for index in range(1, open_pieces + 1):
            piece_name, piece = pieces[-index]
            if piece_name == name:
                piece += data
                break
        else:
            pieces.append((name, bytearray(data)))
        self.more.set()

    def next_line(self) -> bytes | None:
        """Return the next line, None if all received output is taken."""
        while self._pieces:
            name, piece = self._pieces[0]
            text = self._decoders[name].decode(piece[:LINE_BYTES])
            del piece[:LINE_BYTES]
            if not piece:
                self._pieces.popleft()
            if text:
                return encode({name: text}) + b"\n"
        return None

    def rest(self) -> bytes:
        """Return lines with the incomplete characters, once the output is complete."""
        ends = ((name, each.decode(b"", True)) for name, each in self._decoders.items())
        return b"".join(encode({name: text}) + b"\n" for name, text in ends if text)


def streamed_execution(execute: Execute) -> StreamedResponse:
    """Return a streamed response to exec; the command starts when the response is sent.

    The command ends when the client disconnects.
    """
    return StreamedResponse(_pieces(execute), NDJSON)


async def _pieces(execute: Execute) -> AsyncGenerator[bytes]:
    output = Output()
    heard = done = False
    running = asyncio.ensure_future(execute(output.hear))
    running.add_done_callback(lambda _: output.more.set())
    try:
        while not done:
            await output.more.wait()
            output.more.clear()
            done = running.done()
            while (line := output.next_line()) is not None:
                heard = True
                yield line
        try:
            ending = {"result": exec_body(running.result())}
        except (Refusal, Failure) as error:
            if not heard:
                raise
            ending = {"error": within_stream(error)}
        yield output.rest() + encode(ending) + b"\n"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def exec_body(execution: CommandEnd) -> dict[str, Any]:
    """Return the result of a command in its wire form."""
    ended = execution.ended
    usage = ended.usage
    return {
        "exit_code": ended.exit_code if ended.ending == "exited" else None,
        "stdout": ended.stdout.decode("utf-8", "replace"),
        "stderr": ended.stderr.decode("utf-8", "replace"),
        "ending": ended.ending,
        "truncated": ended.truncated,
        "usage": {
            "cpu_seconds": round(usage.cpu_seconds, 6),
            "wall_seconds": round(usage.wall_seconds, 6),
            "queue_seconds": round(execution.queue_seconds, 6),
            "peak_memory_mb": round(usage.peak_memory_mb, 3),
        },
    }


def _create_docs() -> _Docs:
    """POST /sandboxes."""
    return {
        "status_code": 201,
        "response_model": wire.Sandbox,
        "responses": answers(wire.Sandbox, 401, 410, 413, 422, 429, 500, 503, success=201),
        "openapi_extra": body_of(wire.SandboxRequest) | {"parameters": [_KEY]},
    }


def _listing_docs() -> _Docs:
    """GET /sandboxes."""
    return {"response_model": wire.SandboxList, "responses": answers(wire.SandboxList, 401, 422)}


def _get_docs() -> _Docs:
    """GET /sandboxes/{id}."""
    found = answers(wire.Sandbox, 401, 404, 422, 500)
    return {"response_model": wire.Sandbox, "responses": found}


def _stop_docs() -> _Docs:
    """DELETE /sandboxes/{id}."""
    found = answers(wire.StopResponse, *_OF_A_SANDBOX, 422)
    return {"response_model": wire.StopResponse, "responses": found}


def _stop_tagged_docs() -> _Docs:
    """DELETE /sandboxes."""
    return {"response_model": wire.StopResponse, "responses": answers(wire.StopResponse, 401, 422)}


def _execute_docs() -> _Docs:
    """POST /sandboxes/{id}/exec."""
    found = answers(wire.ExecResult, *_OF_A_SANDBOX, 413, 422, 429, 503)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": '{"stdout":"4"}\n{"stdout":"2\\n"}\n{"result":{"exit_code":0,"stdout":"42\\n"}}\n',
    }
    return {
        "response_model": wire.ExecResult,
        "responses": found,
        "openapi_extra": body_of(wire.ExecRequest),
    }


def _write_file_docs() -> _Docs:
    """PUT /sandboxes/{id}/files/{path}."""
    body = {"required": True, "content": {"application/octet-stream": _BYTES}}
    return {
        "status_code": 204,
        "responses": problems(*_OF_A_SANDBOX, 413, 422),
        "openapi_extra": {"requestBody": body},
    }


def _read_file_docs() -> _Docs:
    """GET /sandboxes/{id}/files/{path}."""
    found: Answers = {200: {"content": {"application/octet-stream": _BYTES}}}
    return {"response_class": Response, "responses": found | problems(*_OF_A_SANDBOX, 422)}


def _grade_docs() -> _Docs:
    """POST /sandboxes/{id}/grade."""
    return {
        "response_model": wire.Result,
        "responses": answers(wire.Result, *_OF_A_SANDBOX, 413, 422, 429, 503),
        "openapi_extra": body_of(wire.GradeRequest),
    }


def sandbox_routes(handler: SandboxHandler) -> APIRouter:
    """Return all routes of /sandboxes."""
    routes = APIRouter()
    add = routes.add_api_route
    add("/sandboxes", handler.create_sandbox, methods=["POST"], **_create_docs())
    add("/sandboxes", handler.list_sandboxes, methods=["GET"], **_listing_docs())
    add("/sandboxes", handler.stop_sandboxes, methods=["DELETE"], **_stop_tagged_docs())
    of_one = APIRouter(route_class=handler.fleet.route_class())
    add = of_one.add_api_route
    one = "/sandboxes/{sandbox_id}"
    file = one + "/files/{path:file}"
    add(one, handler.get_sandbox, methods=["GET"], **_get_docs())
    add(one, handler.stop_sandbox, methods=["DELETE"], **_stop_docs())
    add(one + "/exec", handler.execute, methods=["POST"], **_execute_docs())
    add(file, handler.write_file, methods=["PUT"], **_write_file_docs())
    add(file, handler.read_file, methods=["GET"], **_read_file_docs())
    add(one + "/grade", handler.grade, methods=["POST"], **_grade_docs())
    routes.include_router(of_one)
    return routes
