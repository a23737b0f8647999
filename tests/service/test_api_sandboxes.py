"""/sandboxes over a real connection, with scripted sandboxes."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from harness import WAIT_SECONDS, Service, running_service
from pydantic import BaseModel
from scripted_sandboxes import FakeBackend, ScriptedSandbox

from proctor_client import wire
from proctor_service.api.sandboxes.streaming import MOST_PIECES, Output
from proctor_service.errors import JudgeFailed, SandboxLost, SandboxUnavailable
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Traits
from proctor_service.settings import Settings

NDJSON = {"Accept": "application/x-ndjson"}
EXEC_GRADER = {"kind": "exec"}
TOKENS = json.dumps({"a": "token-a", "b": "token-b"})


class Grading:
    """A judge that notes what it is given, and passes it unless it is told otherwise."""

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.failure: Exception | None = None

    async def __call__(self, submission: Submission, backend: Backend) -> Judgement:
        self.submissions.append(submission)
        if self.failure is not None:
            raise self.failure
        return Judgement("passed", passed=1, total=1)


class Held:
    """A judge that never comes to an end by itself."""

    def __init__(self) -> None:
        self.entered = self.cancelled = 0

    async def __call__(self, submission: Submission, backend: Backend) -> Judgement:
        self.entered += 1
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError("nothing lets it go")


class ServerUnderTest:
    """A running service with scripted sandboxes, and a client."""

    def __init__(
        self, service: Service, inn: FakeBackend, client: httpx.Client, judge: Any
    ) -> None:
        self.service = service
        self.inn = inn
        self.client = client
        self.judge = judge

    def create(self, **fields: Any) -> dict[str, Any]:
        answer = self.client.post("/sandboxes", json=fields)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def exec(self, sandbox_id: str, *command: str, **headers: str) -> httpx.Response:
        body = {"command": command}
        return self.client.post(f"/sandboxes/{sandbox_id}/exec", json=body, headers=headers)

    def sigterm(self) -> None:
        server = self.service.server
        self.service.call(lambda: server.handle_exit(signal.SIGTERM, None))

    @property
    def guest(self) -> ScriptedSandbox:
        """The only sandbox."""
        [guest] = self.inn.guests
        return guest


class Serving:
    """`with serving(…) as hotel`: serves with these settings."""

    def __init__(self, judge: Any = None, **settings: Any) -> None:
        self._settings = Settings(**settings)
        self._judge = judge or Grading()

    def __enter__(self) -> ServerUnderTest:
        inn = FakeBackend(Traits("scripted", degraded=("cgroups",)))
        self._running = running_service(self._settings, judge=self._judge, backend=inn)
        service = self._running.__enter__()
        self._client = service.client()
        return ServerUnderTest(service, inn, self._client, self._judge)

    def __exit__(self, *error: Any) -> None:
        self._client.close()
        self._running.__exit__(*error)


serving = Serving


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerUnderTest]:
    with serving(max_file_mb=1, max_wall_seconds=100) as hotel:
        yield hotel


@pytest.fixture
def hotel(shared: ServerUnderTest) -> Iterator[ServerUnderTest]:
    yield shared
    for each in shared.client.get("/sandboxes").json()["sandboxes"]:
        shared.client.delete(f"/sandboxes/{each['id']}?missing_ok=true")


@pytest.fixture
def sandbox(hotel: ServerUnderTest) -> str:
    found: str = hotel.create()["id"]
    return found


def problem(answer: httpx.Response, status: int, reason: str) -> wire.Problem:
    """The problem in an answer, held against the contract."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == set(wire.Problem.model_fields)
    found = wire.ProblemBody.model_validate_json(answer.content).error
    assert found.reason == reason
    return found


# ---------------------------------------------------------------- life


def test_a_sandbox_has_every_field_of_the_contract(hotel: ServerUnderTest) -> None:
    found = hotel.create(tags=["a", "b"], ttl_seconds=100, files={"x": "1"}, job="run-1")
    assert set(found) == set(wire.Sandbox.model_fields)
    sandbox = wire.Sandbox.model_validate(found)
    assert (sandbox.status, sandbox.tags, sandbox.backend) == ("running", ["a", "b"], "scripted")
    assert sandbox.exec_stats == wire.ExecStats()
    assert 99 < (sandbox.expires_at - sandbox.created_at).total_seconds() < 101
    assert sandbox.created_at.tzinfo is not None
    assert hotel.guest.files == {"x": b"1"}
    hotel.exec(sandbox.id, "true")
    hotel.exec(sandbox.id, "false")
    hotel.exec(sandbox.id, "overrun")
    again = wire.Sandbox.model_validate(hotel.client.get(f"/sandboxes/{sandbox.id}").json())
    assert again.exec_stats == wire.ExecStats(total=3, successes=1, failures=1, errors=1)
    assert again.expires_at > sandbox.expires_at


