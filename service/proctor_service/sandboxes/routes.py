"""/sandboxes: create, list, use and stop stateful sandboxes over HTTP.

The result of a command is data. A failure is an HTTP error: a rejected request, or a failure of the
service, which is never reported as the result of a command.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from proctor_client import wire
from proctor_service.errors import InvalidRequest, SandboxNotFound
from proctor_service.features.replicas.fleet import Fleet
from proctor_service.http.body import key_of, name_any_request, parse_body, read_body
from proctor_service.http.job_store import JobStore
from proctor_service.http.jobs import Job, Value, job_of, value_of
from proctor_service.http.responses import NDJSON, json_response, while_connected
from proctor_service.rewards.checks import check_files, check_tags
from proctor_service.rewards.items import Machine
from proctor_service.sandbox.interface import Command
from proctor_service.sandboxes import Order, Registry, Session, docs
from proctor_service.sandboxes.grading import Gradings
from proctor_service.sandboxes.streaming import exec_body, streamed_execution

Tags = Annotated[list[str], Query(default_factory=list)]

CREATION_BYTES = 4096  # approximate memory of an ended sandbox


class SandboxHandler:
    """Handlers of the /sandboxes routes, one method per route."""

    def __init__(
        self,
        machine: Machine,
        registry: Registry,
        gradings: Gradings,
        creations: JobStore[Value[Session]],
        fleet: Fleet,
    ) -> None:
        """`creations`: store of creations by key, each shared by all requests with the key."""
        self.fleet = fleet
        self._machine = machine
        self._registry = registry
        self._gradings = gradings
        self._creations = creations
        self._creating: set[Job[Value[Session]]] = set()

    async def drain(self) -> None:
        """Cancel the waiting gradings; the reward handler owns the running gradings."""
        await self._gradings.queue.drain()

    async def create_sandbox(self, request: Request) -> Response:
        """Create a sandbox that keeps its state between calls."""
        tenant: str = request.state.tenant
        body = await read_body(request, self._machine.settings.max_body_mb)
        key = key_of(request.headers)
        name = None if key is None else await name_any_request(tenant, key, body)
        asked = order(self._machine, await parse_body(wire.SandboxRequest, body), tenant)
        if name is None:
            session = await while_connected(self._registry.create(asked), request.receive)
        else:
            # No `await` from here to `remember`: requests with the same key create one sandbox.
            creation = self._creations.find(name)
            if creation is None or creation.retryable:
                size_bytes = CREATION_BYTES + sum(map(len, asked.tags))
                create = partial(self._registry.create, asked)
                creation = job_of(create, self._creating, size_bytes)
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
            asked = command(self._machine, await parse_body(wire.ExecRequest, body))
            run = partial(self._registry.execute, session.tenant, session.id, asked)
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
            asked = await parse_body(wire.GradeRequest, await self._body(request))
            limits = self._gradings.check(asked, session)
            grading = self._gradings.grade(session, asked, limits, begun)
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


def order(machine: Machine, asked: wire.SandboxRequest, tenant: str) -> Order:
    """Return the order for a new sandbox. Raises InvalidRequest."""
    check_files(asked.files, "files")
    check_tags(asked.tags)
    environment = machine.environment(asked.environment, "environment")
    return Order(
        tenant=tenant,
        limits=machine.limits(asked.limits, "limits", environment=environment),
        environment=environment,
        tags=tuple(asked.tags),
        ttl_seconds=asked.ttl_seconds,
        files=asked.files,
        job=asked.job,
    )


def command(machine: Machine, asked: wire.ExecRequest) -> Command:
    """Return the command to run. Raises InvalidRequest."""
    ceiling = machine.settings.max_wall_seconds
    seconds = asked.timeout_seconds
    if seconds is not None and not seconds <= ceiling:
        raise InvalidRequest(f"timeout_seconds: {seconds} is above this server's {ceiling}")
    argv = tuple(asked.command or ())
    for index, word in enumerate(argv):
        if "\0" in word or any("\ud800" <= character <= "\udfff" for character in word):
            raise InvalidRequest(f"command.{index}: no argument of a program can hold that")
    stdin = asked.stdin.encode("utf-8", "surrogatepass")
    return Command(argv, asked.code, stdin, seconds)


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
    routes = APIRouter()
    add = routes.add_api_route
    add("/sandboxes", handler.create_sandbox, methods=["POST"], **docs.create())
    add("/sandboxes", handler.list_sandboxes, methods=["GET"], **docs.listing())
    add("/sandboxes", handler.stop_sandboxes, methods=["DELETE"], **docs.stop_tagged())
    of_one = APIRouter(route_class=handler.fleet.route_class())
    add = of_one.add_api_route
    one = "/sandboxes/{sandbox_id}"
    file = one + "/files/{path:file}"
    add(one, handler.get_sandbox, methods=["GET"], **docs.get())
    add(one, handler.stop_sandbox, methods=["DELETE"], **docs.stop())
    add(one + "/exec", handler.execute, methods=["POST"], **docs.execute())
    add(file, handler.write_file, methods=["PUT"], **docs.write_file())
    add(file, handler.read_file, methods=["GET"], **docs.read_file())
    add(one + "/grade", handler.grade, methods=["POST"], **docs.grade())
    routes.include_router(of_one)
    return routes
