"""What is refused, with which status, and that the message names what is wrong."""

from __future__ import annotations

import asyncio
import json
import math
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from constants import constants
from harness import Gate, Service, exec_request, one_answer, running_service
from pydantic import BaseModel, ValidationError
from requests_under_way import asking
from waits import WAIT_SECONDS

from proctor_client import wire
from proctor_service.errors import InvalidRequest
from proctor_service.http import body as bodies
from proctor_service.http.json import encode
from proctor_service.settings import Settings


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with constants(max_cpu_seconds=20), running_service(Settings(max_body_mb=1)) as running:
        yield running


def problem(answer: httpx.Response) -> wire.Problem:
    """The problem in an answer, held against the contract."""
    assert set(answer.json()["error"]) == set(wire.Problem.model_fields)
    return wire.ProblemBody.model_validate_json(answer.content).error


def one(**fields: Any) -> dict[str, Any]:
    """A request with one submission that has these fields as well."""
    return {"submissions": [{"completion": "x", **fields}], "grader": {"kind": "exec"}}


PYTEST = {"kind": "pytest", "files": {"../t.py": "x"}}
ASSERTS: dict[str, Any] = {"kind": "asserts", "tests": ["assert 1"]}


def _cases(kind: str, **case: Any) -> dict[str, Any]:
    named = {"entry_point": "f"} if kind == "calls" else {}
    return {"kind": kind, **named, "cases": [case]}


def _calls(**fields: Any) -> dict[str, Any]:
    return {**_cases("calls", args=[1], expected=1), **fields}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "submissions: "),
        ({"submissions": []}, "submissions: "),
        (exec_request(*["x"] * 4097), "submissions: "),
        ({"submissions": [{"completion": "x"}]}, "submissions.0.grader: "),
        (one(completionn="y"), "0.completionn: unknown field, did you mean completion?"),
        (exec_request("x", jobb="y"), "jobb: unknown field, did you mean job?"),
        (exec_request("x", preludes="y"), "preludes: unknown field, did you mean prelude?"),
        (one(limits={"cpu_second": 1}), ".cpu_second: unknown field, did you mean cpu_seconds?"),
        (
            exec_request("x", limits={"q": 1}),
            "limits.q: unknown field, not one of cpu_seconds, wall_",
        ),
        (
            one(grader=_cases("calls", args=[1], expcted=2)),
            "expcted: unknown field, did you mean expected?",
        ),
        (
            one(grader=_cases("stdio", type="x")),
            "cases.0.type: unknown field, not one of stdin, stdout,",
        ),
        (
            one(grader=_calls(tolerance={"abs": 1})),
            "tolerance.abs: unknown field, not one of absolute,",
        ),
        (
            exec_request("x", extract={"tag": ["a"]}),
            "extract.tag: unknown field, did you mean tags?",
        ),
        (
            one(compiler={"standart": "c11"}),
            "compiler.standart: unknown field, did you mean standard?",
        ),
        (one(**{"completion" * 20: "y"}), "completion: unknown field"),
        (one(limits={"cpu_seconds": 0}), "submissions.0.limits.cpu_seconds: "),
        (one(limits={"cpu_seconds": 21}), "submissions.0.limits.cpu_seconds: "),
        (one(limits={"total_cpu_seconds": 201}), "submissions.0.limits.total_cpu_seconds: "),
        (one(limits={"total_wall_seconds": 0}), "submissions.0.limits.total_wall_seconds: "),
        (one(limits={"cpu_seconds": float("nan")}), "submissions.0.limits.cpu_seconds: "),
        (one(limits={"cpu_seconds": float("inf")}), "submissions.0.limits.cpu_seconds: "),
        (exec_request("x", limits={"memory_mb": 10**9}), "limits.memory_mb: "),
        (one(limits={"network": True}), "submissions.0.limits.network: "),
        (one(grader={"kind": "guess"}), "submissions.0.grader: "),
        (one(grader={**ASSERTS, "tests": []}), "submissions.0.grader.tests: "),
        (one(grader={**ASSERTS, "testz": []}), "grader.testz: unknown field, did you mean tests?"),
        (one(grader=PYTEST), "submissions.0.grader.files: "),
        (one(completion=7), "submissions.0.completion: "),
        (one(completion=[{"role": "user", "content": "x"}]), "submissions.0.completion: "),
        (one(completion=[{"content": "x"}]), "submissions.0.completion.0.role: "),
        (one(files={"/etc/x": ""}), "submissions.0.files: '/etc/x'"),
        (one(files={"a/" * 64 + "x": ""}), "submissions.0.files: 'a/a/"),
        (one(files={"a/../../x": ""}), "submissions.0.files: 'a/../../x'"),
        (one(files={"": ""}), "submissions.0.files: ''"),
        (one(files={"a\0": ""}), "submissions.0.files: "),
        (one(files={"\ud800": ""}), "submissions.0.files: "),
        (one(files={"a//b": ""}), "submissions.0.files: "),
        (one(files={"x" * 256: ""}), "submissions.0.files: "),
        (one(files={"a": "", "a/b/c": ""}), "submissions.0.files: 'a' is both"),
        (one(files={str(i): "" for i in range(1001)}), "submissions.0.files: 1001"),
        (one(language="cobol"), "submissions.0.language: no 'cobol' here, only: python, bash"),
        (one(language="bash", grader=ASSERTS), "submissions.0.language: "),
        (exec_request("x", deadline_seconds=-1), "deadline_seconds: "),
        (exec_request("x", job=""), "job: "),
        (exec_request("x", extract="magic"), "extract: "),
        ([], "the body"),
    ],
)
def test_what_makes_no_sense_is_a_422_that_names_the_field(
    client: httpx.Client, body: Any, named: str
) -> None:
    answer = client.post("/reward", content=json.dumps(body))
    assert answer.status_code == 422, answer.text
    found = problem(answer)
    assert (found.reason, found.retryable) == ("invalid_request", False)
    assert named in found.message