def test_what_a_sandbox_may_use_is_asked_for_or_the_servers() -> None:
    with serving(memory_mb=99, max_cpu_seconds=20) as hotel:
        hotel.create(limits={"cpu_seconds": 3})
        assert (hotel.guest.limits.cpu_seconds, hotel.guest.limits.memory_mb) == (3, 99)
        answer = hotel.client.post("/sandboxes", json={"limits": {"cpu_seconds": 21}})
        assert "limits.cpu_seconds: " in problem(answer, 422, "invalid_request").message


def test_stopping_one_is_a_410_after_it_unless_that_is_fine(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    delete, url = hotel.client.delete, f"/sandboxes/{sandbox}"
    answer = delete(url)
    assert (answer.status_code, answer.json()) == (200, {"stopped": 1})
    assert hotel.inn.guests == []
    assert delete(f"{url}?missing_ok=true").json() == {"stopped": 0}
    assert "it was stopped" in problem(delete(url), 410, "sandbox_stopped").message
    assert hotel.client.get(url).json()["status"] == "stopped"
    for use in (
        hotel.exec(sandbox, "true"),
        hotel.exec(sandbox, "true", **NDJSON),
        hotel.client.put(f"{url}/files/x", content=b"x"),
        hotel.client.get(f"{url}/files/x"),
        hotel.client.post(f"{url}/grade", json={"grader": EXEC_GRADER}),
    ):
        problem(use, 410, "sandbox_stopped")


def test_an_unknown_one_is_a_404_unless_that_is_fine(hotel: ServerUnderTest) -> None:
    url = "/sandboxes/sb_none"
    assert hotel.client.delete(f"{url}?missing_ok=true").json() == {"stopped": 0}
    for answer in (
        hotel.client.get(url),
        hotel.client.delete(url),
        hotel.exec("sb_none", "true"),
        hotel.client.put(f"{url}/files/x", content=b"x"),
        hotel.client.get(f"{url}/files/x"),
        hotel.client.post(f"{url}/grade", json={"grader": EXEC_GRADER}),
    ):
        problem(answer, 404, "sandbox_not_found")


def test_those_that_ended_are_a_404_once_they_are_forgotten() -> None:
    with serving(ended_sandboxes=1) as hotel:
        first, second = [hotel.create()["id"] for _ in range(2)]
        for each in (first, second):
            hotel.client.delete(f"/sandboxes/{each}")
        problem(hotel.exec(first, "true"), 404, "sandbox_not_found")
        problem(hotel.exec(second, "true"), 410, "sandbox_stopped")


def test_lists_go_by_all_tags_and_any_status(hotel: ServerUnderTest) -> None:
    odd = "a&b=c d/ü\U0001f600?#%2F\n"
    first = hotel.create(tags=["x", odd])["id"]
    second = hotel.create(tags=["x", "y"])["id"]

    def ids(**query: Any) -> list[str]:
        answer = hotel.client.get("/sandboxes", params=query)
        assert answer.status_code == 200, answer.text
        return [each.id for each in wire.SandboxList.model_validate(answer.json()).sandboxes]

    assert ids(tag="x") == [first, second]
    assert ids(tag=["x", odd]) == [first]
    assert ids(tag=["x", "z"]) == []
    answer = hotel.client.delete("/sandboxes", params={"tag": [odd]})
    assert answer.json()["stopped"] == 1
    assert ids(tag="x", status="running") == [second]
    assert ids(tag="x", status=["pending", "stopped"]) == [first]
    assert ids(tag="x", status=["running", "stopped"]) == [first, second]


@pytest.mark.parametrize(
    ("method", "query", "named"),
    [
        ("GET", "?status=asleep", "query.status.0: "),
        ("GET", "?tags=x", "tags: "),
        ("DELETE", "", "tag: "),
        ("DELETE", "?status=running", "status: "),
        ("DELETE", "?tag=x&status=running", "status: "),
        ("DELETE", "/sb_1?missing=true", "missing: "),
        ("DELETE", "/sb_1?missing_ok=perhaps", "missing_ok: "),
    ],
)
def test_a_query_that_makes_no_sense_is_a_422(
    hotel: ServerUnderTest, sandbox: str, method: str, query: str, named: str
) -> None:
    answer = hotel.client.request(method, f"/sandboxes{query}")
    assert named in problem(answer, 422, "invalid_request").message
    assert hotel.guest


@pytest.mark.parametrize(
    ("route", "body", "named"),
    [
        ("", {"tag": ["x"]}, "tag: unknown field"),
        ("", {"tags": "x"}, "tags: "),
        ("", {"tags": ["x"] * 65}, "tags: "),
        ("", {"tags": ["ok", "x" * 257]}, "tags.1: "),
        ("", {"ttl_seconds": 0}, "ttl_seconds: "),
        ("", {"ttl_seconds": float("nan")}, "ttl_seconds: "),
        ("", {"files": {"../x": ""}}, "files: '../x'"),
        ("", {"limits": {"network": True}}, "limits.network: "),
        ("", [], ""),
        ("/exec", {}, "either command or code"),
        ("/exec", {"command": ["true"], "code": "1"}, "either command or code"),
        ("/exec", {"command": []}, "command: "),
        ("/exec", {"command": ["a", "b\0"]}, "command.1: "),
        ("/exec", {"command": ["\ud800"]}, "command.0: "),
        ("/exec", {"comand": ["true"]}, "comand: unknown field"),
        ("/exec", {"command": ["true"], "timeout_seconds": 101}, "timeout_seconds: "),
        ("/exec", {"command": ["true"], "timeout_seconds": float("inf")}, "timeout_seconds: "),
        ("/grade", {}, "grader: "),
        ("/grade", {"grader": {"kind": "guess"}}, "grader: "),
        ("/grade", {"grader": {"kind": "exec", "x": 1}}, "grader.x: unknown field"),
        ("/grade", {"grader": {"kind": "pytest", "files": {"/t.py": ""}}}, "grader.files: "),
        ("/grade", {"grader": EXEC_GRADER, "limits": {"disk_mb": 10**9}}, "limits.disk_mb: "),
        ("/grade", {"grader": EXEC_GRADER, "scorin": "all"}, "scorin: unknown field"),
    ],
)
def test_a_body_that_makes_no_sense_is_a_422_that_names_the_field(
    hotel: ServerUnderTest, sandbox: str, route: str, body: Any, named: str
) -> None:
    url = f"/sandboxes/{sandbox}{route}" if route else "/sandboxes"
    answer = hotel.client.post(url, content=json.dumps(body))
    assert named in problem(answer, 422, "invalid_request").message


def test_another_tenants_is_not_there() -> None:
    with serving(tokens=TOKENS) as hotel:
        a, b = [{"Authorization": f"Bearer token-{name}"} for name in "ab"]
        client = hotel.client
        mine = client.post("/sandboxes", json={"tags": ["x"]}, headers=a).json()["id"]
        theirs = client.post("/sandboxes", json={"tags": ["x"]}, headers=b).json()["id"]
        url = f"/sandboxes/{theirs}"
        for answer in (
            client.get(url, headers=a),
            client.delete(url, headers=a),
            client.post(f"{url}/exec", json={"command": ["true"]}, headers=a),
            client.put(f"{url}/files/x", content=b"x", headers=a),
            client.get(f"{url}/files/x", headers=a),
            client.post(f"{url}/grade", json={"grader": EXEC_GRADER}, headers=a),
        ):
            problem(answer, 404, "sandbox_not_found")
        problem(client.get(f"/sandboxes/{mine}"), 401, "unauthorized")
        listed = client.get("/sandboxes", headers=a).json()["sandboxes"]
        assert [each["id"] for each in listed] == [mine]
        assert client.delete("/sandboxes?tag=x", headers=a).json()["stopped"] == 1
        assert client.get(url, headers=b).json()["status"] == "running"


def test_beyond_the_bound_it_is_a_429_that_says_when_to_come_back() -> None:
    with serving(max_sandboxes=6) as hotel:  # half of them: the rest is for rewards
        for _ in range(3):
            hotel.create()
        answer = hotel.client.post("/sandboxes", json={})
        assert problem(answer, 429, "quota_exceeded").retryable
        assert int(answer.headers["retry-after"]) >= 1


def test_a_hundred_at_once() -> None:
    with serving() as hotel, ThreadPoolExecutor(50) as pool:
        hotel.service.call(hotel.inn.door.clear)
        made = [pool.submit(hotel.create, files={"n": str(number)}) for number in range(50)]
        hotel.service.until(lambda: hotel.inn.coming == 50)
        hotel.service.call(hotel.inn.door.set)
        ids = [each.result()["id"] for each in made]
        ids += [hotel.create()["id"] for _ in range(50)]
        answers = list(pool.map(lambda each: hotel.exec(each, "true"), ids * 3))
        assert {answer.json()["exit_code"] for answer in answers} == {0}
        assert len(hotel.client.get("/sandboxes?status=running").json()["sandboxes"]) == 100


# ---------------------------------------------------------------- exec


def test_an_execution_has_every_field_of_the_contract(hotel: ServerUnderTest, sandbox: str) -> None:
    found = hotel.exec(sandbox, "say", "out", "!err").json()
    assert found["usage"].pop("queue_seconds") >= 0
    assert found == {
        "exit_code": 0,
        "stdout": "out",
        "stderr": "!err",
        "ending": "exited",
        "truncated": False,
        "usage": {"cpu_seconds": 0.5, "wall_seconds": 1.0, "peak_memory_mb": 2.0},
    }
    assert set(found) == set(wire.ExecResult.model_fields)
    limited = hotel.exec(sandbox, "overrun").json()
    assert (limited["ending"], limited["exit_code"]) == ("wall_limit", None)


def test_code_and_stdin_are_taken_as_they_are(hotel: ServerUnderTest, sandbox: str) -> None:
    body = {"code": "a b", "stdin": "ü\ud800\0", "timeout_seconds": 2.5}
    answer = hotel.client.post(f"/sandboxes/{sandbox}/exec", content=json.dumps(body))
    assert answer.json()["stdout"] == "ab"
    assert hotel.guest.stdin == b"\xc3\xbc\xed\xa0\x80\0"


def test_output_comes_as_lines_and_the_result_last(hotel: ServerUnderTest, sandbox: str) -> None:
    # The two bytes of an ü apart, and one that is no UTF-8.
    words = ["a", "!b", "c\xc3", "\xbc", "\xff", "!\xc3"]
    answer = hotel.exec(sandbox, "say", *words, **NDJSON)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [wire.ExecLine.model_validate_json(line) for line in answer.text.splitlines()]
    assert all(len(line.model_dump(exclude_none=True)) == 1 for line in lines)
    result = lines[-1].result
    assert result is not None
    assert (result.stdout, result.stderr) == ("acü\ufffd", "!b!\ufffd")
    assert "".join(line.stdout or "" for line in lines) == result.stdout
    assert "".join(line.stderr or "" for line in lines) == result.stderr
    assert [line.stdout or line.stderr for line in lines[:2]] == ["a", "!b"]


def test_lines_come_while_the_command_runs(hotel: ServerUnderTest, sandbox: str) -> None:
    body = {"command": ["say-and-wait", "early"]}
    url = f"/sandboxes/{sandbox}/exec"
    with hotel.client.stream("POST", url, json=body, headers=NDJSON) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"stdout": "early"}
        hotel.service.call(lambda: hotel.guest.release("said"))
        assert json.loads(next(lines))["result"]["stdout"] == "early"
        assert list(lines) == []


