"""POST /reward: from the request's bytes to the answer, a JSON object or NDJSON lines.

A request becomes items: defaults are filled in, and `machine.py` checks the rest. A rejected request gets
an error response for the whole request, before any code runs. After that the response is a 200, and each
item without a verdict has its own error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json
from starlette.requests import Request
from starlette.responses import Response

from proctor_client.wire import (
    CommandGrader,
    Compiler,
    Grader,
    Message,
    PytestGrader,
    RepositoryGrader,
    RewardRequest,
    RewardResponse,
    StdioGrader,
    VerifierGrader,
)
from proctor_client.wire import Submission as WireSubmission
from proctor_client.wire.rewards import DEADLINE_SECONDS, default_deadline_seconds
from proctor_service.errors import BatchTooLarge, InvalidRequest
from proctor_service.evaluate import Evaluate
from proctor_service.http.body import (
    FINGERPRINT,
    FORWARDED,
    RequestName,
    key_of,
    name_any_request,
    parse_body,
    read_body,
)
from proctor_service.http.fleet import SharedAnswers
from proctor_service.http.openapi import answers, body_of
from proctor_service.http.responses import NDJSON, AnswerFormat, Line, RequestTask, task_response
from proctor_service.http.task_store import TaskStore
from proctor_service.judge.extract import (
    PYTHON_TEXTS,
    Around,
    check_program_rule,
    own_code,
    read_program,
    reference_program,
)
from proctor_service.judge.submission import (
    DefaultLimits,
    Submission,
    author_programs,
    integrity_of,
    test_count,
)
from proctor_service.outcomes import Item, NoCode, Origin, Outcome
from proctor_service.rewards.machine import (
    Machine,
    check_compiler,
    check_files,
)
from proctor_service.rewards.results import Lines, RequestItem, recalled
from proctor_service.rewards.saved_tasks import SavedTasks
from proctor_service.sandbox.interface import Limits
from proctor_service.scheduling.pacer import Pacer
from proctor_service.scheduling.queue import FairQueue, stopping
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.languages import PYTHON

log = logging.getLogger(__name__)

MAX_ADDED_CHARACTERS = 128 << 20
"""Of all programs of a batch beyond their completions: the prelude of a request is in every program."""
ORPHAN_SECONDS = 30.0
"""With a key, work goes on this long after its client went away: the client may come back for the answer."""
SENT_AT_ONCE = 256
GATHER_SECONDS = 0.01
PEER_GATHER_SECONDS = 0.05
"""Longest delay of a line, for a client and for a peer; the last line is never delayed."""
_CHECKED = PytestGrader | CommandGrader | StdioGrader | VerifierGrader | RepositoryGrader
"""Graders with files, arguments or programs to check."""


class RewardHandler:
    """Handler of reward batches: a batch is a job with a line for each submission.

    `running`: the unfinished batches.
    """

    def __init__(
        self,
        machine: Machine,
        evaluate: Evaluate,
        queue: FairQueue,
        store: TaskStore[Line],
        running: set[RequestTask[Any]],
        shared: SharedAnswers | None = None,
        recall: Callable[[Item, Outcome], None] | None = None,
        tasks: SavedTasks | None = None,
    ) -> None:
        """`running`: unfinished requests. `shared`: store of results shared between replicas.

        `recall`: hears of each item judged by another replica, and of its outcome.
        """
        self.running = running
        self._machine = machine
        self._evaluate = evaluate
        self._queue = queue
        self._store = store
        self._shared = shared
        self._recall = recall
        self.tasks = tasks or SavedTasks()

    async def handle(
        self, tenant: str, body: bytes | bytearray, key: str | None, portable: bool = True
    ) -> RequestTask[Line]:
        """Return the batch for a request: a new batch, or the earlier batch of its key.

        `portable`: peers may judge its submissions.
        Raises Refusal: InvalidRequest, NotFound for a task, BatchTooLarge, Busy or Draining.
        """
        begun = time.monotonic()
        name = None if key is None else await name_any_request(tenant, key, body)
        if name is not None:
            name = replace(name, judged_with=self._machine.fingerprint.digest)
        if name is not None and (earlier := self._final(name)) is not None:
            return earlier
        if self._queue.draining:
            raise stopping()
        judged: Mapping[int, Line] = {}
        if name is not None and self._shared is not None:
            judged = await self._shared.judged(name)
        request = await parse_body(RewardRequest, body)
        request = await self.tasks.completed(tenant, request)
        deadline = begun + (request.deadline_seconds or DEADLINE_SECONDS)
        translation = Translation(self._machine, request, tenant, deadline, portable)
        items = await translation.items()
        if request.deadline_seconds is None and translation.repository_seconds:
            more_seconds = default_deadline_seconds(translation.repository_seconds)
            items = [_with_deadline(each, begun + more_seconds) for each in items]
        await self._recall_all(items, judged)
        # No `await` from here to the end: of two requests with the same key, one starts the batch.
        if name is not None and (earlier := self._final(name)) is not None:
            return earlier
        return self._start(items, name, judged)

    def check_slice(self, fingerprint: str | None) -> None:
        """Check the fingerprint of the replica behind a slice; earlier versions send slices without one.

        Raises InvalidRequest for another fingerprint; its replica then judges the slice itself.
        """
        own = self._machine.fingerprint.digest
        if fingerprint != own:
            raise InvalidRequest(f"{FINGERPRINT}: this replica judges slices of {own} alone")

    def judge_one(self, item: Item) -> RequestTask[Line]:
        """Judge an item without a request to /reward, as a batch. Raises Busy and Draining."""
        return self._start([RequestItem(0, None, None, item)], None, {})

    def _final(self, name: RequestName) -> RequestTask[Line] | None:
        """Return the batch of an earlier request, unless some of its items must be judged again."""
        batch = self._store.find(name)
        return None if batch is None or batch.retryable else batch

    def _start(
        self, items: list[RequestItem], name: RequestName | None, judged: Mapping[int, Line]
    ) -> RequestTask[Line]:
        """Start a batch; `judged`: results of the request from another replica.

        Raises BatchTooLarge, and Busy; also Busy if the queue cannot judge any item in time.
        """
        earlier = None if name is None else self._store.find(name)
        if earlier is not None:
            judged = {**judged, **earlier.final()}
        first = items[0].item
        unjudged = [each.item for each in items if each.index not in judged]
        places = start_by = None
        if unjudged:
            if not any(isinstance(each.submission, NoCode) for each in unjudged):
                start_by = (first.priority, first.deadline)
            whose = (first.tenant, first.job)
            places = self._queue.reserve(len(unjudged), whose, start_by=start_by)
        share = None
        if name is not None and self._shared is not None:
            share = partial(self._share, self._shared, name, items)
        batch = RequestTask(
            items,
            nullcontext(lambda each: self._evaluate(each.item)),
            Lines(self._machine.backend.traits.degraded).line,
            self.running,
            places=places,
            earlier=judged,
            orphan_seconds=0.0 if name is None else ORPHAN_SECONDS,
            share=share,
        )
        fields = {"tenant": first.tenant, "job": first.job, "tags": list(first.tags)}
        batch.when_done(partial(_log_end, batch, time.monotonic(), fields))
        if name is not None:
            self._store.remember(name, batch)
        return batch

    async def _share(
        self,
        shared: SharedAnswers,
        name: RequestName,
        items: Sequence[RequestItem],
        lines: Mapping[int, Line],
    ) -> Mapping[int, Line]:
        """Share results; return the common answers of all replicas."""
        valid = await shared.store_first(name, lines)
        first = {index: line for index, line in valid.items() if line is not lines[index]}
        await self._recall_all(items, first)
        return valid

    async def _recall_all(self, items: Sequence[RequestItem], lines: Mapping[int, Line]) -> None:
        """Tell of other replicas' results: the other replica may be gone, and its records too."""
        if self._recall is None:
            return
        pacer = Pacer()
        for index, line in lines.items():
            if index < len(items) and (found := recalled(items[index].item, line)) is not None:
                self._recall(*found)
            await pacer.pause()


