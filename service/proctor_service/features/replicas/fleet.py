"""Forwarding of requests to the replica with a sandbox, and of its answers to the client.

Both bodies are streamed in pieces, and a disconnect of the client is forwarded too. If the replica
is gone, the answer is `sandbox_lost`, at once: its sandboxes cannot be restored. A request about
all sandboxes of a tenant goes to every replica; replicas without an answer are counted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from proctor_service.errors import SandboxLost
from proctor_service.evaluate import Elsewhere
from proctor_service.features.replicas.forwarding import Question, Replicas
from proctor_service.features.replicas.image_owners import ImageOwners
from proctor_service.http.body import FORWARDED, part_of_body
from proctor_service.http.fleet import Fleet, SharedAnswers, SharedTasks
from proctor_service.http.json import encode
from proctor_service.http.problems import within_stream
from proctor_service.http.responses import NDJSON, json_response, while_connected
from proctor_service.outcomes import Item, Outcome

PASSED_ON = (
    "accept",
    "authorization",
    "content-length",
    "content-type",
    "idempotency-key",
    "traceparent",
    "tracestate",
)
HANDED_BACK = ("content-length", "content-type", "retry-after", "www-authenticate")
TRUTHS = frozenset({"true", "1", "yes", "on", "t", "y"})

Handler = Callable[[Request], Awaitable[Response]]


class PeerFleet(Fleet):
    """All replicas: this replica, and its peers."""

    def __init__(
        self,
        replicas: Replicas,
        answers: SharedAnswers | None,
        mismatched: Callable[[], Mapping[str, str]],
        tasks: SharedTasks | None = None,
    ) -> None:
        super().__init__(replicas.identity.id_prefix, answers, tasks)
        self._replicas = replicas
        self._mismatched = mismatched
        self.owners: ImageOwners | None = None

    def image_owners(self) -> Elsewhere:
        """Return the function that has a submission judged by an owner of its image."""

        async def judged(item: Item) -> Outcome | None:
            return None if self.owners is None else await self.owners.judged(item)

        return judged

    def mismatched(self) -> Mapping[str, str]:
        """Return the peers with another fingerprint: by URL, in what they differ."""
        return self._mismatched()

    def route_class(self) -> type[APIRoute]:
        """Return a route class to forward requests if another replica holds the `sandbox_id`."""
        replicas = self._replicas

        class Routed(APIRoute):
            def get_route_handler(self) -> Any:
                here: Handler = super().get_route_handler()

                async def here_or_there(request: Request) -> Response:
                    sandbox_id = request.path_params["sandbox_id"]
                    if replicas.identity.holds(sandbox_id):
                        return await here(request)
                    return await _there(replicas, sandbox_id, request)

                return here_or_there

        return Routed

    async def elsewhere(self, request: Request) -> tuple[list[dict[str, Any]], int]:
        """Return the other replicas' answers to the same request, and how many are missing."""
        if FORWARDED in request.headers:
            return [], 0
        answers = await self._replicas.ask_all(_question(request, None))
        found = [json.loads(each) for each in answers if each is not None]
        return found, answers.count(None)


async def _there(replicas: Replicas, sandbox_id: str, request: Request) -> Response:
    try:
        if FORWARDED in request.headers:
            raise SandboxLost("no replica holds this sandbox any more")
        return _PassedOn(replicas, await replicas.holder(sandbox_id), request)
    except SandboxLost:
        if not _missing_ok(request):
            raise
        return json_response({"stopped": 0})


class _PassedOn(Response):
    """A response that forwards another replica's answer."""

    def __init__(self, replicas: Replicas, holder: str, request: Request) -> None:
        super().__init__()
        self._replicas = replicas
        self._holder = holder
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request and its answer, or stop when the client disconnects."""
        upload = _Upload(receive)
        has_body = bool({"content-length", "transfer-encoding"} & set(self._request.headers))
        if not has_body:
            upload.read.set()
        question = _question(self._request, upload.pieces() if has_body else None)
        with suppress(ClientDisconnect):
            await while_connected(self._pass_on(question, scope, send), upload.what_follows)

    async def _pass_on(self, question: Question, scope: Scope, send: Send) -> None:
        async def send_piece(body: bytes, more_body: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more_body})

        begun = by_line = False
        last = b"\n"
        try:
            async with self._replicas.ask(self._holder, question) as response:
                headers = [
                    (name.encode(), response.headers[name].encode("latin-1"))
                    for name in HANDED_BACK
                    if name in response.headers
                ]
                begun = True
                by_line = response.headers.get("content-type", "").startswith(NDJSON)
                status = response.status_code
                start = {"type": "http.response.start", "status": status, "headers": headers}
                await send(start)
                async for piece in response.aiter_raw():
                    last = piece or last
                    await send_piece(piece)
        except SandboxLost as lost:
            if not begun and _missing_ok(self._request):
                await json_response({"stopped": 0})(scope, self._request.receive, send)
                return
            if not (by_line and last.endswith(b"\n")):
                raise  # gives an ordinary error response, or closes the connection
            await send_piece(encode({"error": within_stream(lost)}) + b"\n")
        await send_piece(b"", more_body=False)


class _Upload:
    """The streamed body of a request, and the later messages of its connection."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.read = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body. Raises ClientDisconnect and TooSlow."""
        more = True
        while more:
            message = await part_of_body(self._receive())
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            yield message.get("body", b"")
        self.read.set()

    async def what_follows(self) -> Message:
        """Return the message received after the body."""
        await self.read.wait()
        return await self._receive()


def _question(request: Request, body: AsyncIterator[bytes] | None) -> Question:
    query: bytes = request.scope["query_string"]
    target: bytes = request.scope["raw_path"] + (b"?" + query if query else b"")
    headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
    return Question(request.method, target, headers, body)


def _missing_ok(request: Request) -> bool:
    """Return True if a stop request accepts a missing sandbox."""
    missing_ok = request.query_params.get("missing_ok", "").lower() in TRUTHS
    return request.method == "DELETE" and missing_ok
