"""Who may see and send what: cookies, forms, tenants. Requests are made by hand, as an attacker would."""

from __future__ import annotations

import json

import httpx
import pytest
from browsing import check_headers
from console_forms import (
    COOKIE,
    HTML,
    LOGIN,
    LOGOUT,
    PLAYGROUND,
    REPLAY,
    bodies,
    csrf,
    form,
    get,
    log_in,
    post,
    visitor,
)
from console_journal import OTHER_JOB, RIGHT_ID
from harness import Service, running_service
from pydantic import SecretStr

from proctor_service.features.journal.console import cookies
from proctor_service.features.journal.console.cookies import Cookies
from proctor_service.http.middleware import Tokens
from proctor_service.settings import Settings

RED, BLUE = "red-token", "blue-token"
PAGES = [
    "/console",
    f"/console/jobs/{OTHER_JOB}",
    "/console/evaluations",
    f"/console/evaluations?job={OTHER_JOB}",
    f"/console/evaluations/{RIGHT_ID}",
    f"/console/evaluations/{RIGHT_ID}/text/completion",
    "/console/rollouts/ro_1",
    PLAYGROUND,
    "/console/nothing",
]
ELSEWHERE = [
    "//evil.example",
    "https://evil.example",
    "http://evil.example/console",
    "/\\evil.example",
    "\\\\evil.example",
    "/console\\..\\..",
    "/console/../evaluations",
    "/console/%2e%2e/evaluations",
    "/console//evil.example",
    "/consoles",
    "/console@evil.example",
    "/console:80@evil.example",
    "console",
    "/evaluations",
    "/",
    "",
    "?x",
    "javascript:alert(1)",
    "/console\r\nSet-Cookie: a=b",
    "/console\nLocation: //evil.example",
    "\t//evil.example",
    " /console",
    "/console\0",
    "/console/\u202e",
    "/console/ä",
    "/console?" + "x" * 100_000,
]


@pytest.mark.parametrize("path", PAGES)
def test_without_a_cookie_each_page_is_the_form_to_log_in(
    stranger: httpx.Client, path: str
) -> None:
    page = get(stranger, path, 401)
    found = form(page, LOGIN)
    assert found.method == "post"
    assert found.fields["next"] == path
    assert "token" in found.fields
    assert RIGHT_ID not in page.text.replace(path, "")
    assert OTHER_JOB not in page.text.replace(path, "")
    assert "set-cookie" not in page.headers


@pytest.mark.parametrize("path", [PLAYGROUND, REPLAY, LOGOUT, "/console", "/console/nothing"])
def test_without_a_cookie_nothing_can_be_sent(stranger: httpx.Client, path: str) -> None:
    answer = post(stranger, path, {"csrf": "x", "completion": "x"})
    assert answer.status_code == (405 if path == "/console" else 401)


@pytest.mark.parametrize(
    "token", ["", "wrong", " ", "red-token2", "Red-token", "\ud83d\0", "x" * 9999]
)
def test_a_wrong_token_is_said_to_be_wrong(stranger: httpx.Client, token: str) -> None:
    answer = post(
        stranger,
        LOGIN,
        {"token": token.encode("utf-8", "replace").decode(), "next": "/console/evaluations"},
    )
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "set-cookie" not in answer.headers
    assert form(answer, LOGIN).fields == {"next": "/console/evaluations", "token": ""}


@pytest.mark.parametrize(
    "next_", ["/console", "/console/evaluations?job=a%20b&step=1", f"/console/jobs/{OTHER_JOB}"]
)
def test_a_token_opens_the_page_that_was_asked_for(stranger: httpx.Client, next_: str) -> None:
    answer = log_in(stranger, RED, next_)
    assert (answer.status_code, answer.headers["location"]) == (303, next_)
    [cookie] = answer.headers.get_list("set-cookie")
    name, *attributes = [part.strip() for part in cookie.split(";")]
    assert name.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= set(attributes)
    assert not any(each.lower().startswith("domain") for each in attributes)
    assert RED not in answer.text
    assert RED not in cookie
    get(stranger, "/console")