def test_a_fault_late_in_a_large_batch_is_named_by_its_own_index(client: httpx.Client) -> None:
    body = exec_request(*["x" * 2000] * 300)
    body["submissions"][299]["langauge"] = "python"
    answer = client.post("/reward", json=body)
    named = "submissions.299.langauge: unknown field, did you mean language?"
    assert problem(answer).message == named


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"submissions": [{"completion": "x"}], "grader": {"kind": "exec"}} x',
        b'{"submissions": [{"completion": "\xff"}], "grader": {"kind": "exec"}}',
        b'{"a":' * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"deadline_seconds": ' + b"9" * 100_001 + b"}",
        json.dumps(one()).encode("utf-16"),
    ],
)
def test_what_is_no_json_is_a_422(client: httpx.Client, content: bytes) -> None:
    answer = client.post("/reward", content=content)
    assert answer.status_code == 422, answer.text
    assert problem(answer).message.startswith("the body ")


@pytest.mark.parametrize("sliced_bytes", [0, bodies.SLICED_BODY_BYTES])
def test_values_nested_deeply_are_a_422_and_never_a_500(
    client: httpx.Client, sliced_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "SLICED_BODY_BYTES", sliced_bytes)
    for depth in (100, 200, 300, 900, 5000):
        value = "[" * depth + "]" * depth
        grader = f'{{"kind": "calls", "entry_point": "f", "cases": [{{"expected": {value}}}]}}'
        content = f'{{"submissions": [{{"completion": "x"}}], "grader": {grader}}}'
        answer = client.post("/reward", content=content)
        assert answer.status_code == (200 if depth <= 200 else 422), answer.text[:500]
        assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 1000000000\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n180000\r\n" + b" " * 0x180000 + b"\r\n",
    ],
)
def test_a_body_that_is_too_large_is_a_413_though_it_never_ends(
    service: Service, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "DISCARD_SECONDS", 0.01)
    address = httpx.URL(service.url)
    with socket.create_connection((address.host, address.port), WAIT_SECONDS) as connection:
        connection.sendall(b"POST /reward HTTP/1.1\r\nHost: proctor\r\n" + sent)
        answer = one_answer(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["reason"] == "invalid_request"


def test_large_bodies_are_parsed_in_slices_to_the_same_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "SLICED_BODY_BYTES", 0)
    whole = exec_request(*[f"x\ud800 {number}" for number in range(300)], tags=["a"])
    texts = [json.dumps(whole), json.dumps(whole, indent=3), "\ufeff" + json.dumps(whole)]
    for text in texts:
        parsed = asyncio.run(bodies.parse_body(wire.RewardRequest, text.encode()))
        assert parsed == wire.RewardRequest.model_validate(whole)
    calls = {"kind": "calls", "entry_point": "f", "cases": [{"args": [1], "expected": [[2.5]]}]}
    cases = {**whole, "grader": calls}
    parsed = asyncio.run(bodies.parse_body(wire.RewardRequest, json.dumps(cases).encode()))
    assert parsed == wire.RewardRequest.model_validate(cases)
    for field, value in (("expectd", 1), ("args", 1)):
        calls["cases"] = [{"expected": 1}, {"expected": 1, field: value}]
        with pytest.raises(InvalidRequest, match=rf"^grader\.cases\.1\.{field}: "):
            asyncio.run(bodies.parse_body(wire.RewardRequest, json.dumps(cases).encode()))
    for broken in ("{", "{}x", '{"a" 1}', '{"a": 1,}', '{"submissions": [1 2]}', "[", '{"a": 1'):
        with pytest.raises(InvalidRequest):
            asyncio.run(bodies.parse_body(wire.RewardRequest, broken.encode()))


