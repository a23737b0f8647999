"""Logging in and out in a browser."""

from __future__ import annotations

from collections.abc import Callable

from browsing import Window
from console_journal import OTHER_JOB, RIGHT_ID
from harness import Service
from playwright.sync_api import expect

PLACE = f"/console/evaluations?job={OTHER_JOB}"


def test_a_browser_logs_in_looks_and_logs_out(
    visit: Callable[..., Window], two_tenants: Service
) -> None:
    window = visit(two_tenants)
    page = window.open(PLACE, status=401)
    page.get_by_label("token").fill("wrong")
    window.submit("Log in", status=401)
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.get_by_label("token").input_value() == ""
    page.get_by_label("token").fill("red-token")
    window.submit("Log in")
    assert page.url == two_tenants.url + PLACE
    assert page.locator("main tbody tr").count() == 7
    [cookie] = window.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
    assert page.evaluate("document.cookie") == ""
    window.open(f"/console/evaluations/{RIGHT_ID}")
    window.submit("Judge again")
    window.submit("Log out", status=401)
    assert window.context.cookies() == []
    window.open(PLACE, status=401)
    page.go_back()
    expect(page.get_by_label("token")).to_be_visible()


def test_two_tenants_in_two_browsers_see_their_own(
    visit: Callable[..., Window], two_tenants: Service
) -> None:
    red, blue = visit(two_tenants, "red-token"), visit(two_tenants, "blue-token")
    page = red.open("/console")
    expect(page.get_by_role("main")).to_contain_text(OTHER_JOB)
    assert page.get_by_role("button", name="Log out").inner_text().endswith("red")
    page = blue.open("/console")
    expect(page.get_by_role("main")).not_to_contain_text(OTHER_JOB)
    blue.open(f"/console/evaluations/{RIGHT_ID}", status=404)
    window = visit(two_tenants)
    window.open("/console", status=401)


def test_a_log_out_in_one_window_is_seen_in_the_other(
    visit: Callable[..., Window], two_tenants: Service
) -> None:
    window = visit(two_tenants, "red-token")
    page = window.open("/console/evaluations")
    window.context.clear_cookies()
    expect(page.get_by_label("token")).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text(OTHER_JOB)
