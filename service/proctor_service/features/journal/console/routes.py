"""Pages under /console, for browsers. Each answer is HTML, under a policy that forbids inline scripts.

Each browser has a `Visit`; a request without a valid cookie gets a 401 with the log-in form.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from proctor_service.errors import Forbidden, InvalidRequest, NotFound, Refusal, Unauthorized
from proctor_service.features.journal.answering.questions import TEXTS, Answer
from proctor_service.features.journal.answering.routes import JournalHandler, line_of
from proctor_service.features.journal.console.cookies import Cookies, Visit, same
from proctor_service.features.journal.console.costs import Costs
from proctor_service.features.journal.console.forms import (
    EXAMPLE,
    KINDS,
    form_of,
    query_of,
    request_of,
)
from proctor_service.features.journal.console.policy import PATH
from proctor_service.http.middleware import same_origin
from proctor_service.http.responses import response_of, while_connected
from proctor_service.rewards.routes import RewardHandler
from proctor_service.sandbox.interface import Backend

if TYPE_CHECKING:
    from proctor_service.features.journal.pages.render import Templates

Id = Annotated[str, Path(max_length=128)]
LONGEST_PLACE = 2000
HTML = "text/html"
PART = "proctor-part"
"""Header of the pages' script, which wants the body of a page alone."""
ASSETS: Mapping[str, str] = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
Page = Callable[[Request, Visit], Awaitable[Response]]
STORED_SECONDS = 2.0
STORED_TIMES = 20
"""A slow body is stored for this multiple of its time, so views never take more than a twentieth of
a core."""
LONGEST_STORED_SECONDS = 30.0
MOST_STORED = 64


