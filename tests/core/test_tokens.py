"""Tokens: none of the app's routes answers without the right one, and nothing ever shows one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from harness import Service, exec_request, running_service
from pydantic import SecretStr
from scripted_sandboxes import FakeBackend
from starlette.routing import Route
from waits import WAIT_SECONDS

from fault_rig.processes import Process
from proctor_service.app import build_app
from proctor_service.http.middleware import OPEN_PATHS
from proctor_service.settings import Settings

RED, BLUE = "red-token-0123456789", "blue-token-0123456789"
TOKENS = SecretStr(json.dumps({"red": RED, "blue": BLUE}))
WRONG: dict[str, dict[str, str]] = {
    "none": {},
    "another": {"Authorization": "Bearer green"},
    "part of one": {"Authorization": f"Bearer {RED[:-1]}"},
    "more than one": {"Authorization": f"Bearer {RED}x"},
    "two": {"Authorization": f"Bearer {RED}, Bearer {RED}"},
    "empty": {"Authorization": "Bearer"},
    "another scheme": {"Authorization": f"Basic {RED}"},
    "no scheme": {"Authorization": RED},
    "a cookie": {"Cookie": f"token={RED}"},
    "a proxy's": {"Proxy-Authorization": f"Bearer {RED}"},
    "marked as passed on": {"Proctor-Forwarded": "1"},
}
ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def routes(within: Any) -> Iterator[tuple[str, str]]:
    """Each method and path, with something in place of what varies."""
    for route in within.routes:
        if hasattr(route, "original_router"):
            yield from routes(route.original_router)
            continue
        assert isinstance(route, Route), f"{route} is walked by no test"
        for method in sorted(route.methods or ()):
            yield method, re.sub(r"{[^}]*}", "x", route.path)


APP = build_app(Settings(tokens=TOKENS), FakeBackend())
CLOSED = [(method, path) for method, path in routes(APP) if path not in OPEN_PATHS]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running_service(Settings(tokens=TOKENS), backend=FakeBackend()) as running:
        yield running


def refused(answer: httpx.Response) -> bool:
    """True for a refusal, and for a page that is the form to log in."""
    path = answer.request.url.path
    if path == "/console/login":  # nobody needs a cookie to ask for one
        return answer.status_code in (401, 422) and "set-cookie" not in answer.headers
    if path.startswith("/console/static/"):  # they hold nothing of a tenant
        return answer.status_code == 404
    if answer.status_code != 401:
        return False
    if f"{path}/".startswith("/console/"):  # a page for browsers, which log in by themselves
        return 'action="/console/login"' in answer.text
    return answer.request.method == "HEAD" or answer.json()["error"]["reason"] == "unauthorized"


def test_the_walk_meets_what_it_must() -> None:
    paths = {path for _, path in CLOSED}
    assert {"/docs", "/openapi.json", "/metrics", "/reward", "/rollout", "/sandboxes"} <= paths
    assert {"/sandboxes/x/exec", "/sandboxes/x/files/x", "/compat/run_code"} <= paths
    assert len(CLOSED) > 25


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_no_route_answers_without_the_right_token(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    for method, path in CLOSED:
        for target in (path, f"{path}?token={RED}&access_token={RED}"):
            answer = client.request(method, target, headers=headers, content=b"{}")
            assert refused(answer), (method, target, answer.status_code)


def test_nor_does_any_other_way_to_write_it(client: httpx.Client) -> None:
    for path in (
        "//reward", "/reward/", "/healthz/../reward", "/healthz/..%2freward", "/%68ealthz/",
        "/healthz/", "/HEALTHZ", "/healthz%00", "/healthz;x", "/readyz/x", "/metrics/", "/.",
        "/compat/t/wrong/run_code", "/compat/t//run_code", "/compat/t/", "/docs/oauth2-redirect",
        f"/compat/t/{RED[:-1]}/run_code", f"/compat/%74/{RED}/run_code", "/nothing",
    ):  # fmt: skip
        for method in ALL_METHODS:
            target = httpx.URL(str(client.base_url)).copy_with(raw_path=path.encode())
            answer = client.request(method, target)
            assert refused(answer), (method, path, answer.status_code)


def test_the_open_routes_tell_a_state_and_a_version(client: httpx.Client) -> None:
    assert frozenset({"/healthz", "/readyz"}) == OPEN_PATHS
    for path in OPEN_PATHS:
        answer = client.get(path).json()
        assert set(answer) <= {"status", "reason", "version", "mismatched_peers"}
        assert not answer["mismatched_peers"]
        assert (answer["status"], answer["reason"]) in (("ok", None), ("ready", None))
        assert client.post(path).status_code == 405


# ---------------------------------------------------------------- nothing shows one

SECRETS = (RED, BLUE, "redis-password-0123", "policy-key-0123456789", "aviato-key-0123456789")


@pytest.mark.slow
def test_no_secret_is_in_logs_metrics_errors_or_docs() -> None:
    process = Process()
    shown: list[str] = []
    try:
        process.start(
            {
                "PROCTOR_TOKENS": TOKENS.get_secret_value(),
                "PROCTOR_LOG_LEVEL": "debug",
                "PROCTOR_LOG_FORMAT": "json",
                "PROCTOR_REDIS_URL": f"redis://:{SECRETS[2]}@127.0.0.1:1/0",
                "PROCTOR_AVIATO_API_KEY": SECRETS[4],
                "PROCTOR_PEERS": '["http://127.0.0.1:1"]',
                "PROCTOR_ADVERTISE_URL": process.url,
            }
        )
        with httpx.Client(base_url=process.url, trust_env=False, timeout=WAIT_SECONDS) as http:
            for headers in (
                {},
                {"Authorization": f"Bearer {RED}"},
                {"Authorization": f"Bearer {RED}x"},
            ):
                for answer in asked(http, {**headers, "Idempotency-Key": "k"}):
                    shown.append(f"{answer.headers} {answer.text}")
    finally:
        process.close()
    everything = "\n".join(shown)
    assert "proctor_rewards_total" in everything
    assert "policy_unavailable" in everything
    assert "swagger" in everything.lower()
    for secret in SECRETS:
        assert secret not in everything
        assert secret not in process.said


def asked(http: httpx.Client, headers: dict[str, str]) -> Iterator[httpx.Response]:
    """Answers of all kinds, the metrics last."""
    policy = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key": SECRETS[3]}
    task = {"id": "t", "prompt": "p", "grader": {"kind": "exec"}}
    bodies: dict[str, Any] = {
        "/reward": exec_request("print(1)"),
        "/rollout": {"tasks": [task], "policy": policy},
        "/sandboxes": {"tags": ["x"]},
        "/compat/run_code": {"code": "print(1)"},
    }
    for path, body in bodies.items():
        yield http.post(path, json=body, headers=headers)
        yield http.post(path, json={**body, "wrong": 1}, headers=headers)
        yield http.post(path, content=b"{", headers=headers)
    yield http.post(f"/compat/t/{RED}/run_code", json={"code": "print(1)"})
    yield http.post(f"/compat/t/{RED}x/run_code", json={"code": "print(1)"})
    for path in (
        "/sandboxes",
        "/sandboxes/sb_1",
        "/nothing",
        "/docs",
        "/openapi.json",
        "/capacity",
        "/metrics",
    ):
        yield http.get(path, headers=headers)
