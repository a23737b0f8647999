"""Chromium for tests, and windows that note everything that a page must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    Response,
    sync_playwright,
)

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
EVIL = "http://evil.example"
"""A site that hostile texts ask for; no name but 127.0.0.1 is resolved."""
WAIT_MS = 60_000.0
"""For what must happen; a test that waits this long has failed."""
PHONE = (375, 812)
"""Width and height of a phone's window, in CSS pixels."""

_WATCH = """
addEventListener('securitypolicyviolation', event => proctor_violation(
    `${event.violatedDirective} blocked ${event.blockedURI} at ${event.sourceFile}`), true);
"""
_MARKUP = """
elements => {
  const known = new Set(elements), wrong = [], here = location.origin;
  const addresses = new Set(['href', 'src', 'action', 'formaction', 'xlink:href', 'data', 'poster',
    'srcset', 'ping', 'background', 'cite', 'manifest']);
  for (const element of document.querySelectorAll('*')) {
    const tag = element.tagName.toLowerCase();
    const shown = element.outerHTML.slice(0, 120);
    if (!known.has(tag)) wrong.push(`element ${tag}: ${shown}`);
    if (tag === 'script' && (element.textContent.trim() || !element.src)) wrong.push(`inline: ${shown}`);
    if (tag === 'meta' && element.httpEquiv) wrong.push(`meta: ${shown}`);
    for (const {name, value} of element.attributes) {
      if (/^on/i.test(name) || ['style', 'srcdoc', 'is'].includes(name.toLowerCase())
          || (name === 'autofocus' && element.id !== 'token'))
        wrong.push(`attribute ${name}: ${shown}`);
      if (!addresses.has(name.toLowerCase())) continue;
      let origin = 'none';
      try { origin = new URL(value, document.baseURI).origin; } catch {}
      if (origin !== here) wrong.push(`address ${name}=${value.slice(0, 80)}: ${shown}`);
    }
  }
  return wrong;
}
"""
_ELEMENTS = (
    "html head meta title link script body header footer nav main section article aside search div "
    "span p a h1 h2 h3 h4 h5 h6 table caption colgroup col thead tbody tfoot tr th td pre code kbd "
    "samp mark dl dt dd ul ol li figure figcaption time form fieldset legend label input select "
    "optgroup option textarea button output details summary strong em b small br hr bdi abbr svg g "
    "path rect circle line polyline polygon text tspan desc defs pattern clippath"
)
"""Elements that the pages may have."""
_ASSETS = (".css", ".js", ".svg")
_AXE = "options => axe.run(document, options).then(found => found.violations)"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a screen."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is missing: make test-programs"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Notes:
    """What pages did, besides being shown."""

    dialogs: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    windows: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Fails if a page did anything that it must not do."""
        found = {name: said for name, said in vars(self).items() if said}
        assert not found, found


class Window:
    """A window of its own, with its own cookies. `page.goto` takes paths of the service."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.notes = Notes()
        self.requests: list[Request] = []
        self.context: BrowserContext = browser.new_context(
            base_url=url, locale="en-US", timezone_id="UTC", **options
        )
        context = self.context
        context.set_default_timeout(WAIT_MS)
        context.expose_binding("proctor_ran", lambda source, *_: self._ran(source))
        context.expose_binding(
            "proctor_violation", lambda _, said: self.notes.violations.append(said)
        )
        context.add_init_script(_WATCH)
        context.on("request", self._requested)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.notes.errors.append(str(error.error)))
        context.on("dialog", self._asked)
        self.page: Page = context.new_page()
        self.page.on("download", lambda download: self.notes.downloads.append(download.url))
        self.page.on("websocket", lambda socket: self.notes.outside.append(socket.url))
        context.on("page", lambda page: self.notes.windows.append(page.url))

    def open(self, path: str, status: int = 200) -> Page:
        """Opens a page, and checks the status and what every answer must have."""
        answer = self.page.goto(path)
        assert answer is not None, path
        assert answer.status == status, f"{path}: {answer.status} {answer.text()[:2000]}"
        self.check_answer(answer)
        return self.page

    def check_answer(self, answer: Response) -> None:
        """Checks the headers of a page, and its markup."""
        check_headers(answer.headers)
        assert markup_faults(self.page) == []
        assert len(self.page.frames) == 1

    def submit(self, button: str, status: int = 200) -> Page:
        """Presses a button that sends a form, and checks the page that comes."""
        with self.page.expect_navigation() as navigation:
            self.page.get_by_role("button", name=button).click()
        answer = navigation.value
        assert answer.status == status, f"{button}: {answer.status} {answer.text()[:2000]}"
        self.check_answer(answer)
        return self.page

    def follow(self, link: str) -> Page:
        """Follows a link, and checks the page that comes."""
        with self.page.expect_navigation() as navigation:
            self.page.get_by_role("link", name=link, exact=True).first.click()
        answer = navigation.value
        assert answer.status == 200, f"{link}: {answer.status} {answer.url}"
        self.check_answer(answer)
        return self.page

    def close(self) -> None:
        """Closes it, with its cookies."""
        self.context.close()

    def _is_inside(self, address: str) -> bool:
        here, there = urlsplit(self.url), urlsplit(address)
        return (here.scheme, here.netloc) == (there.scheme, there.netloc)

    def _ran(self, source: Any) -> None:
        self.notes.ran.append(source["frame"].url)

    def _requested(self, request: Request) -> None:
        self.requests.append(request)
        if not self._is_inside(request.url):
            self.notes.outside.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        # A page with the status 404 is an error to the browser, and not to us.
        is_status = message.text.startswith("Failed to load resource: the server responded with")
        where = message.location.get("url", "")
        if message.type in ("error", "warning") and not (is_status and not where.endswith(_ASSETS)):
            self.notes.errors.append(f"{message.text} ({where})")

    def _asked(self, dialog: Any) -> None:
        self.notes.dialogs.append(dialog.message)
        dialog.dismiss()


@contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    """A window until the block ends; then what it noted is checked."""
    opened = Window(browser, url, **options)
    try:
        yield opened
        opened.notes.check()
    finally:
        opened.close()


def check_headers(headers: Any, *, is_static: bool = False) -> None:
    """Checks the headers of an answer below /console; `headers` ignores case or is in lower case."""
    policy = headers["content-security-policy"]
    directives = {
        part.split()[0]: part.split()[1:] for part in policy.lower().split(";") if part.split()
    }
    for name, sources in directives.items():
        for source in sources:
            assert source in ("'none'", "'self'"), f"{name} {source}"
    assert directives["default-src"] == ["'none'"]
    assert directives["frame-ancestors"] == ["'none'"]
    assert directives["base-uri"] == ["'none'"]
    assert directives["form-action"] == ["'self'"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] in ("no-referrer", "same-origin")
    if not is_static:
        assert "no-store" in headers["cache-control"]


def markup_faults(page: Page) -> list[str]:
    """What the markup of a page holds that no page of the service has."""
    found: list[str] = page.evaluate(_MARKUP, _ELEMENTS.split())
    return found


def grave_findings(page: Page) -> list[str]:
    """What axe finds to be a serious or a critical lack of access."""
    script = (files("axe_playwright_python") / "axe.min.js").read_text()
    page.evaluate(script)
    found = page.evaluate(_AXE, {"resultTypes": ["violations"]})
    return [
        f"{each['id']} ({each['impact']}): {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def sideways_pixels(page: Page) -> int:
    """Pixels by which the page is wider than its window."""
    found: int = page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return found