MANY = 300_000
FLOODS: dict[str, tuple[type[BaseModel], str]] = {
    "numbers in a command": (wire.ExecRequest, json.dumps({"command": [1] * MANY})),
    "empty texts in a command": (wire.ExecRequest, json.dumps({"command": [""] * MANY})),
    "unknown fields": (wire.RewardRequest, json.dumps({f"u{n}": 1 for n in range(MANY)})),
    "files": (wire.SandboxRequest, json.dumps({"files": {f"u{n}": 1 for n in range(MANY)}})),
    "messages": (wire.Submission, json.dumps({"completion": [{"role": "user"}] * MANY})),
    "parts of a message": (wire.Message, json.dumps({"role": "user", "content": [{}] * MANY})),
    "submissions": (wire.RewardRequest, json.dumps({"submissions": [{}] * MANY})),
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_wrong_values_is_refused_in_few_words(flood: str) -> None:
    """Each word would take time; in proportion to the square of their number, hours."""
    model, body = FLOODS[flood]
    with pytest.raises(InvalidRequest) as raised:
        asyncio.run(bodies.parse_body(model, body.encode()))
    assert 0 < len(raised.value.message) < 1000


@pytest.mark.parametrize("sliced_bytes", [0, bodies.SLICED_BODY_BYTES])
def test_values_that_were_parsed_are_taken_as_they_are(
    sliced_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "SLICED_BODY_BYTES", sliced_bytes)
    case = {"args": [[None, {"a": [1, 2.5, "x\ud800"]}]], "kwargs": {"b": {}}, "expected": [[]]}
    grader = {"kind": "calls", "entry_point": "f", "cases": [case]}
    body = json.dumps({"submissions": [{"completion": ""}], "grader": grader})
    parsed = asyncio.run(bodies.parse_body(wire.RewardRequest, body.encode()))
    assert isinstance(parsed.grader, wire.CallsGrader)
    [call] = parsed.grader.cases
    assert (call.args, call.kwargs, call.expected) == (case["args"], case["kwargs"], [[]])
    for field, wrong in (("args", {}), ("kwargs", []), ("args", None)):
        bad = body.replace(json.dumps(case), json.dumps({**case, field: wrong}))
        with pytest.raises(InvalidRequest, match=rf"cases\.0\.{field}: "):
            asyncio.run(bodies.parse_body(wire.RewardRequest, bad.encode()))
    with pytest.raises(ValidationError):
        wire.Call.model_validate({"args": [object()], "expected": 1})


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"POST /reward HTTP/1.1\r\nHost: x\r\nX: \x01\r\n\r\n"]
)
def test_what_is_no_http_gets_the_contracts_body_too(service: Service, sent: bytes) -> None:
    answer = b"".join(exchanged(service, sent))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close" in head
    assert wire.ProblemBody.model_validate_json(body).error.reason == "invalid_request"


def exchanged(service: Service, sent: bytes) -> Iterator[bytes]:
    """What the service answers to these bytes, until it closes the connection."""
    address = httpx.URL(service.url)
    with socket.create_connection((address.host, address.port), WAIT_SECONDS) as connection:
        connection.sendall(sent)
        while piece := connection.recv(65536):
            yield piece


@pytest.mark.parametrize("connection", ["Upgrade", "upgrade, HTTP2-Settings"])
def test_a_body_behind_an_upgrade_is_refused_and_not_lost(
    service: Service, client: httpx.Client, connection: str
) -> None:
    headers = {"Connection": connection, "Upgrade": "h2c"}
    assert client.get("/healthz", headers=headers).json()["status"] == "ok"
    head = f"POST /reward HTTP/1.1\r\nConnection: {connection}\r\nUpgrade: h2c\r\n"
    inner = b"GET /healthz HTTP/1.1\r\n\r\n"
    sent = head.encode() + b"Content-Length: %d\r\n\r\n" % len(inner) + inner
    answer = b"".join(exchanged(service, sent))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_an_answer_is_json_whatever_is_in_it() -> None:
    body = {"a": "\ud800", "b": [math.inf, {"c": math.nan}], "\udfff": (1.5, -0.0)}
    assert json.loads(encode(body), parse_constant=pytest.fail) == {
        "a": "\\ud800",
        "b": [None, {"c": None}],
        "\\udfff": [1.5, 0.0],
    }


