"""Many replicas act as one: sandboxes are used through any of them, and end with their own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from constants import constants
from fleet import Replica, fleet
from harness import running_service
from pydantic import ValidationError
from requests_under_way import hanging_up
from sandbox_server import problem
from scripted_sandboxes import FakeBackend
from waits import WAIT_SECONDS

from proctor_service.errors import StartError
from proctor_service.features.replicas import forwarding
from proctor_service.features.replicas.identity import Identity
from proctor_service.http import body
from proctor_service.http.body import FORWARDED
from proctor_service.sandboxes.registry import new_id
from proctor_service.settings import Settings

NDJSON = {"Accept": "application/x-ndjson"}
TOKENS = json.dumps({"a": "token-a", "b": "token-b"})


@pytest.fixture(scope="module")
def shared() -> Iterator[list[Replica]]:
    with constants(bounds={"file_bytes": 1 << 20}), fleet() as replicas:
        yield replicas


@pytest.fixture
def replicas(shared: list[Replica]) -> Iterator[list[Replica]]:
    yield shared
    for replica in shared:
        for each in replica.client.get("/sandboxes?status=running").json()["sandboxes"]:
            replica.client.delete(f"/sandboxes/{each['id']}?missing_ok=true")


# ---------------------------------------------------------------- through any of them


def test_a_sandbox_is_used_through_any_replica(replicas: list[Replica]) -> None:
    url = f"/sandboxes/{replicas[0].create(tags=['x'])}"
    for replica in replicas:
        client = replica.client
        assert client.get(url).json()["status"] == "running"
        answer = client.post(f"{url}/exec", json={"command": ["say", "hi"]})
        assert (answer.status_code, answer.json()["stdout"]) == (200, "hi")
        said = client.post(f"{url}/exec", json={"command": ["say", "a", "!b"]}, headers=NDJSON)
        lines = [json.loads(line) for line in said.text.splitlines()]
        assert lines[:2] == [{"stdout": "a"}, {"stderr": "!b"}]
        assert lines[-1]["result"]["exit_code"] == 0
        graded = client.post(f"{url}/grade", json={"grader": {"kind": "exec"}})
        assert graded.json()["verdict"] == "no_code"
    assert replicas[0].guest.snapshots == 0
    stopped = replicas[2].client.delete(url)
    assert stopped.json() == {"stopped": 1}
    problem(replicas[1].client.get(f"{url}/files/x"), 410, "sandbox_stopped")


@pytest.mark.parametrize(
    "path", ["a/b", "%2Fabs", "a%20b%3Fc%23", "%C3%A9", "a/../b", "%2e%2e/c", "a//b"]
)
def test_files_go_through_whole_and_under_their_own_name(
    replicas: list[Replica], path: str
) -> None:
    data = bytes(range(256)) * 4000
    sandbox = replicas[0].create()
    names = []
    for replica in replicas[:2]:
        # Not by a URL object, which would tidy up the path.
        host, port = replica.url.removeprefix("http://").split(":")
        target = f"/sandboxes/{sandbox}/files/{path}".encode()
        with socket.create_connection((host, int(port)), WAIT_SECONDS) as raw:
            head = b"PUT " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            raw.sendall(head + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            with raw.makefile("rb") as answer:
                assert answer.readline() == b"HTTP/1.1 204 No Content\r\n"
        files = replicas[0].guest.files
        [(name, written)] = files.items()
        assert written == data
        files.clear()
        names.append(name)
    assert names[0] == names[1]


def test_a_body_that_stops_on_its_way_to_another_is_a_408(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = replicas[0].create()
    monkeypatch.setattr(body, "SILENT_SECONDS", 0.25)
    host, port = replicas[1].url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), WAIT_SECONDS) as raw:
        head = f"PUT /sandboxes/{sandbox}/files/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
        raw.sendall(head.encode() + b"half")
        with raw.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 408 ")


def test_a_file_is_read_through_another(replicas: list[Replica]) -> None:
    sandbox = replicas[0].create()
    url = f"/sandboxes/{sandbox}/files/x"

    def pieces() -> Iterator[bytes]:
        for number in range(50):
            yield bytes([number]) * 1000

    replicas[1].client.put(url, content=pieces())
    read = replicas[2].client.get(url)
    assert read.content == b"".join(pieces())
    assert read.headers["content-type"] == "application/octet-stream"
    problem(replicas[1].client.put(url, content=b"x" * 2_000_000), 413, "invalid_request")
    problem(replicas[1].client.get(f"{url}y"), 404, "file_not_found")


def test_what_concerns_all_is_asked_of_all(replicas: list[Replica]) -> None:
    made = [replica.create(tags=["x"]) for replica in replicas]
    other = replicas[0].create(tags=["y"])
    for replica in replicas:
        listed = replica.client.get("/sandboxes?tag=x&status=running").json()
        assert {each["id"] for each in listed["sandboxes"]} == set(made)
        assert listed["replicas_missing"] == 0
    assert replicas[1].client.delete("/sandboxes?tag=x").json() == {
        "stopped": 3,
        "replicas_missing": 0,
    }
    assert replicas[2].client.get(f"/sandboxes/{other}").json()["status"] == "running"
    problem(replicas[1].client.delete("/sandboxes"), 422, "invalid_request")
    problem(replicas[1].client.get("/sandboxes?tga=x"), 422, "invalid_request")


def test_what_takes_long_is_waited_for(
    replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "PULSE_SECONDS", 0.001)
    url = f"/sandboxes/{replicas[0].create()}/exec"
    guest, service, metrics = replicas[0].guest, replicas[0].service, replicas[0].client
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(replicas[1].client.post, url, json={"command": ["wait", "it"]})
        service.until(lambda: "it" in guest.waiting)
        asked = 'route="/healthz",status="200"'
        turns = 0
        while turns < 20 or metrics.get("/metrics").text.count(asked) == 0:
            turns += 1  # each takes a while, and some pulses come in it
        service.call(lambda: guest.release("it"))
        assert answer.result().json()["exit_code"] == 0


def test_who_hangs_up_here_hangs_up_there(replicas: list[Replica]) -> None:
    path = f"/sandboxes/{replicas[0].create()}/exec"
    guest, service = replicas[0].guest, replicas[0].service
    for headers in ({}, NDJSON):
        with hanging_up(replicas[1].service, path, {"command": ["wait", "it"]}, **headers):
            service.until(lambda: "it" in guest.waiting)
        service.until(lambda: not guest.waiting)
    assert guest.cancelled == ["it", "it"]


# ---------------------------------------------------------------- gone


def test_what_lived_in_a_replica_that_is_gone_is_lost_at_once() -> None:
    with fleet() as replicas:
        first, second, third = replicas
        lost, kept = first.create(tags=["x"]), second.create(tags=["x"])
        first.kill()
        url = f"/sandboxes/{lost}"
        for client in (second.client, third.client):
            for answer in (
                client.get(url),
                client.post(f"{url}/exec", json={"command": ["true"]}),
                client.put(f"{url}/files/x", content=b"x"),
                client.get(f"{url}/files/x"),
                client.post(f"{url}/grade", json={"grader": {"kind": "exec"}}),
                client.delete(url),
            ):
                assert not problem(answer, 500, "sandbox_lost").retryable
            assert client.delete(f"{url}?missing_ok=true").json() == {"stopped": 0}
        listed = third.client.get("/sandboxes?tag=x").json()
        assert ([each["id"] for each in listed["sandboxes"]], listed["replicas_missing"]) == (
            [kept],
            1,
        )

        first.start()  # another life at the same address
        for replica in replicas:
            problem(replica.client.get(url), 500, "sandbox_lost")
        assert first.client.delete(f"{url}?missing_ok=true").json() == {"stopped": 0}
        again = first.create()
        assert third.client.get(f"/sandboxes/{again}").json()["status"] == "running"
        stopped = third.client.delete("/sandboxes?tag=x").json()
        assert stopped == {"stopped": 1, "replicas_missing": 0}


def test_a_replica_that_dies_in_the_middle_of_an_answer_ends_it() -> None:
    with fleet(2) as (first, second), ThreadPoolExecutor(2) as pool:
        url = f"/sandboxes/{first.create()}/exec"
        body = {"command": ["say-and-wait", "hi"]}
        guest, service = first.guest, first.service
        streamed = pool.submit(second.client.post, url, json=body, headers=NDJSON)
        service.until(lambda: "said" in guest.waiting)
        whole = pool.submit(second.client.post, url, json={"command": ["wait", "it"]})
        service.until(lambda: "it" in guest.waiting)
        first.kill()
        lines = [json.loads(line) for line in streamed.result().text.splitlines()]
        assert lines[0] == {"stdout": "hi"}
        assert (lines[1]["error"]["reason"], lines[1]["error"]["retryable"]) == (
            "sandbox_lost",
            False,
        )
        problem(whole.result(), 500, "sandbox_lost")


def test_a_replica_that_says_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "PULSE_SECONDS", 0.05)
    monkeypatch.setattr(forwarding, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(forwarding, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it takes connections, and that is all
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with fleet(1, peers=[url]) as (replica,):
            sandbox = new_id(Identity(url).id_prefix)
            problem(replica.client.get(f"/sandboxes/{sandbox}"), 500, "sandbox_lost")
            assert replica.client.get("/sandboxes").json()["replicas_missing"] == 1
            text = replica.client.get("/metrics").text
            assert 'proctor_forwarded_requests_total{outcome="unreachable"} 2.0' in text


# ---------------------------------------------------------------- who may


def test_an_id_that_was_made_up_leads_nowhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger, fleet(2) as (first, second):
        stranger.settimeout(0.0)
        url = f"http://127.0.0.1:{stranger.getsockname()[1]}"
        for made_up in (new_id(Identity(url).id_prefix), "sb_" + "0" * 32):
            problem(first.client.get(f"/sandboxes/{made_up}"), 500, "sandbox_lost")
        for made_up in ("sb_1", "sb_" + "g" * 32, new_id(Identity(first.url).id_prefix) + "0"):
            problem(first.client.get(f"/sandboxes/{made_up}"), 404, "sandbox_not_found")
        own = first.service.parts.feature("replicas").replicas.identity
        problem(second.client.get(f"/sandboxes/{new_id(own.id_prefix)}"), 404, "sandbox_not_found")
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_what_was_passed_on_is_not_passed_on_again(replicas: list[Replica]) -> None:
    marked = {FORWARDED: "1"}
    sandbox = replicas[0].create(tags=["x"])
    client = replicas[1].client
    problem(client.get(f"/sandboxes/{sandbox}", headers=marked), 500, "sandbox_lost")
    assert client.get("/sandboxes?tag=x&status=running", headers=marked).json()["sandboxes"] == []
    assert client.delete("/sandboxes?tag=x", headers=marked).json()["stopped"] == 0


def test_tenants_are_apart_on_all_replicas() -> None:
    with fleet(2, tokens=TOKENS) as (first, second):
        a, b = ({"Authorization": f"Bearer token-{name}"} for name in "ab")
        body = {"tags": ["x"]}
        mine = first.client.post("/sandboxes", json=body, headers=a).json()["id"]
        theirs = first.client.post("/sandboxes", json=body, headers=b).json()["id"]
        url = f"/sandboxes/{theirs}"
        client = second.client
        for method, route, more in (
            ("GET", "", {}),
            ("DELETE", "", {}),
            ("POST", "/exec", {"json": {"command": ["true"]}}),
            ("PUT", "/files/x", {"content": b"x"}),
            ("GET", "/files/x", {}),
            ("POST", "/grade", {"json": {"grader": {"kind": "exec"}}}),
        ):
            for wrong in ({}, {"Authorization": "Bearer token-c"}):
                answer = client.request(method, url + route, headers=wrong, **more)
                problem(answer, 401, "unauthorized")
            answer = client.request(method, url + route, headers=a, **more)
            problem(answer, 404, "sandbox_not_found")
        listed = client.get("/sandboxes?tag=x", headers=a).json()["sandboxes"]
        assert [each["id"] for each in listed] == [mine]
        assert client.delete("/sandboxes?tag=x", headers=a).json()["stopped"] == 1
        assert client.get(url, headers=b).json()["status"] == "running"


# ---------------------------------------------------------------- the end, and the beginning


def test_who_drains_answers_what_it_has_passed_on_and_takes_no_more() -> None:
    with fleet(2) as (first, second), ThreadPoolExecutor(1) as pool:
        url = f"/sandboxes/{first.create()}"
        guest, service = first.guest, first.service
        answer = pool.submit(second.client.post, f"{url}/exec", json={"command": ["wait", "it"]})
        service.until(lambda: "it" in guest.waiting)
        rooms = second.service.parts
        replicas = rooms.feature("replicas").replicas
        draining = second.service.call(lambda: second.service.loop.create_task(rooms.drain()))
        second.service.until(lambda: replicas._draining)
        with second.service.client() as client:
            refused = client.get(url)
        assert problem(refused, 503, "draining").retryable
        assert refused.headers["connection"] == "close"
        assert not draining.done()
        service.call(lambda: guest.release("it"))
        assert answer.result().json()["exit_code"] == 0
        second.service.until(draining.done)


def test_replicas_find_each_other_by_a_name() -> None:
    with fleet(1) as (there,):
        port = there.url.rpartition(":")[2]
        sandbox = there.create(tags=["x"])
        own = "http://127.0.0.2:1"
        settings = Settings(peers=[f"dns://localhost:{port}"], advertise_url=own)
        with running_service(settings, backend=FakeBackend()) as here, here.client() as client:
            assert client.get(f"/sandboxes/{sandbox}").json()["status"] == "running"
            assert len(client.get("/sandboxes?tag=x").json()["sandboxes"]) == 1


def test_peers_that_make_no_sense_are_refused_at_the_start() -> None:
    with pytest.raises(ValidationError, match="PROCTOR_ADVERTISE_URL"):
        Settings(peers=["http://10.0.0.1:8080"])
    for peer in ("10.0.0.1:8080", "http://10.0.0.1", "ftp://x:1", "http://x:1/y", "http://u:p@x:1"):
        for fields in ({"peers": [peer], "advertise_url": "http://x:1"}, {"advertise_url": peer}):
            with pytest.raises(StartError, match="PROCTOR_"), running_service(Settings(**fields)):
                pytest.fail("it started")
