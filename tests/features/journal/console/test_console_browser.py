"""What the other tests look for is found, on pages that are as bad as can be."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from browsing import Window, grave_findings, markup_faults, sideways_pixels
from hostile_texts import MARKUP
from playwright.sync_api import Browser, Error


class BadPages(ThreadingHTTPServer):
    """A server whose pages show texts without a care."""

    html = ""


class Handler(BaseHTTPRequestHandler):
    server: BadPages

    def do_GET(self) -> None:
        """The page, for every address."""
        body = self.server.html.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[BadPages]:
    with BadPages(("127.0.0.1", 0), Handler) as found:
        thread = Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def bad(browser: Browser, server: BadPages) -> Iterator[Window]:
    window = Window(browser, f"http://127.0.0.1:{server.server_port}")
    yield window
    window.close()


def show(window: Window, server: BadPages, body: str, head: str = "") -> list[str]:
    """Opens a page with this body; returns what is wrong with its markup."""
    server.html = f"<!doctype html><html lang=en><title>x</title>{head}<body><main>{body}</main>"
    window.page.goto("/", wait_until="commit")
    try:
        window.page.wait_for_load_state("domcontentloaded")
        return markup_faults(window.page)
    except Error:
        return ["the page has left"]


@pytest.mark.parametrize(
    "name", [name for name, text in MARKUP.items() if "<" in text and "{" not in text]
)
def test_a_hostile_text_that_is_markup_is_found(bad: Window, server: BadPages, name: str) -> None:
    assert show(bad, server, MARKUP[name]) or any(vars(bad.notes).values())


@pytest.mark.parametrize("name", ["quote", "apostrophe", "attribute-end"])
def test_a_hostile_text_that_leaves_its_attribute_is_found(
    bad: Window, server: BadPages, name: str
) -> None:
    quote = "'" if name == "apostrophe" else '"'
    assert show(bad, server, f"<a title={quote}{MARKUP[name]}{quote} tabindex=0>x</a>")


def test_a_hostile_address_is_found(bad: Window, server: BadPages) -> None:
    for name in ("script-address", "script-address-in-capitals", "data-address", "other-site"):
        assert show(bad, server, f"<a href='{MARKUP[name].replace(chr(39), '')}'>x</a>")


def test_what_a_page_does_is_noted(bad: Window, server: BadPages) -> None:
    policy = "<meta http-equiv=Content-Security-Policy content=\"img-src 'none'\">"
    show(
        bad,
        server,
        "<script>proctor_ran(1); alert(2); fetch('http://evil.example/x').catch(() => 0);"
        "console.error('three'); document.body.append(Object.assign(new Image(), {src: '/i'}));"
        "setTimeout(() => { throw new Error('four'); })</script>",
        policy,
    )
    bad.page.wait_for_function("() => document.images.length")
    notes = bad.notes
    assert notes.ran == [bad.page.url]
    assert notes.dialogs == ["2"]
    assert notes.outside == ["http://evil.example/x"]
    assert any("three" in each for each in notes.errors)
    assert any("img-src" in each for each in notes.violations)
    with pytest.raises(AssertionError):
        notes.check()


def test_what_keeps_people_out_is_found(bad: Window, server: BadPages) -> None:
    show(
        bad,
        server,
        "<img src=/a><button></button><p style='color: #aaa; background: #fff; padding: 9px'>pale</p>"
        "<div style='width: 3000px'>wide</div>",
    )
    found = " ".join(grave_findings(bad.page))
    for rule in ("image-alt", "button-name", "color-contrast"):
        assert rule in found
    assert sideways_pixels(bad.page) > 1000