def test_routes_that_are_not_there_and_methods_that_do_not_fit(client: httpx.Client) -> None:
    missing = client.get("/nothing/here")
    assert (missing.status_code, problem(missing).reason) == (404, "not_found")
    wrong = client.get("/reward")
    assert (wrong.status_code, problem(wrong).reason) == (405, "invalid_request")
    assert wrong.headers["allow"] == "POST"


def test_a_bug_in_a_route_is_a_500_that_tells_nothing(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(type(service.parts.core.rewards), "handle", broken)
    answer = client.post("/reward", json=exec_request("x"))
    assert (answer.status_code, problem(answer).reason) == (500, "internal")
    assert "secret" not in answer.text


def test_a_batch_that_never_fits_is_told_apart_from_one_that_is_to_wait() -> None:
    gate = Gate()
    settings = Settings(slots=1, max_queued=2)
    with (
        running_service(settings, judge=gate) as service,
        service.client() as client,
        asking(service, "/reward", exec_request("a")),
    ):
        service.until(lambda: gate.entered == ["a"])
        for accept in ("application/json", "application/x-ndjson"):
            body, headers = exec_request("b", "c", "d", "e"), {"Accept": accept}
            too_many = client.post("/reward", json=body, headers=headers)
            found = problem(too_many)
            assert (too_many.status_code, found.reason) == (413, "batch_too_large")
            assert (found.retryable, found.retry_after_seconds) == (False, None)
            assert "retry-after" not in too_many.headers
            assert "3 at most" in found.message
        to_wait = client.post("/reward", json=exec_request("b", "c", "d"))
        assert (to_wait.status_code, problem(to_wait).reason) == (429, "busy")
        service.call(gate.open)


@pytest.mark.parametrize("name", ["a1", "x" * 128, "!~"])
def test_every_answer_repeats_the_id_of_its_request(client: httpx.Client, name: str) -> None:
    own = {"Proctor-Request-Id": name}
    lines = {**own, "Accept": "application/x-ndjson"}
    answers = [
        client.get("/healthz", headers=own),
        client.get("/nowhere", headers=own),
        client.delete("/reward", headers=own),
        client.post("/reward", headers=own, json=exec_request("x")),
        client.post("/reward", headers=lines, json=exec_request("x")),
        client.post("/reward", headers=own, content=b"{"),
        client.post("/reward", headers=own, content=b"x" * (2 << 20)),
    ]
    assert [each.status_code for each in answers] == [200, 404, 405, 200, 200, 422, 413]
    assert [each.headers["proctor-request-id"] for each in answers] == [name] * len(answers)
    assert {each.headers["proctor-wire"] for each in answers} == {"1"}


@pytest.mark.parametrize("name", ["", "x" * 129, "a b", "é"])
def test_an_id_that_is_none_is_not_repeated(client: httpx.Client, name: str) -> None:
    answer = client.get("/healthz", headers={b"Proctor-Request-Id": name.encode()})
    assert answer.status_code == 200
    assert "proctor-request-id" not in answer.headers


def test_a_full_queue_is_a_429_that_says_when_to_come_back() -> None:
    gate = Gate()
    settings = Settings(slots=1, max_queued=2)
    with running_service(settings, judge=gate) as service, service.client() as client:
        with asking(service, "/reward", exec_request("a", "b", "c")) as first:
            service.until(lambda: gate.entered == ["a"])
            answer = client.post("/reward", json=exec_request("d"))
            assert answer.status_code == 429
            found = problem(answer)
            assert (found.reason, found.retryable) == ("busy", True)
            assert int(answer.headers["retry-after"]) >= 1
            assert found.retry_after_seconds is not None
            assert (
                client.get("/readyz").status_code == 200
            )  # else a load balancer refuses who would get a 429
            capacity = client.get("/capacity").json()
            assert (capacity["busy"], capacity["queued"], capacity["max_queued"]) == (1, 2, 2)
            service.call(gate.open)
        assert first.result().json()["summary"]["passed"] == 3
        again = client.post("/reward", json=exec_request("d"))
        assert again.json()["summary"]["passed"] == 1