def test_behind_https_the_cookie_is_for_https_alone(stranger: httpx.Client) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    answer = post(stranger, LOGIN, {"token": RED, "next": "/console"}, headers)
    assert "; secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("next_", ELSEWHERE)
def test_a_log_in_leads_nowhere_else(stranger: httpx.Client, next_: str) -> None:
    answer = post(stranger, LOGIN, {"token": RED, "next": next_})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console" or (
        next_.startswith("/console?") and answer.headers["location"] == next_
    )
    assert answer.headers.get_list("set-cookie")[0].startswith(COOKIE)
    assert len(answer.headers.get_list("set-cookie")) == 1


@pytest.mark.parametrize(
    "path",
    [f"/console/jobs/{OTHER_JOB}", f"/console/evaluations/{RIGHT_ID}", "/console/rollouts/ro_1"]
    + [
        f"/console/evaluations/{RIGHT_ID}/text/{each}"
        for each in ("completion", "source", "stdout")
    ],
)
def test_what_is_another_tenants_is_unknown(
    red: httpx.Client, blue: httpx.Client, path: str
) -> None:
    answer = red.get(path, headers=HTML)
    assert answer.status_code in (200, 404)
    if not path.endswith("stdout"):
        assert answer.status_code == 200
    get(blue, path, 404)


def test_lists_and_forms_hold_nothing_of_another_tenant(
    red: httpx.Client, blue: httpx.Client
) -> None:
    assert OTHER_JOB in get(red, "/console").text
    assert RIGHT_ID in get(red, "/console/evaluations").text
    assert OTHER_JOB not in get(blue, "/console").text
    for query in ("", "?cursor=999999", f"?job={OTHER_JOB}", "?text=double", "?tag=warm"):
        assert "ev_0" not in get(blue, f"/console/evaluations{query}").text
    assert post(blue, REPLAY, {"csrf": csrf(blue)}).status_code == 404


@pytest.mark.parametrize("path", ["/console", "/console/evaluations"])
def test_the_part_that_a_live_page_asks_for_is_guarded_as_well(
    stranger: httpx.Client, red: httpx.Client, blue: httpx.Client, path: str
) -> None:
    part = {**HTML, "Proctor-Part": "body"}
    own = red.get(path, headers=part)
    assert own.status_code == 200
    assert OTHER_JOB in own.text
    check_headers(own.headers)
    if_changed = {**part, "If-None-Match": own.headers["etag"]}
    assert red.get(path, headers=if_changed).status_code == 304
    for client, status in ((blue, 200), (stranger, 401)):
        answer = client.get(path, headers=if_changed)
        assert answer.status_code == status
        assert OTHER_JOB not in answer.text
        check_headers(answer.headers)


def with_cookie(value: str | bytes) -> dict[bytes, bytes]:
    """Headers of a browser's request with this cookie."""
    given = value.encode() if isinstance(value, str) else value
    return {b"Accept": HTML["Accept"].encode(), b"Cookie": COOKIE.encode() + b"=" + given}


def test_a_cookie_that_was_changed_is_none(stranger: httpx.Client, red: httpx.Client) -> None:
    right = red.cookies[COOKIE]
    assert stranger.get("/console", headers=with_cookie(right)).status_code == 200
    tenant, until, nonce, mac = right.split(".")
    other, *_ = Cookies(Tokens({"blue": BLUE})).log_in(BLUE).cookie.split(".")  # type: ignore[union-attr]
    changed: list[str | bytes] = [
        right[:place] + ("a" if right[place] != "a" else "b") + right[place + 1 :]
        for place in range(len(right))
    ]
    changed += [
        ".".join(parts)
        for parts in (
            (other, until, nonce, mac),
            (tenant, str(int(until) + 1), nonce, mac),
            (tenant, "9" * 5000, nonce, mac),
            (tenant, until, nonce, ""),
            (tenant, until, mac),
            ("", "", "", ""),
            (tenant, until, nonce, mac, mac),
            ("====", until, nonce, mac),
            ("/w==", until, nonce, mac),
        )
    ]
    changed += ["", "x", "a" * 8000, '"', "\\", b"\xff\xfe", b"a.1.b.\xe4"]
    for each in changed:
        answer = stranger.get("/console", headers=with_cookie(each))
        assert answer.status_code == 401, each
        check_headers(answer.headers)