def test_what_breaks_under_way_is_a_last_line_and_before_that_an_error(
    hotel: ServerUnderTest,
) -> None:
    ids = [hotel.create()["id"] for _ in range(3)]
    stopped, lost, silent = hotel.inn.guests
    ends: list[Callable[[], Any]] = [
        lambda: hotel.client.delete(f"/sandboxes/{ids[0]}"),
        lambda: hotel.service.call(lambda: lost.lose(SandboxLost("gone"))),
    ]
    reasons = [("sandbox_stopped", False), ("sandbox_lost", False)]
    for sandbox_id, end, (reason, retryable) in zip(ids, ends, reasons, strict=False):
        body = {"command": ["say-and-wait", "early"]}
        url = f"/sandboxes/{sandbox_id}/exec"
        with hotel.client.stream("POST", url, json=body, headers=NDJSON) as answer:
            lines = answer.iter_lines()
            assert json.loads(next(lines)) == {"stdout": "early"}
            end()
            [last] = [wire.ExecLine.model_validate_json(line) for line in lines]
        assert last.error is not None
        assert (last.error.reason, last.error.retryable) == (reason, retryable)
    assert stopped.cancelled == ["said"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hotel.exec, ids[2], "wait", "a", **NDJSON)
        hotel.service.until(lambda: bool(silent.waiting))
        hotel.client.delete(f"/sandboxes/{ids[2]}")
        problem(asked.result(), 410, "sandbox_stopped")


