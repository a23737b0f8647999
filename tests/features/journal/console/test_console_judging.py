"""Judging from a page, in real sandboxes: again, and by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from browsing import Window
from console_forms import form, get, post, visitor
from console_journal import CHANGED_ID, LATE_ID, NO_CODE_ID, RIGHT_ID, STATE_ID, WRONG_ID
from harness import Service, running_service
from playwright.sync_api import expect

from proctor_service.settings import Settings

PLAYGROUND = "/console/playground"


@pytest.mark.parametrize("id_", [RIGHT_ID, WRONG_ID])
def test_judged_again_it_is_the_same(shown: Window, id_: str) -> None:
    page = shown.open(f"/console/evaluations/{id_}")
    shown.submit("Judge again")
    expect(page.get_by_role("region", name="Judged again")).to_contain_text("the same")
    expect(page.get_by_role("heading", level=1)).to_contain_text(id_[:8])
    shown.submit("Judge again")


def test_a_verdict_that_changed_is_shown_beside_the_old_one(shown: Window) -> None:
    page = shown.open(f"/console/evaluations/{CHANGED_ID}")
    shown.submit("Judge again")
    again = page.get_by_role("region", name="Judged again")
    expect(again.get_by_role("heading")).to_contain_text("different")
    row = again.get_by_role("row").filter(has=page.get_by_role("rowheader", name="verdict"))
    assert row.get_by_role("cell").all_inner_texts() == ["failed", "passed"]
    shown.open(f"/console/evaluations/{CHANGED_ID}")
    expect(page.locator("dl").first).to_contain_text("failed")


@pytest.mark.parametrize("id_", [NO_CODE_ID, STATE_ID])
def test_what_cannot_be_judged_again_says_why(
    shown: Window, open_service: Service, id_: str
) -> None:
    page = shown.open(f"/console/evaluations/{id_}")
    assert page.get_by_role("button", name="Judge again").count() == 0
    expect(page.get_by_role("main")).to_contain_text("cannot be judged again")
    with visitor(open_service.url) as client:
        csrf = form(get(client, PLAYGROUND), PLAYGROUND).fields["csrf"]
        answer = post(client, f"/console/evaluations/{id_}/replay", {"csrf": csrf})
        assert answer.status_code == 409
        unknown = post(client, "/console/evaluations/ev_0/replay", {"csrf": csrf})
        assert unknown.status_code == 404


def test_what_was_lost_once_is_judged_again(shown: Window) -> None:
    page = shown.open(f"/console/evaluations/{LATE_ID}")
    shown.submit("Judge again")
    expect(page.get_by_role("region", name="Judged again")).to_contain_text("different")


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "passed"),
        ({"completion": "```python\ndef double(n):\n    return n\n```"}, "failed"),
        ({"completion": "no code, only words"}, "no_code"),
        ({"kind": "stdio", "completion": "print(input())", "tests": "x", "stdin": "x"}, "passed"),
        ({"kind": "exec", "completion": "raise SystemExit(3)", "tests": ""}, "runtime_error"),
        ({"kind": "pytest", "tests": "def test_it():\n    assert 1"}, "passed"),
        ({"kind": "json", "tests": json.dumps({"kind": "exec"})}, "passed"),
        ({"kind": "exec", "language": "bash", "completion": "```bash\nexit 0\n```"}, "passed"),
    ],
)
def test_the_playground_judges(shown: Window, fields: dict[str, str], verdict: str) -> None:
    page = shown.open(PLAYGROUND)
    for name, value in fields.items():
        control = page.locator(f'main form [name="{name}"]')
        if name in ("kind", "language"):
            control.select_option(value)
        else:
            control.fill(value)
    typed = {name: page.locator(f'main form [name="{name}"]').input_value() for name in fields}
    shown.submit("Judge")
    result = page.get_by_role("region", name="Result")
    expect(result.locator("dl")).to_contain_text(verdict)
    for name, value in typed.items():
        assert page.locator(f'main form [name="{name}"]').input_value() == value


def test_what_the_playground_judged_is_in_the_journal(shown: Window, open_service: Service) -> None:
    page = shown.open(PLAYGROUND)
    shown.submit("Judge")
    link = page.get_by_role("region", name="Result").get_by_role("link")
    expect(page.get_by_role("region", name="Result")).to_contain_text("passed")
    journal = open_service.parts.feature("journal").recorder
    assert journal is not None
    open_service.until(lambda: journal.unwritten == 0)
    with page.expect_navigation() as navigation:
        link.click()
    assert navigation.value.status == 200
    shown.open("/console/evaluations?job=playground")
    assert page.locator("main tbody tr").count() >= 1


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "json", "tests": "{"},
        {"kind": "json", "tests": "[" * 100_000},
        {"kind": "json", "tests": "[]"},
        {"kind": "json", "tests": '{"kind": "odd"}'},
        {"kind": "asserts", "tests": ""},
        {"kind": "odd"},
        {"language": "cobol"},
        {"kind": ""},
    ],
)
def test_a_form_that_means_nothing_is_refused_and_keeps_what_was_typed(
    open_service: Service, fields: dict[str, str]
) -> None:
    with visitor(open_service.url) as client:
        found = form(get(client, PLAYGROUND), PLAYGROUND)
        sent = {**found.fields, "completion": "typed <b>", **fields}
        answer = post(client, PLAYGROUND, sent)
        assert answer.status_code == 422, answer.text
        assert 'role="alert"' in answer.text
        again = form(answer, PLAYGROUND)
        assert again.fields["completion"].strip() == "typed <b>"
        assert post(client, PLAYGROUND, {**again.fields, **found.fields}).status_code == 200


def test_a_form_too_large_is_refused(open_service: Service) -> None:
    with visitor(open_service.url) as client:
        found = form(get(client, PLAYGROUND), PLAYGROUND)
        sent = {**found.fields, "completion": "a" * 3_000_000}
        assert post(client, PLAYGROUND, sent).status_code == 413
        many = {**found.fields, **{f"x{number}": "" for number in range(1000)}}
        assert post(client, PLAYGROUND, many).status_code == 422


def test_without_a_journal_the_pages_say_so_and_the_playground_works(
    visit: Callable[..., Window],
) -> None:
    with running_service(Settings(workers=0)) as service:
        window = visit(service)
        for path in ("/console", "/console/evaluations", "/console/jobs/x", "/console/rollouts/x"):
            page = window.open(path, status=404)
            expect(page.get_by_role("alert")).to_contain_text("PROCTOR_JOURNAL")
        window.follow("playground")
        window.submit("Judge")
        expect(page.get_by_role("region", name="Result")).to_contain_text("passed")
