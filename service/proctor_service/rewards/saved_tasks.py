"""Tasks by the hash of their content: a large task travels once, and submissions refer to its name.

Tasks are compressed, and bounded in bytes: of the tenant with the most, the longest unused tasks go
first. A fleet has them in its common store, too. The name of a task no longer stored is a 404: the
client sends the task again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from collections import Counter, OrderedDict
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request

from proctor_client.wire import RewardRequest, Submission, TaskFields, TasksRequest, TasksResponse
from proctor_service.errors import BatchTooLarge, InvalidRequest, NotFound
from proctor_service.http.body import parse_body, read_body
from proctor_service.http.fleet import SharedTasks
from proctor_service.http.openapi import answers, body_of
from proctor_service.scheduling.pacer import Pacer

MOST_BYTES = 256 << 20
"""Of all compressed tasks in the memory of this replica."""
MOST_UNPACKED_BYTES = 128 << 20
"""Of all tasks named in a request."""
_PREFIX = "sha256:"


class SavedTasks:
    """Tasks of each tenant by name."""

    def __init__(self, shared: SharedTasks | None = None, most_bytes: int = MOST_BYTES) -> None:
        """`shared`: store of the fleet. `most_bytes`: of all tasks here."""
        self._shared = shared
        self._most_bytes = most_bytes
        self._bytes: Counter[str] = Counter()
        self._tasks: dict[str, OrderedDict[str, bytes]] = {}

    async def save(self, tenant: str, tasks: Sequence[TaskFields]) -> list[str]:
        """Save tasks, and return their names. Raises InvalidRequest for a task without a grader."""
        names = []
        for place, task in enumerate(tasks):
            if task.grader is None:
                raise InvalidRequest(f"tasks.{place}.grader: a task needs one")
            name, content = await asyncio.to_thread(_packed, task)
            self._add(tenant, name, content)
            if self._shared is not None:
                await self._shared.save(_key(tenant, name), content)
            names.append(name)
        return names

    async def completed(self, tenant: str, request: RewardRequest) -> RewardRequest:
        """Return the request with the fields of the tasks named by its submissions.

        Raises NotFound for an unknown task, and BatchTooLarge.
        """
        if all(each.task is None for each in request.submissions):
            return request
        pacer = Pacer()
        tasks: dict[str, TaskFields] = {}
        room = MOST_UNPACKED_BYTES
        submissions = []
        for place, submission in enumerate(request.submissions):
            if submission.task is not None:
                if submission.task not in tasks:
                    where = f"submissions.{place}.task"
                    text = await self._text(tenant, submission.task, where)
                    room -= len(text)
                    if room < 0:
                        raise BatchTooLarge("the tasks of this batch are too large together")
                    tasks[submission.task] = await parse_body(TaskFields, text)
                submission = _with_fields(submission, tasks[submission.task])
            submissions.append(submission)
            await pacer.pause()
        return request.model_copy(update={"submissions": submissions})

    async def _text(self, tenant: str, name: str, where: str) -> bytes:
        """Return the JSON of a task. Raises NotFound."""
        of_tenant = self._tasks.get(tenant, OrderedDict())
        content = of_tenant.get(name)
        if content is not None:
            of_tenant.move_to_end(name)
        elif self._shared is not None:
            content = await self._shared.load(_key(tenant, name))
            if content is not None:
                self._add(tenant, name, content)
        if content is None:
            raise NotFound(f"{where}: there is no task {name}; POST /tasks takes it")
        return await asyncio.to_thread(zlib.decompress, content)

    def _add(self, tenant: str, name: str, content: bytes) -> None:
        of_tenant = self._tasks.setdefault(tenant, OrderedDict())
        self._bytes[tenant] += len(content) - len(of_tenant.pop(name, b""))
        of_tenant[name] = content
        while self._bytes.total() > self._most_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            _, oldest = self._tasks[largest].popitem(last=False)
            self._bytes[largest] -= len(oldest)
            if not self._tasks[largest]:
                del self._tasks[largest], self._bytes[largest]


def _packed(task: TaskFields) -> tuple[str, bytes]:
    """Return the name and the compressed JSON of a task; equal for any order of its keys."""
    text = json.dumps(task.model_dump(exclude_unset=True), sort_keys=True).encode()
    return f"{_PREFIX}{hashlib.sha256(text).hexdigest()}", zlib.compress(text, 1)


def _with_fields(submission: Submission, task: TaskFields) -> Submission:
    own = submission.model_fields_set
    added = {name: getattr(task, name) for name in task.model_fields_set if name not in own}
    return submission.model_copy(update=added)


def _key(tenant: str, name: str) -> bytes:
    return hashlib.blake2b(json.dumps([tenant, name]).encode(), digest_size=20).hexdigest().encode()


def task_routes(tasks: SavedTasks, max_body_mb: int) -> APIRouter:
    """Return the route POST /tasks."""
    routes = APIRouter()
    docs = {
        "responses": answers(TasksResponse, 401, 413, 422, 500, 503),
        "openapi_extra": body_of(TasksRequest),
    }

    @routes.post("/tasks", response_model=TasksResponse, **docs)  # type: ignore[arg-type]
    async def save(request: Request) -> TasksResponse:
        """Keep tasks by the hash of their content, for later submissions."""
        body = await parse_body(TasksRequest, await read_body(request, max_body_mb))
        return TasksResponse(tasks=await tasks.save(request.state.tenant, body.tasks))

    return routes