class ConsoleHandler:
    """Handlers of the pages. `backend`: its languages are those of the playground.

    `costs`: of sandboxes at Aviato; None without Aviato.
    """

    def __init__(
        self,
        journal: JournalHandler,
        rewards: RewardHandler,
        cookies: Cookies,
        backend: Backend,
        costs: Costs | None = None,
    ) -> None:
        self._journal = journal
        self._rewards = rewards
        self._cookies = cookies
        self._backend = backend
        self._costs = costs
        self._loaded: Templates | None = None
        self._bodies = Bodies()
        self._mark = uuid.uuid4().hex
        folder = files("proctor_service.features.journal.pages") / "static"
        self._assets = {name: (folder / name).read_bytes() for name in ASSETS}

    @property
    def _templates(self) -> Templates:
        """The templates, which `_load` has imported in most cases."""
        if self._loaded is None:
            from proctor_service.features.journal.pages.render import Templates

            self._loaded = Templates()
        return self._loaded

    async def _load(self) -> None:
        """Import the templates in a thread, for the first page."""
        if self._loaded is None:
            await asyncio.to_thread(lambda: self._templates)

    # ------------------------------------------------------------ visitors

    def page(self, make: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of a page: it asks for a log-in, and shows refusals as pages."""

        async def handle(request: Request) -> Response:
            await self._load()
            visit = self._cookies.visit(request.headers)
            is_new = visit is None and not self._cookies.needed
            if is_new:
                visit = self._cookies.anonymous()
            try:
                if visit is None:
                    raise Unauthorized("log in with a token of this service")
                response = await make(request, visit)
            except Refusal as refusal:
                response = self._refused(request, refusal, visit)
            if is_new and visit is not None:
                self._keep(request, response, visit)
            return response

        return handle

    async def log_in(self, request: Request) -> Response:
        """Exchange a token for a cookie, and go on to the page that was asked for."""
        await self._load()
        try:
            if not same_origin(request.headers):
                raise Forbidden("this form came from another site")
            form = await form_of(request)
        except Refusal as refusal:
            return self._refused(request, refusal, None)
        place = local(form.get("next", ""))
        visit = self._cookies.log_in(form.get("token", "")) if self._cookies.needed else None
        if visit is None and self._cookies.needed:
            return self._log_in_form(request, place, "this token is not known here")
        response = _to(place)
        if visit is not None:
            self._keep(request, response, visit)
        return response

    async def log_out(self, request: Request, visit: Visit) -> Response:
        """End the visit of this browser."""
        await self._checked_form(request, visit)
        response = _to(PATH)
        self._keep(request, response, None)
        return response

    async def _checked_form(self, request: Request, visit: Visit) -> dict[str, str]:
        """Return the fields of a form. Raises Forbidden if no page of this visit made it."""
        form = await form_of(request)
        if not same_origin(request.headers) or not same(visit.csrf, form.get("csrf", "")):
            raise Forbidden("this form is not from a page of yours, or is too old: load it again")
        return form

    def _keep(self, request: Request, response: Response, visit: Visit | None) -> None:
        forwarded = request.headers.get("x-forwarded-proto", "")
        secure = "https" in (request.url.scheme, forwarded.strip().lower())
        response.headers.append("set-cookie", self._cookies.header(visit, secure=secure))

    # ------------------------------------------------------------ pages

    async def jobs(self, request: Request, visit: Visit) -> Response:
        """Show the jobs, that with the newest evaluation first."""
        return await self._live(request, visit, "Jobs", "jobs_page")

    async def job(self, request: Request, visit: Visit) -> Response:
        """Show what training should know of a job."""
        job: str = request.path_params.get("job", request.query_params.get("name", ""))
        return await self._live(request, visit, job, "job_page", job)

    async def evaluations(self, request: Request, visit: Visit) -> Response:
        """Show the evaluations that fit the filters, a page at a time."""
        parameters = dict(request.query_params)
        query = query_of(parameters)
        values = (query.model_dump(), parameters)
        return await self._live(request, visit, "Evaluations", "evaluations_page", *values)

    async def evaluation(self, request: Request, visit: Visit) -> Response:
        """Show one evaluation."""
        return await self._evaluation(request, visit, None)

    async def replay(self, request: Request, visit: Visit) -> Response:
        """Judge an evaluation again, and show the difference."""
        await self._checked_form(request, visit)
        id_ = request.path_params["id"]
        compared = await self._journal.compare(visit.tenant, id_, request.receive)
        return await self._evaluation(request, visit, b"".join(compared.pieces))

    async def text(self, request: Request, visit: Visit) -> Response:
        """Download one whole text of an evaluation."""
        id_, name = request.path_params["id"], request.path_params["name"]
        if name not in TEXTS:
            raise NotFound("no such text")
        content = await self._journal.ask("whole_text", visit.tenant, id_, name)
        headers = {"Content-Disposition": f'attachment; filename="{name}.txt"'}
        return response_of(content.pieces, "text/plain; charset=utf-8", headers=headers)

    async def rollout(self, request: Request, visit: Visit) -> Response:
        """Show one rollout as a conversation."""
        id_ = request.path_params["id"]
        body = await self._journal.ask("rollout_page", visit.tenant, id_)
        return self._shell(request, visit, f"Rollout {id_}", body)

    async def playground(self, request: Request, visit: Visit) -> Response:
        """Show the form with which a completion is judged by hand."""
        return await self._playground(request, visit, dict(EXAMPLE), None, None)

    async def try_out(self, request: Request, visit: Visit) -> Response:
        """Judge what the form has, and show the form with the result."""
        form = await self._checked_form(request, visit)
        try:
            body = await asyncio.to_thread(request_of, form)
            batch = await self._rewards.handle(visit.tenant, body, None)
        except InvalidRequest as refusal:
            return await self._playground(request, visit, form, None, refusal)
        line = await while_connected(line_of(batch), request.receive)
        return await self._playground(request, visit, form, json.loads(line.json), None)

    async def costs(self, request: Request, visit: Visit) -> Response:
        """Show what sandboxes at Aviato have cost, by job."""
        if self._costs is None:
            raise NotFound("sandboxes of this service cost nothing")
        body = self._templates.html("costs.html", rows=self._costs.rows(visit.tenant))
        return self._shell(request, visit, "Costs", body)

    async def asset(self, request: Request) -> Response:
        """Return the style sheet, the script or the icon. They hold nothing of a tenant."""
        name = request.path_params["name"]
        content = self._assets.get(name)
        if content is None:
            return self._refused(request, NotFound("no such page"), None)
        headers = {"Cache-Control": "public, max-age=300"}
        return Response(content, headers=headers, media_type=ASSETS[name])

    async def nothing(self, request: Request, visit: Visit) -> Response:
        """Refuse an unknown page."""
        raise NotFound("no such page")

    # ------------------------------------------------------------ parts of answers

    async def _live(
        self, request: Request, visit: Visit, title: str, question: str, *values: object
    ) -> Response:
        key = (visit.tenant, request.url.path, request.url.query)
        body = await self._bodies.body(
            key, lambda: self._journal.ask(question, visit.tenant, *values)
        )
        tag = f'"{body.tag}"'
        if request.headers.get(PART) is None:
            return self._shell(request, visit, title, body, tag=tag)
        headers = {"ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return response_of(body.pieces, HTML, headers=headers)

    async def _evaluation(self, request: Request, visit: Visit, compared: bytes | None) -> Response:
        id_ = request.path_params["id"]
        question = ("evaluation_page", visit.tenant, id_, visit.csrf, compared)
        return self._shell(request, visit, f"Evaluation {id_}", await self._journal.ask(*question))

    async def _playground(
        self,
        request: Request,
        visit: Visit,
        form: Mapping[str, str],
        result: Mapping[str, Any] | None,
        refusal: Refusal | None,
    ) -> Response:
        body = await asyncio.to_thread(
            self._templates.html,
            "playground.html",
            form={**dict.fromkeys(EXAMPLE, ""), **form},
            kinds=KINDS,
            languages=self._backend.traits.languages,
            csrf=visit.csrf,
            result=result,
            refusal=None if refusal is None else refusal.message,
        )
        status = 200 if refusal is None else refusal.status
        return self._shell(request, visit, "Playground", body, status)

    def _refused(self, request: Request, refusal: Refusal, visit: Visit | None) -> Response:
        if refusal.status == Unauthorized.status:
            raw: bytes = request.scope.get("raw_path") or b"/console"
            query: bytes = request.scope.get("query_string", b"")
            place = (raw + b"?" + query if query else raw).decode("latin-1")
            return self._log_in_form(
                request, local(place) if request.method == "GET" else PATH, None
            )
        body = self._templates.html("refusal.html", message=refusal.message, reason=refusal.reason)
        return self._shell(request, visit, "Not shown", body, refusal.status)

    def _log_in_form(self, request: Request, place: str, message: str | None) -> Response:
        body = self._templates.html("log_in.html", place=place, message=message)
        return self._shell(request, None, "Log in", body, Unauthorized.status)

    def _shell(
        self,
        request: Request,
        visit: Visit | None,
        title: str,
        body: str | Answer,
        status: int = 200,
        tag: str | None = None,
    ) -> Response:
        """Return a page with this body; a log-in form is no page of the navigation."""
        logged_in = visit if self._cookies.needed else None
        shell = self._templates.html(
            "shell.html",
            title=title,
            body=self._mark,
            current="" if status == Unauthorized.status else request.url.path,
            has_costs=self._costs is not None,
            tag=tag,
            tenant=None if logged_in is None else logged_in.tenant,
            csrf=None if logged_in is None else logged_in.csrf,
        )
        before, _, after = shell.partition(self._mark)
        pieces = [body.encode()] if isinstance(body, str) else body.pieces
        return response_of([before.encode(), *pieces, after.encode()], HTML, status)


@dataclass(slots=True)
class _Body:
    making: asyncio.Task[Answer]
    until: float = float("inf")


class Bodies:
    """Cache of the bodies of pages. Concurrent requests for a body share its making."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, _Body] = OrderedDict()

    async def body(self, key: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the body for a key, at most a few seconds old. Raises what `make` raises."""
        entry = self._entries.get(key)
        if entry is None or entry.until < time.monotonic():
            making = asyncio.ensure_future(self._made(key, make))
            making.add_done_callback(_retrieve)
            entry = self._entries[key] = _Body(making)
            self._entries.move_to_end(key)
            while len(self._entries) > MOST_STORED:
                self._entries.popitem(last=False)
        return await asyncio.shield(entry.making)

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[Answer]]) -> Answer:
        begun = time.monotonic()
        store_seconds = 0.0
        try:
            answer = await make()
            took = time.monotonic() - begun
            store_seconds = min(max(STORED_SECONDS, STORED_TIMES * took), LONGEST_STORED_SECONDS)
            return answer
        finally:
            entry = self._entries.get(key)
            if entry is not None and entry.making is asyncio.current_task():
                entry.until = time.monotonic() + store_seconds


def _retrieve(making: asyncio.Task[Answer]) -> None:
    """Take note of an error, also where every browser has left before it."""
    if not making.cancelled():
        making.exception()


def local(place: str) -> str:
    """Return a place among the pages; the list of jobs for any other."""
    if len(place) > LONGEST_PLACE or not place.isascii() or not place.isprintable():
        return PATH
    path = place.partition("?")[0]
    parts = unquote(path).split("/")
    if parts[:2] != ["", "console"] or "\\" in unquote(place) or {"", ".", ".."} & {*parts[2:]}:
        return PATH
    return place


def _to(place: str) -> Response:
    return Response(status_code=303, headers={"Location": place})


def console_routes(handler: ConsoleHandler) -> APIRouter:
    """Return the routes of the pages; the OpenAPI document has none of them."""
    routes = APIRouter(include_in_schema=False)
    pages: tuple[tuple[str, str, Page], ...] = (
        ("GET", "", handler.jobs),
        ("GET", "/", handler.jobs),
        ("GET", "/jobs", handler.job),
        ("GET", "/jobs/{job:any}", handler.job),
        ("GET", "/evaluations", handler.evaluations),
        ("GET", "/evaluations/{id}", handler.evaluation),
        ("GET", "/evaluations/{id}/text/{name}", handler.text),
        ("POST", "/evaluations/{id}/replay", handler.replay),
        ("GET", "/rollouts/{id}", handler.rollout),
        ("GET", "/costs", handler.costs),
        ("GET", "/playground", handler.playground),
        ("POST", "/playground", handler.try_out),
        ("POST", "/logout", handler.log_out),
    )
    routes.add_api_route("/console/static/{name}", handler.asset)
    routes.add_api_route("/console/login", handler.log_in, methods=["POST"])
    for method, path, make in pages:
        routes.add_api_route("/console" + path, handler.page(make), methods=[method])
    routes.add_api_route(
        "/console/{rest:any}", handler.page(handler.nothing), methods=["GET", "POST"]
    )
    return routes