def test_a_lost_sandbox_is_an_error_that_no_client_tries_again(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        hotel.service.until(lambda: bool(hotel.guest.waiting))
        hotel.service.call(lambda: hotel.guest.lose(SandboxLost("gone")))
        assert problem(asked.result(), 500, "sandbox_lost").retryable is False
    assert hotel.client.get(f"/sandboxes/{sandbox}").json()["status"] == "failed"
    problem(hotel.exec(sandbox, "true"), 500, "sandbox_lost")
    assert hotel.client.delete(f"/sandboxes/{sandbox}?missing_ok=true").json() == {"stopped": 0}


def test_no_sandbox_to_be_had_is_a_503_to_try_again(hotel: ServerUnderTest) -> None:
    hotel.inn.refusals.append(SandboxUnavailable("no room"))
    answer = hotel.client.post("/sandboxes", json={})
    assert problem(answer, 503, "sandbox_unavailable").retryable
    assert int(answer.headers["retry-after"]) >= 1


@asynccontextmanager
async def asking(service: Service, method: str, url: str, **options: Any) -> AsyncIterator[None]:
    """A request under way; at the end its client hangs up."""
    async with httpx.AsyncClient(base_url=service.url, trust_env=False) as client:
        request = asyncio.create_task(client.request(method, url, timeout=WAIT_SECONDS, **options))
        yield
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


@pytest.mark.parametrize("headers", [{}, NDJSON])
@pytest.mark.parametrize("command", [["wait", "said"], ["say-and-wait", "early"]])
def test_a_client_that_hangs_up_ends_its_command(
    hotel: ServerUnderTest,
    sandbox: str,
    headers: dict[str, str],
    command: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hang_up() -> None:
        url, body = f"/sandboxes/{sandbox}/exec", {"command": command}
        async with asking(hotel.service, "POST", url, json=body, headers=headers):
            await asyncio.to_thread(hotel.service.until, lambda: bool(hotel.guest.waiting))

    asyncio.run(hang_up())
    hotel.service.until(lambda: hotel.guest.cancelled == ["said"])
    hotel.service.until(lambda: hotel.service.parts.queue.busy == 0)
    hotel.service.until(lambda: not hotel.service.server.server_state.tasks)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    found = hotel.client.get(f"/sandboxes/{sandbox}").json()
    assert (found["status"], found["exec_stats"]["errors"]) == ("running", 1)


def test_a_stream_that_nobody_reads_keeps_little() -> None:
    output = Output()
    for number in range(100_000):
        output.hear("stdout" if number % 2 else "stderr", b"x")
    assert len(output._pieces) <= MOST_PIECES + 1
    read = {"stdout": "", "stderr": ""}
    while (line := output.next_line()) is not None:
        for name, text in json.loads(line).items():
            read[name] += text
    assert (len(read["stdout"]), len(read["stderr"])) == (50_000, 50_000)
    output.hear("stdout", b"y" * (1 << 20))
    line = output.next_line()
    assert line is not None
    assert len(line) < 100_000


def test_the_metrics_count_commands_and_sandboxes() -> None:
    with serving() as hotel:
        first, second = [hotel.create()["id"] for _ in range(2)]
        hotel.exec(first, "true")
        hotel.exec(first, "false")
        hotel.exec(first, "overrun")
        hotel.client.delete(f"/sandboxes/{second}")
        lines = hotel.client.get("/metrics").text.splitlines()
    for line in (
        'proctor_execs_total{outcome="success"} 1.0',
        'proctor_execs_total{outcome="failure"} 1.0',
        'proctor_execs_total{outcome="error"} 1.0',
        "proctor_exec_seconds_count 3.0",
        'proctor_stateful_sandboxes{status="running"} 1.0',
        'proctor_stateful_sandboxes{status="stopped"} 1.0',
        'proctor_http_request_seconds_count{route="/sandboxes/{sandbox_id}/exec"} 3.0',
    ):
        assert line in lines, line


# ---------------------------------------------------------------- create, again


def test_a_client_that_hangs_up_while_its_sandbox_is_made_gets_none(hotel: ServerUnderTest) -> None:
    async def hang_up() -> None:
        async with asking(hotel.service, "POST", "/sandboxes", json={}):
            await asyncio.to_thread(hotel.service.until, lambda: hotel.inn.coming == 1)

    hotel.service.call(hotel.inn.door.clear)
    asyncio.run(hang_up())
    hotel.service.until(lambda: hotel.inn.coming == 0)
    hotel.service.call(hotel.inn.door.set)
    assert hotel.client.get("/sandboxes?status=running&status=pending").json()["sandboxes"] == []
    assert hotel.inn.guests == []


def test_with_a_key_a_retry_finds_the_sandbox_that_was_made_meanwhile(
    hotel: ServerUnderTest,
) -> None:
    key = {"Idempotency-Key": "k1"}

    async def hang_up() -> None:
        async with asking(hotel.service, "POST", "/sandboxes", json={}, headers=key):
            await asyncio.to_thread(hotel.service.until, lambda: hotel.inn.coming == 1)

    hotel.service.call(hotel.inn.door.clear)
    asyncio.run(hang_up())
    with ThreadPoolExecutor(8) as pool:
        again = [
            pool.submit(hotel.client.post, "/sandboxes", json={}, headers=key) for _ in range(8)
        ]
        hotel.service.call(hotel.inn.door.set)
        answers = [each.result() for each in again]
    assert {answer.status_code for answer in answers} == {201}
    assert {answer.json()["id"] for answer in answers} == {
        each["id"] for each in hotel.client.get("/sandboxes?status=running").json()["sandboxes"]
    }
    assert len(hotel.inn.guests) == 1
    other = hotel.client.post("/sandboxes", json={"tags": ["x"]}, headers=key)
    assert "idempotency-key" in problem(other, 422, "invalid_request").message


def test_with_a_key_what_could_not_be_made_is_made_by_the_retry(hotel: ServerUnderTest) -> None:
    key = {"Idempotency-Key": "k2"}
    hotel.inn.refusals.append(SandboxUnavailable("no room"))
    answer = hotel.client.post("/sandboxes", json={}, headers=key)
    problem(answer, 503, "sandbox_unavailable")
    assert hotel.client.post("/sandboxes", json={}, headers=key).status_code == 201


def test_two_tenants_may_use_the_same_key() -> None:
    with serving(tokens=TOKENS) as hotel:
        found = [
            hotel.client.post(
                "/sandboxes",
                json={},
                headers={"Idempotency-Key": "k", "Authorization": f"Bearer token-{name}"},
            ).json()["id"]
            for name in "aab"
        ]
        assert found[0] == found[1] != found[2]


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "a/b/c.txt",
        "with space",
        "ü/\U0001f600",
        "50%.txt",
        "a?b#c",
        "%2Fetc/x",
        "/etc/x",
        "..x",
    ],
)
def test_files_come_back_byte_by_byte(hotel: ServerUnderTest, sandbox: str, path: str) -> None:
    data = bytes(range(256)) * 10
    url = f"/sandboxes/{sandbox}/files/{quote(path)}"
    answer = hotel.client.put(url, content=data)
    assert (answer.status_code, answer.content) == (204, b"")
    assert hotel.guest.files == {path: data}
    answer = hotel.client.get(url)
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"] == "application/octet-stream"


