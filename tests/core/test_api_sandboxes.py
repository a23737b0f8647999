"""Creating, finding and stopping sandboxes over a real connection, with scripted sandboxes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from constants import constants
from pydantic import BaseModel
from requests_under_way import hanging_up
from sandbox_server import EXEC_GRADER, NDJSON, TOKENS, ServerUnderTest, problem, serving

from proctor_client import wire
from proctor_service.errors import SandboxUnavailable

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
    with constants(max_cpu_seconds=20), serving(memory_mb=99) as hotel:
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
    with constants(bounds={"remembered": 1}), serving() as hotel:
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


def test_a_hundred_at_once(hotel: ServerUnderTest) -> None:
    with ThreadPoolExecutor(50) as pool:
        hotel.service.call(hotel.inn.door.clear)
        made = [pool.submit(hotel.create, files={"n": str(number)}) for number in range(50)]
        hotel.service.until(lambda: hotel.inn.coming == 50)
        hotel.service.call(hotel.inn.door.set)
        ids = [each.result()["id"] for each in made]
        ids += [hotel.create()["id"] for _ in range(50)]
        answers = list(pool.map(lambda each: hotel.exec(each, "true"), ids * 3))
        assert {answer.json()["exit_code"] for answer in answers} == {0}
        assert len(hotel.client.get("/sandboxes?status=running").json()["sandboxes"]) == 100


# ---------------------------------------------------------------- create, again


def test_a_client_that_hangs_up_while_its_sandbox_is_made_gets_none(hotel: ServerUnderTest) -> None:
    hotel.service.call(hotel.inn.door.clear)
    with hanging_up(hotel.service, "/sandboxes", {}):
        hotel.service.until(lambda: hotel.inn.coming == 1)
    hotel.service.until(lambda: hotel.inn.coming == 0)
    hotel.service.call(hotel.inn.door.set)
    assert hotel.client.get("/sandboxes?status=running&status=pending").json()["sandboxes"] == []
    assert hotel.inn.guests == []


def test_with_a_key_a_retry_finds_the_sandbox_that_was_made_meanwhile(
    hotel: ServerUnderTest,
) -> None:
    key = {"Idempotency-Key": "k1"}

    hotel.service.call(hotel.inn.door.clear)
    with hanging_up(hotel.service, "/sandboxes", {}, **key):
        hotel.service.until(lambda: hotel.inn.coming == 1)
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
