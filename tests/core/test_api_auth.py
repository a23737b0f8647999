"""Who may ask: a token on every route but two, and tenants that share nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from harness import Service, exec_request, running_service
from pydantic import SecretStr, ValidationError

from proctor_service.settings import Settings

TOKENS = SecretStr(json.dumps({"red": "red-tökén", "blue": "blue-token"}))
CLOSED = ("/reward", "/capacity", "/metrics", "/docs", "/openapi.json", "/nothing")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(tokens=TOKENS)) as running:
        yield running


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"Authorization": b"Bearer " + token.encode()}


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        {b"Authorization": b"Bearer"},
        bearer("red-t"),
        {b"Authorization": b"Basic blue-token"},
        {b"Authorization": b"blue-token"},
    ],
)
def test_no_token_or_a_wrong_one_is_a_401_everywhere(
    client: httpx.Client, path: str, headers: dict[bytes, bytes]
) -> None:
    method = "POST" if path == "/reward" else "GET"
    answer = client.request(method, path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["reason"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", CLOSED[1:])
@pytest.mark.parametrize("token", ["red-tökén", "blue-token"])
def test_a_tenants_token_opens_every_route(client: httpx.Client, path: str, token: str) -> None:
    expected = 404 if path == "/nothing" else 200
    assert client.get(path, headers=bearer(token)).status_code == expected


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


def test_metrics_may_be_public() -> None:
    settings = Settings(tokens=TOKENS, metrics_public=True)
    with running_service(settings) as service, service.client() as client:
        assert client.get("/metrics").status_code == 200
        assert client.get("/capacity").status_code == 401


def test_tenants_share_neither_results_nor_keys(client: httpx.Client) -> None:
    hows = []
    for token in ("red-tökén", "blue-token", "red-tökén"):
        headers = bearer(token)
        answer = client.post("/reward", json=exec_request("tenants"), headers=headers)
        hows.append(answer.json()["results"][0]["cache"])
    assert hows == ["miss", "miss", "hit"]

    ids = set()
    for token in ("red-tökén", "blue-token"):
        headers = bearer(token) | {b"Idempotency-Key": b"k"}
        answer = client.post("/reward", json=exec_request("keys"), headers=headers)
        ids.add(answer.json()["results"][0]["evaluation_id"])
    assert len(ids) == 2


def test_without_a_token_only_loopback_is_listened_on() -> None:
    with pytest.raises(ValidationError, match="PROCTOR_TOKENS"):
        Settings(host="0.0.0.0")
    Settings(host="0.0.0.0", tokens=TOKENS)


def test_space_around_a_configured_token_is_no_part_of_it() -> None:
    tokens = SecretStr(json.dumps({"red": " red-token\n", "blue": "voilà"}))
    with running_service(Settings(tokens=tokens)) as service, service.client() as client:
        for token in ("red-token", "voilà"):
            assert client.get("/capacity", headers=bearer(token)).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("[::1]:8080", 200),
        ("proctor.localhost:80", 200),
        ("upstream", 200),
        ("judge.example:80", 200),  # as advertised
        ("evil.example", 403),
        ("127.0.0.1.evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("evil.example.", 403),
        ("[::1", 403),
    ],
)
def test_without_tokens_a_page_elsewhere_cannot_ask_under_its_own_name(
    host: str, status: int
) -> None:
    settings = Settings(advertise_url="http://judge.example:80")
    with running_service(settings) as running, running.client() as client:
        for path in ("/capacity", "/console"):
            answer = client.get(path, headers={"Host": host})
            assert answer.status_code in ({200, 404} if status == 200 else {status})
        assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({}, False),
        ({"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "http://127.0.0.1:8080"}, False),
        ({"Origin": "https://127.0.0.1:8080"}, False),  # TLS ends in front of the service
        ({"Origin": "http://LOCALHOST:8080", "Host": "localhost:8080"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"}, True),
        ({"Origin": "http://127.0.0.1:3000"}, True),
        ({"Origin": "http://127.0.0.1"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "http://127.0.0.1:8080@evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": ""}, True),
        ({"Origin": "http://["}, True),
        ({"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"}, True),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, True),
    ],
)
def test_without_tokens_another_page_changes_nothing(
    headers: dict[str, str], is_refused: bool
) -> None:
    headers = {"Host": "127.0.0.1:8080", **headers}
    with running_service(Settings()) as running, running.client() as client:
        for method, path in (
            ("POST", "/reward"),
            ("POST", "/sandboxes"),
            ("DELETE", "/sandboxes/x"),
            ("PUT", "/sandboxes/x/files/x"),
            ("POST", "/rollout"),
            ("POST", "/compat/run_code"),
            ("POST", "/nothing"),
        ):
            answer = client.request(method, path, headers=headers, content=b"{}")
            assert (answer.status_code == 403) == is_refused, (method, path, answer.text)
            if is_refused and "compat" not in path:
                assert answer.json()["error"]["reason"] == "forbidden"
                assert "another site" in answer.json()["error"]["message"]
        assert client.get("/capacity", headers=headers).status_code == 200
        preflight = client.options(
            "/reward", headers={**headers, "Access-Control-Request-Method": "POST"}
        )
        assert not [name for name in preflight.headers if name.startswith("access-control-")]


def test_with_tokens_any_name_of_the_service_will_do(client: httpx.Client) -> None:
    headers = {**bearer("blue-token"), b"Host": b"judge.example"}
    assert client.get("/capacity", headers=headers).status_code == 200
    of_a_page = {**headers, b"Origin": b"https://elsewhere.example"}
    assert client.post("/reward", headers=of_a_page, content=b"{}").status_code == 422