def test_an_empty_file_is_a_file(hotel: ServerUnderTest, sandbox: str) -> None:
    url = f"/sandboxes/{sandbox}/files/x"
    assert hotel.client.put(url).status_code == 204
    assert hotel.client.get(url).content == b""


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("none", 404, "file_not_found"),
        ("", 422, "invalid_request"),
        ("a%00b", 422, "invalid_request"),
        ("%FF", 422, "invalid_request"),
        ("x" * 256, 422, "invalid_request"),
        ("a/" * 2100 + "b", 422, "invalid_request"),
        ("big", 422, "invalid_request"),
    ],
)
def test_files_that_cannot_be_read(
    hotel: ServerUnderTest, sandbox: str, path: str, status: int, reason: str
) -> None:
    hotel.guest.files = {"big": bytes((1 << 20) + 1), "\ufffd": b"not this one"}
    url = f"/sandboxes/{sandbox}/files/{path}"
    problem(hotel.client.get(url), status, reason)
    if reason == "invalid_request" and path != "big":
        problem(hotel.client.put(url, content=b"x"), 422, "invalid_request")
        assert len(hotel.guest.files) == 2


def test_a_file_that_is_too_large_or_has_no_room_is_refused(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    url = f"/sandboxes/{sandbox}/files"
    problem(hotel.client.put(f"{url}/full", content=b"x"), 422, "invalid_request")
    assert hotel.client.put(f"{url}/x", content=bytes(1 << 20)).status_code == 204
    too_large = hotel.client.put(f"{url}/y", content=bytes((1 << 20) + 1))
    problem(too_large, 413, "invalid_request")
    assert list(hotel.guest.files) == ["x"]


def test_a_ttl_does_not_pass_in_the_middle_of_an_upload(hotel: ServerUnderTest) -> None:
    clock = hotel.create(ttl_seconds=0.8)["id"]
    sandbox = hotel.create(ttl_seconds=0.5)["id"]
    registry = hotel.service.parts.registry

    def slowly() -> Iterator[bytes]:
        yield b"a"
        # The other sandbox's ttl is longer than this one's, and begins no later than this use.
        hotel.service.until(lambda: registry.find("local", clock).over)
        yield b"b"

    answer = hotel.client.put(f"/sandboxes/{sandbox}/files/x", content=slowly())
    assert answer.status_code == 204
    assert hotel.client.get(f"/sandboxes/{sandbox}/files/x").content == b"ab"
    hotel.service.until(lambda: registry.find("local", sandbox).over)
    message = problem(hotel.exec(sandbox, "true"), 410, "sandbox_stopped").message
    assert "its ttl of 0.5 s passed" in message


def test_a_sandbox_that_is_stopped_in_the_middle_of_an_upload(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    def stopping() -> Iterator[bytes]:
        yield b"a"
        hotel.service.until(lambda: hotel.service.parts.registry.find("local", sandbox)._uses == 1)
        with hotel.service.client() as other:
            other.delete(f"/sandboxes/{sandbox}")
        yield b"b"

    answer = hotel.client.put(f"/sandboxes/{sandbox}/files/x", content=stopping())
    problem(answer, 410, "sandbox_stopped")


# ---------------------------------------------------------------- grade


def grade(hotel: ServerUnderTest, sandbox: str, **body: Any) -> dict[str, Any]:
    answer = hotel.client.post(f"/sandboxes/{sandbox}/grade", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert set(found) == set(wire.Result.model_fields)
    return found


def test_the_final_state_is_judged() -> None:
    with serving() as hotel:
        sandbox = hotel.create(
            files={"solution.py": "x = 'ü'", "data": "1"}, tags=["t"], limits={"disk_mb": 3}
        )["id"]
        found = grade(hotel, sandbox, grader=EXEC_GRADER, scoring="fraction")
        assert (found["index"], found["reward"], found["verdict"]) == (0, 1.0, "passed")
        assert (found["cache"], found["degraded"]) == ("miss", ["cgroups"])
        [judged] = hotel.judge.submissions
        assert (judged.source, judged.state) == ("x = 'ü'", b"data solution.py")
        assert (judged.scoring, judged.limits.disk_mb, judged.files) == ("fraction", 3, {})
        grade(hotel, sandbox, grader=EXEC_GRADER, limits={"cpu_seconds": 2})
        assert hotel.judge.submissions[1].limits.cpu_seconds == 2
        assert hotel.judge.submissions[1].limits.disk_mb == 3
        assert hotel.client.get(f"/sandboxes/{sandbox}").json()["status"] == "running"


def test_without_a_solution_there_is_no_code_or_the_state_alone() -> None:
    with serving() as hotel:
        sandbox = hotel.create()["id"]
        asserts = {"kind": "asserts", "tests": ["assert f()", "assert f()"]}
        found = grade(hotel, sandbox, grader=asserts)
        assert (found["verdict"], found["reward"]) == ("no_code", 0.0)
        assert found["tests"]["total"] == 2
        assert found["message"] == "There is nothing to judge: solution.py: no such file"
        assert hotel.judge.submissions == []
        for grader in (
            {"kind": "pytest", "files": {"test_x.py": ""}},
            {"kind": "command", "argv": ["true"]},
        ):
            assert grade(hotel, sandbox, grader=grader)["verdict"] == "passed"
            judged = hotel.judge.submissions[-1]
            assert (judged.source, judged.state) == ("", b"")


def test_files_that_the_agent_made_unreadable_are_a_verdict_and_no_error() -> None:
    with serving() as hotel:
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        hotel.guest.full = True
        found = grade(hotel, sandbox, grader={"kind": "pytest", "files": {"test_x.py": ""}})
        assert (found["verdict"], found["reward"], found["error"]) == ("no_code", 0.0, None)
        assert "no means left" in found["message"]


def test_few_gradings_at_once_hold_the_files_of_a_sandbox() -> None:
    judge = Held()
    with serving(judge, slots=1) as hotel, ThreadPoolExecutor(10) as pool:

        def cancel_all() -> None:
            for batch in hotel.service.parts.handler.running:
                batch.cancel("test")

        ids = [hotel.create(files={"solution.py": ""})["id"] for _ in range(10)]
        asked = [
            pool.submit(hotel.client.post, f"/sandboxes/{each}/grade", json={"grader": EXEC_GRADER})
            for each in ids
        ]
        gradings = hotel.service.parts.sandboxes._gradings.queue
        hotel.service.until(lambda: gradings.queued == 8 and judge.entered == 1)
        assert sum(guest.snapshots for guest in hotel.inn.guests) == 2
        for each in ids:
            hotel.client.delete(f"/sandboxes/{each}")
        hotel.service.call(cancel_all)
        hotel.service.until(lambda: (gradings.busy, gradings.queued) == (0, 0))
        codes = sorted(each.result().status_code for each in asked)
        assert codes == [200] * 2 + [410] * 8


def test_a_solution_that_is_no_text_is_judged_all_the_same() -> None:
    with serving() as hotel:
        sandbox = hotel.create()["id"]
        hotel.client.put(f"/sandboxes/{sandbox}/files/solution.py", content=b"\xff")
        grade(hotel, sandbox, grader=EXEC_GRADER)
        grade(hotel, sandbox, grader={"kind": "command", "argv": ["true"]})
        assert [each.source for each in hotel.judge.submissions] == ["\udcff", ""]


def test_a_failure_to_judge_is_an_error_and_never_a_reward() -> None:
    with serving() as hotel:
        hotel.judge.failure = JudgeFailed("broken")
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        found = grade(hotel, sandbox, grader=EXEC_GRADER)
        assert (found["reward"], found["verdict"]) == (None, None)
        assert found["error"]["reason"] == "judge_failed"


def test_a_client_that_hangs_up_ends_its_grading() -> None:
    judge = Held()
    with serving(judge) as hotel:
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        kept = hotel.service.parts.registry.find("local", sandbox)

        async def hang_up() -> None:
            url, body = f"/sandboxes/{sandbox}/grade", {"grader": EXEC_GRADER}
            async with asking(hotel.service, "POST", url, json=body):
                await asyncio.to_thread(hotel.service.until, lambda: judge.entered == 1)
                assert kept._uses == 1

        asyncio.run(hang_up())
        hotel.service.until(lambda: judge.cancelled == 1)
        hotel.service.until(lambda: kept._uses == 0)
        assert not hotel.service.parts.handler.running


# ---------------------------------------------------------------- the end


def test_a_draining_service_finishes_commands_and_takes_none() -> None:
    with serving() as hotel, ThreadPoolExecutor(1) as pool:
        service = hotel.service
        sandbox = hotel.create(files={"solution.py": ""})["id"]
        guest = hotel.guest
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        service.until(lambda: bool(guest.waiting))
        hotel.sigterm()
        service.until(lambda: service.parts.queue.draining)
        with service.client() as client:
            url = f"/sandboxes/{sandbox}"
            for answer in (
                client.post("/sandboxes", json={}),
                client.post(f"{url}/exec", json={"command": ["true"]}),
                client.post(f"{url}/grade", json={"grader": EXEC_GRADER}),
            ):
                assert problem(answer, 503, "draining").retryable
            assert client.get(f"{url}/files/solution.py").status_code == 200
        service.call(lambda: guest.release("a"))
        assert asked.result().json()["exit_code"] == 0
        service.thread.join(WAIT_SECONDS)
        assert (hotel.inn.guests, hotel.inn.left) == ([], [guest])


def test_a_draining_service_hands_back_what_waits_to_be_graded() -> None:
    judge = Held()
    with serving(judge, slots=1, grace_seconds=2) as hotel, ThreadPoolExecutor(4) as pool:
        ids = [hotel.create(files={"solution.py": ""})["id"] for _ in range(4)]
        asked = [
            pool.submit(hotel.client.post, f"/sandboxes/{each}/grade", json={"grader": EXEC_GRADER})
            for each in ids
        ]
        gradings = hotel.service.parts.sandboxes._gradings.queue
        hotel.service.until(lambda: gradings.queued == 2 and judge.entered == 1)
        hotel.sigterm()
        answers = [each.result() for each in asked]
        assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503]
        for answer in answers:
            error = answer.json()["error"]
            assert error["reason"] in ("cancelled", "draining")
            assert error["retryable"] is True


def test_what_outlasts_the_grace_is_stopped_and_told_so() -> None:
    with serving(grace_seconds=0.2) as hotel, ThreadPoolExecutor(1) as pool:
        sandbox = hotel.create()["id"]
        guest = hotel.guest
        asked = pool.submit(hotel.exec, sandbox, "wait", "a")
        hotel.service.until(lambda: bool(guest.waiting))
        hotel.sigterm()
        found = problem(asked.result(), 410, "sandbox_stopped")
        assert "the service is stopping" in found.message
        hotel.service.thread.join(WAIT_SECONDS)
        assert hotel.inn.left == [guest]


def test_nothing_is_left_when_the_service_closes() -> None:
    with serving() as hotel:
        for _ in range(20):
            hotel.create()
        inn = hotel.inn
    assert (len(inn.left), inn.guests, inn.closed) == (20, [], True)


def test_a_bug_in_a_sandbox_route_is_a_500_that_tells_nothing(
    hotel: ServerUnderTest, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(hotel.guest, "exec", broken)
    answer = hotel.exec(sandbox, "true")
    problem(answer, 500, "internal")
    assert "secret" not in answer.text


def test_the_examples_of_the_openapi_page_are_answered(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    paths = hotel.client.get("/openapi.json").json()["paths"]
    models: dict[str, tuple[type[BaseModel], type[BaseModel]]] = {
        "/sandboxes": (wire.SandboxRequest, wire.Sandbox),
        "/sandboxes/{sandbox_id}/exec": (wire.ExecRequest, wire.ExecResult),
        "/sandboxes/{sandbox_id}/grade": (wire.GradeRequest, wire.Result),
    }
    for path, (request, response) in models.items():
        route = paths[path]["post"]
        body = route["requestBody"]["content"]["application/json"]["example"]
        request.model_validate(body)
        [good] = [route["responses"][code] for code in route["responses"] if code.startswith("2")]
        response.model_validate(good["content"]["application/json"]["example"])
        answer = hotel.client.post(path.format(sandbox_id=sandbox), json=body)
        assert answer.status_code in (200, 201), answer.text


def test_many_threads_use_one_sandbox_while_it_is_stopped(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    stop = threading.Barrier(11)

    def use(_: int) -> list[int]:
        with hotel.service.client() as client:
            stop.wait()
            url = f"/sandboxes/{sandbox}/exec"
            body = {"command": ["true"]}
            return [client.post(url, json=body).status_code for _ in range(20)]

    def end(_: int) -> list[int]:
        stop.wait()
        return [hotel.client.delete(f"/sandboxes/{sandbox}").status_code]

    with ThreadPoolExecutor(11) as pool:
        found = [pool.submit(use, number) for number in range(10)]
        assert pool.submit(end, 0).result() == [200]
    codes = [code for each in found for code in each.result()]
    assert set(codes) <= {200, 410}
    for each in found:
        assert each.result() == sorted(each.result())  # once it is over, it stays over
    assert hotel.service.parts.queue.busy == 0