def _log_end(batch: RequestTask[Line], begun: float, fields: Mapping[str, object]) -> None:
    verdicts = Counter(each.verdict or "error" for each in batch.results())
    seconds = round(time.monotonic() - begun, 3)
    more = {"count": verdicts.total(), "verdicts": dict(verdicts), "seconds": seconds}
    log.info("judged", extra={**fields, **more})


@dataclass(slots=True)
class Translation:
    """Converter of a request. `portable`: peers may judge its submissions.

    Most submissions share the request's grader and limits, so results for these are cached here, by
    identity: the request keeps these objects alive for as long as the converter lives.
    `repository_seconds`: the limits of all repositories, CPU and wall time together.
    """

    machine: Machine
    request: RewardRequest
    tenant: str
    deadline: float
    portable: bool = True
    repository_seconds: float = field(default=0.0, init=False)
    _limits: dict[tuple[int, str, DefaultLimits | None], Limits] = field(default_factory=dict)
    _checked_graders: set[int] = field(default_factory=set)
    _graders: dict[int, Grader] = field(default_factory=dict)
    _digests: dict[int, bytes] = field(default_factory=dict)
    _prompts: dict[int, str] = field(default_factory=dict)
    _added: int = 0

    async def items(self) -> list[RequestItem]:
        """Return the items for all submissions.

        Raises InvalidRequest, naming the field, and BatchTooLarge.
        """
        first, *rest = self.request.submissions
        found = [await self._item(0, first)]
        if rest:
            pacer = Pacer()
            for index, submission in enumerate(rest, 1):
                found.append(await self._item(index, submission))
                await pacer.pause()
        return found

    async def _item(self, index: int, body: WireSubmission) -> RequestItem:
        request, where = self.request, f"submissions.{index}"
        grader = body.grader or request.grader
        if grader is None:
            raise InvalidRequest(f"{where}.grader: neither the submission nor the request has one")
        if grader.judges == "sandbox":
            raise InvalidRequest(
                f"{where}.grader: {grader.kind} judges the files of a sandbox: /rollout, or "
                "/sandboxes/{id}/grade"
            )
        at = f"{where}.grader" if body.grader else "grader"
        grader = self._resolved(grader, at)
        if isinstance(grader, _CHECKED):
            self._check_grader(grader, at)
        rules = self.machine.graders[grader.kind]
        environment = DEFAULT
        if body.environment is not None:
            environment = self.machine.environment(body.environment, f"{where}.environment")
        elif request.environment is not None:
            environment = self.machine.environment(request.environment, "environment")
        language = body.language
        has_runner = isinstance(grader, CommandGrader) and grader.runner is not None
        elsewhere = environment != DEFAULT and grader.kind != "command" and rules.code is None
        if language != PYTHON or has_runner or elsewhere:
            language = self.machine.language(language, grader, where, environment)
        compiler = body.compiler or request.compiler
        if compiler is not None:
            self._check_compiler(compiler, language, f"{where}." * (body.compiler is not None))
        if body.files:
            check_files(body.files, f"{where}.files")
        wanted = body.limits or request.limits
        limits = self._limits.get((id(wanted), environment, rules.limits))
        if limits is None:
            limits = self.machine.limits(
                wanted,
                f"{where}.limits" if body.limits else "limits",
                environment=environment,
                defaults=rules.limits,
            )
            self._limits[id(wanted), environment, rules.limits] = limits
        text = body.completion
        if not isinstance(text, str):
            text = _last_reply(text, f"{where}.completion")
        rule = body.extract or request.extract
        around = Around.of(grader, body, request)
        texts = PYTHON_TEXTS if language == PYTHON else self.machine.texts(language)
        if rules.code is not None:
            self.machine.check_place(grader, environment, at)
            self.repository_seconds += limits.cpu_seconds + limits.wall_seconds
            source = await own_code(text, rule, rules.code, around, where)
        else:
            check_program_rule(rule, f"{where}.extract")
            source = await read_program(text, rule, texts, around)
        judges_completion = grader.judges == "completion"
        if source is None and not judges_completion:
            empty = NoCode(
                test_count(grader), environment=environment, integrity=integrity_of(grader)
            )
            return self._with_owner(index, body, text, empty, None)
        source = source or ""
        self._added += max(0, len(source) - len(text))
        if self._added > MAX_ADDED_CHARACTERS:
            raise BatchTooLarge(
                "prelude, prompt_code and suffix_code make the programs of this batch too long"
            )
        submission = Submission(
            source,
            grader,
            limits,
            body.scoring or request.scoring,
            language,
            body.files,
            environment=environment,
            negative_control=body.negative_control or request.negative_control,
            compiler=compiler,
        )
        if judges_completion:
            prompt = _plain(request.prompt if body.prompt is None else body.prompt)
            reference = await reference_program(grader, rule, texts, around)
            submission = replace(submission, completion=text, prompt=prompt, reference=reference)
        key = self._key(submission) if request.cache else None
        return self._with_owner(index, body, text, submission, key)

    def _check_compiler(self, compiler: Compiler, language: str, where: str) -> None:
        settings = self.machine.settings
        table = settings.languages.get(language)
        dialect = None if table is None else table.dialect
        check_compiler(compiler, dialect, f"{where}compiler")

    def _resolved(self, grader: Grader, where: str) -> Grader:
        """Return the grader with the source of its verifier by name. Raises InvalidRequest."""
        if not isinstance(grader, VerifierGrader) or grader.name is None:
            return grader
        found = self._graders.get(id(grader))
        if found is None:
            found = self._graders[id(grader)] = self.machine.resolved(grader, where)
        return found

    def _check_grader(self, grader: Grader, where: str) -> None:
        if id(grader) not in self._checked_graders:
            self.machine.check_grader(grader, where)
            self._checked_graders.add(id(grader))

    def _with_owner(
        self,
        index: int,
        body: WireSubmission,
        completion: str,
        submission: Submission | NoCode,
        cache_key: bytes | None,
    ) -> RequestItem:
        """Return the item of a submission, with its owner, its deadline and its origin."""
        request = self.request
        origin = None
        if self.portable:
            rule = body.extract or request.extract
            prompt = request.prompt if body.prompt is None else body.prompt
            shown = self._prompts.get(id(prompt), "")
            if prompt is not None and not shown:
                shown = json.dumps(_plain(prompt))
                self._prompts[id(prompt)] = shown
            origin = Origin(completion, rule, body.id, body.group, request.step, shown)
        item = Item(
            evaluation_id=f"ev_{os.urandom(16).hex()}",
            submission=submission,
            tenant=self.tenant,
            job=request.job,
            deadline=self.deadline,
            cache_key=cache_key,
            tags=tuple(request.tags),
            priority=request.priority,
            portable=self.portable and _is_portable(submission),
            goes_to_owners=self.portable and _goes_to_owners(submission),
            origin=origin,
        )
        return RequestItem(index, body.id, body.group, item)

    def _key(self, submission: Submission) -> bytes | None:
        """Return the cache key: a digest of the tenant and of everything that a verdict depends on.

        None for an image that is not fetched: its name may stand for another image by then. The scoring
        rule is part of the key, since a judge may stop at the first failure if the reward is then
        decided. Names, tags, job and deadline are left out: verdicts are independent of them.
        """
        key = hashlib.blake2b(digest_size=20)
        environment_digest = self.machine.digest(submission.environment)
        if submission.environment != DEFAULT and not environment_digest:
            return None
        small = (
            self.machine.fingerprint.digest,
            self.tenant,
            submission.language,
            submission.environment,
            environment_digest,
            submission.scoring,
            submission.negative_control,
            submission.compiler,
            len(submission.source),
            sorted(submission.files.items()),
        )
        key.update(repr(small).encode())
        if isinstance(submission.grader, StdioGrader):
            key.update(repr(self.machine.program_digests(submission.grader)).encode())
        for shared in (submission.limits, submission.grader):
            digest = self._digests.get(id(shared))
            if digest is None:
                digest = self._digests[id(shared)] = _digest(shared)
            key.update(digest)
        key.update(submission.source.encode("utf-8", "surrogatepass"))
        if submission.grader.judges == "completion":
            seen = json.dumps([submission.completion, submission.prompt], sort_keys=True)
            key.update(seen.encode())
        return key.digest()


