"""Forms that no page of the visit made: from other sites, of other visits, of other tenants."""

from __future__ import annotations

import json

import httpx
import pytest
from browsing import check_headers
from console_forms import (
    HTML,
    LOGIN,
    LOGOUT,
    PLAYGROUND,
    REPLAY,
    SENDERS,
    bodies,
    csrf,
    form,
    get,
    post,
    visitor,
)
from harness import Service
from playwright.sync_api import Browser

RED = "red-token"


@pytest.mark.parametrize("headers", SENDERS)
def test_a_log_in_from_another_site_is_refused(
    stranger: httpx.Client, headers: dict[str, str]
) -> None:
    answer = post(stranger, LOGIN, {"token": RED, "next": "/console"}, headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", [PLAYGROUND, REPLAY, LOGOUT])
@pytest.mark.parametrize("headers", SENDERS)
def test_a_form_from_another_site_is_refused(
    red: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    answer = post(red, path, bodies(csrf(red))[path], headers)
    assert answer.status_code == 403
    get(red, "/console")


@pytest.mark.parametrize("path", [PLAYGROUND, REPLAY, LOGOUT])
def test_a_form_that_the_visit_did_not_get_is_refused(
    two_tenants: Service, red: httpx.Client, blue: httpx.Client, path: str
) -> None:
    own = csrf(red)
    with visitor(two_tenants.url, RED) as again:
        of_another_visit = csrf(again)
    assert len({own, of_another_visit, csrf(blue)}) == 3
    sent = bodies(own)[path]
    wrong = ["", "x", own[:-1], own + "x", own.upper(), of_another_visit, csrf(blue), "ä", "\0"]
    for each in wrong:
        assert post(red, path, {**sent, "csrf": each}).status_code == 403, each
    sent = {**sent, "other": own}
    del sent["csrf"]
    assert post(red, path, sent).status_code == 403
    # A query is no form.
    assert post(red, f"{path}?csrf={own}", sent).status_code == 403
    get(red, "/console")


def test_forms_of_the_visit_are_taken(red: httpx.Client) -> None:
    sent = bodies(csrf(red))
    for path, status in ((PLAYGROUND, 200), (REPLAY, 200), (LOGOUT, 303)):
        assert post(red, path, sent[path]).status_code == status
    get(red, "/console", 401)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data", ""])
def test_a_body_that_is_no_form_is_refused(red: httpx.Client, kind: str) -> None:
    body = json.dumps(bodies(csrf(red))[PLAYGROUND])
    answer = red.post(PLAYGROUND, content=body, headers={**HTML, "Content-Type": kind})
    assert answer.status_code in (403, 415, 422)
    check_headers(answer.headers)


@pytest.mark.parametrize("headers", SENDERS)
def test_without_tokens_forms_from_elsewhere_are_refused_all_the_same(
    open_service: Service, headers: dict[str, str]
) -> None:
    with visitor(open_service.url) as client:
        sent = bodies(form(get(client, PLAYGROUND), PLAYGROUND).fields["csrf"])
        for path in (PLAYGROUND, REPLAY):
            assert post(client, path, sent[path], headers).status_code == 403
    with visitor(open_service.url) as another:
        assert post(another, PLAYGROUND, sent[PLAYGROUND]).status_code == 403


FORM = '<form method="post" enctype="text/plain" action="{}"><input name="{{" value="}}"></form>'


def test_a_browser_sends_no_work_for_another_page(browser: Browser, open_service: Service) -> None:
    url = f"{open_service.url}/reward"
    own = f"{open_service.url}/page"
    text = FORM.format(url)
    page = browser.new_page()
    try:
        page.route("**/page", lambda each: each.fulfill(body=text, content_type="text/html"))
        others = (
            "http://localhost:8669/page",
            "http://127.0.0.1:8669/page",
            f"data:text/html,{text}",
        )
        for place in (own, *others):
            page.goto(place)
            with page.expect_navigation(url=url) as answer:
                page.evaluate("document.forms[0].submit()")
            assert answer.value.status == (422 if place == own else 403), place
    finally:
        page.close()