def test_a_cookie_ends_with_its_time_and_with_its_token(
    two_tenants: Service, stranger: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tokens in ({"red": "former-token"}, {"green": RED}):
        [token] = tokens.values()
        removed = Cookies(Tokens(tokens)).log_in(token)
        assert removed is not None
        answer = stranger.get("/console", headers=with_cookie(removed.cookie))
        assert answer.status_code == 401
    monkeypatch.setattr(cookies, "LOGGED_IN_SECONDS", -1)
    expired = Cookies(Tokens({"red": RED})).log_in(RED)
    assert expired is not None
    assert stranger.get("/console", headers=with_cookie(expired.cookie)).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/evaluations",
        f"/evaluations/{RIGHT_ID}",
        "/jobs",
        "/rollouts/ro_1",
        "/metrics",
        "/sandboxes",
        "/openapi.json",
        "/consoles",
        "/console/../evaluations",
        "/Console",
        "//console",
    ],
)
def test_the_cookie_opens_the_pages_alone(
    stranger: httpx.Client, red: httpx.Client, path: str
) -> None:
    headers = with_cookie(red.cookies[COOKIE])
    assert stranger.get(path, headers=headers).status_code == 401
    assert stranger.post("/reward", headers=headers, json={}).status_code == 401
    assert stranger.post(f"/evaluations/{RIGHT_ID}/replay", headers=headers).status_code == 401


def test_the_json_api_is_for_tokens_as_before(two_tenants: Service) -> None:
    with two_tenants.client(headers={"Authorization": f"Bearer {RED}"}) as client:
        assert client.get(f"/evaluations/{RIGHT_ID}").json()["id"] == RIGHT_ID
        assert client.get("/jobs").json()["jobs"][0]["job"] == OTHER_JOB
    with two_tenants.client(headers={"Authorization": f"Bearer {BLUE}"}) as client:
        assert client.get(f"/evaluations/{RIGHT_ID}").status_code == 404


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_do_nothing(red: httpx.Client, method: str) -> None:
    for path in ("/console", PLAYGROUND, LOGOUT, LOGIN, REPLAY, "/console/static/console.css"):
        answer = red.request(method, path, headers=HTML)
        assert answer.status_code in (404, 405) or (method, answer.status_code) == ("HEAD", 200)
        check_headers(answer.headers, is_static="static" in path)
        assert "access-control-allow-origin" not in answer.headers
    get(red, "/console")


@pytest.mark.parametrize("name", ["console.css", "console.js", "icon.svg"])
def test_assets_are_open_and_hold_nothing(stranger: httpx.Client, name: str) -> None:
    answer = stranger.get(f"/console/static/{name}")
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    check_headers(answer.headers, is_static=True)


@pytest.mark.parametrize("name", ["../render.py", "..%2frender.py", "%2e%2e/x", "x", "", "a/b"])
def test_no_other_file_is_an_asset(stranger: httpx.Client, name: str) -> None:
    answer = stranger.get(f"/console/static/{name}", headers=HTML)
    assert answer.status_code in (401, 404)
    check_headers(answer.headers)


def test_a_log_in_at_one_replica_is_good_at_another(two_tenants: Service) -> None:
    tokens = SecretStr(json.dumps({"red": RED}))
    with (
        visitor(two_tenants.url, RED) as red,
        running_service(Settings(tokens=tokens, workers=0)) as other,
        visitor(other.url) as there,
    ):
        there.cookies.set(COOKIE, red.cookies[COOKIE], path="/console")
        sent = bodies(csrf(red))
        assert post(there, PLAYGROUND, sent[PLAYGROUND]).status_code == 200
        assert csrf(there) == sent[PLAYGROUND]["csrf"]
        with visitor(two_tenants.url, BLUE) as blue:
            there.cookies.set(COOKIE, blue.cookies[COOKIE], path="/console")
        get(there, "/console", 401)