def _with_deadline(request_item: RequestItem, deadline: float) -> RequestItem:
    return replace(request_item, item=replace(request_item.item, deadline=deadline))


def _is_portable(submission: Submission | NoCode) -> bool:
    """Return True if a peer's result contains the whole judgement."""
    if submission.environment != DEFAULT:
        return False
    return isinstance(submission, NoCode) or _says_all(submission)


def _goes_to_owners(submission: Submission | NoCode) -> bool:
    """Return True if owners of the submission's image may judge the submission."""
    if submission.environment == DEFAULT or isinstance(submission, NoCode):
        return False
    return submission.grader.judges == "repository" or _says_all(submission)


def _says_all(submission: Submission) -> bool:
    grader = submission.grader
    if submission.scoring == "points" or grader.judges in ("completion", "repository"):
        return False
    return not (isinstance(grader, StdioGrader) and any(author_programs(grader)))


def _plain(prompt: str | Sequence[Message] | None) -> Any:
    """Return a prompt as plain JSON."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return [message.model_dump(exclude_unset=True) for message in prompt]


def _digest(value: BaseModel | Limits) -> bytes:
    # Both encodings tell 1 from 1.0 and True, and NaN from None.
    try:
        whole = to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:  # a lone surrogate
        whole = repr(value).encode()
    return hashlib.blake2b(whole, digest_size=20).digest()


def _last_reply(conversation: Sequence[Message], where: str) -> str:
    """Return the text of the last assistant message. Raises InvalidRequest if missing."""
    for message in reversed(conversation):
        if message.role == "assistant":
            content = message.content
            if isinstance(content, str):
                return content
            parts = (part.get("text") for part in content or ())
            return "".join(text for text in parts if isinstance(text, str))
    raise InvalidRequest(f"{where}: none of its messages has the role assistant")


def _docs() -> dict[str, Any]:
    """Return the OpenAPI documentation of POST /reward."""
    own = {404: ("not_found", f"submissions.0.task: there is no task sha256:{'0b' * 32}", False)}
    found = answers(RewardResponse, 401, 404, 413, 422, 429, 500, 503, own=own)
    found[200]["content"][NDJSON] = {
        "schema": {"type": "string"},
        "example": "a result a line, as they finish, and last a line with the summary",
    }
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "maxLength": 255},
        "description": "A repeated request gets the first one's answer; items whose error is "
        "retryable are judged anew.",
    }
    extra = body_of(RewardRequest) | {"parameters": [key]}
    return {"responses": found, "openapi_extra": extra}


def reward_routes(handler: RewardHandler, max_body_mb: int) -> APIRouter:
    """Return the route POST /reward."""
    routes = APIRouter()

    @routes.post("/reward", response_model=RewardResponse, **_docs())
    async def reward(request: Request) -> Response:
        """Judge a batch of submissions, and return their rewards."""
        body = await read_body(request, max_body_mb)
        tenant: str = request.state.tenant
        from_peer = FORWARDED in request.headers  # judged here: no loops
        if from_peer:
            handler.check_slice(request.headers.get(FINGERPRINT))
        batch = await handler.handle(tenant, body, key_of(request.headers), not from_peer)
        by_line = NDJSON in request.headers.get("accept", "")
        form = AnswerFormat(
            "results",
            ("passed", "no_code"),
            by_line,
            SENT_AT_ONCE,
            headers_first=by_line,
            gather_seconds=PEER_GATHER_SECONDS if from_peer else GATHER_SECONDS,
        )
        return task_response(batch, form)

    return routes
