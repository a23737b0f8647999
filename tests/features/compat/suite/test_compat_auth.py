"""A token in the path: it opens the compatible routes, and is seen by nobody else."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from harness import Service, running_service
from pydantic import SecretStr

from proctor_service.settings import Settings

RED, BLUE = "red/tök én%", "blue-token"
TOKENS = SecretStr(json.dumps({"red": RED, "blue": BLUE}))
ASKED = {"prompt": "", "response": "def f():\n    return 1", "label": ["assert f() == 1"]}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(tokens=TOKENS)) as running:
        yield running


def path(token: str, rest: str = "remote_rm") -> str:
    return f"/compat/t/{quote(token, safe='')}/{rest}"


@pytest.mark.parametrize("token", [RED, BLUE])
def test_a_token_in_the_path_opens_a_compatible_route(client: httpx.Client, token: str) -> None:
    answer = client.post(path(token), json=ASKED)
    assert (answer.status_code, answer.json()) == (200, 1.0)
    assert client.get(path(token, "v1/ping")).json() == "pong"


def test_so_does_the_header(client: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {BLUE}"}
    assert client.post("/compat/remote_rm", json=ASKED, headers=headers).json() == 1.0


@pytest.mark.parametrize(
    "where",
    ["/compat/remote_rm", path("wrong"), path("blue-toke"), path(""), "/compat/t/", "/compat/t"],
)
def test_no_token_or_a_wrong_one_is_a_401(client: httpx.Client, where: str) -> None:
    answer = client.post(where, json=ASKED)
    assert answer.status_code == 401
    assert answer.json()["error"]["reason"] == "unauthorized"


def test_a_wrong_token_in_the_path_is_not_mended_by_the_header(client: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {BLUE}"}
    assert client.post(path("wrong"), json=ASKED, headers=headers).status_code == 401


@pytest.mark.parametrize("where", ["/t/blue-token/reward", "/compat/t/blue-token/../reward"])
def test_it_opens_nothing_else(client: httpx.Client, where: str) -> None:
    assert client.post(where, json={}).status_code in (401, 404)


def test_without_configured_tokens_any_will_do() -> None:
    with running_service() as service, service.client() as client:
        assert client.post(path("whatever"), json=ASKED).json() == 1.0


def test_nobody_else_sees_it(
    client: httpx.Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": f"Bearer {BLUE}"}
    said = [
        client.post(path(BLUE), json=ASKED).text,
        client.post(path(BLUE), content="{").text,
        client.post(path(BLUE, "no/such/route")).text,
        client.get(path(BLUE)).text,
        client.post(path(BLUE, "test_program?hold_seconds=0"), json=ASKED).text,
        client.get("/metrics", headers=headers).text,
        *(record.getMessage() + str(vars(record)) for record in caplog.records
          if record.name.startswith(("proctor", "uvicorn"))),
    ]  # fmt: skip
    assert not [text for text in said if BLUE in text]
    assert 'route="/compat/remote_rm"' in said[5]


def test_a_fault_of_ours_does_not_log_it(caplog: pytest.LogCaptureFixture) -> None:
    with running_service(Settings(tokens=TOKENS)) as service, service.client() as client:
        service.app.state.parts.feature("compat").handler.serve = None
        answer = client.post(path(BLUE), json=ASKED)
    assert answer.status_code == 500
    failed = [record for record in caplog.records if "failed" in record.getMessage()]
    assert failed
    assert not [record for record in failed if BLUE in str(vars(record))]
