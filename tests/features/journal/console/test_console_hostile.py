"""Hostile texts in every field of every page: they are shown as text, and nothing comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, urlencode

import httpx
import pytest
from browsing import Window, check_headers, sideways_pixels
from console_forms import form, get, post, visitor
from console_journal import hostile_evaluations, hostile_rollout
from harness import Service, running_service
from hostile_texts import HOSTILE, MARKUP
from journals import written
from playwright.sync_api import Browser, Page, expect
from pydantic import SecretStr

from proctor_client.wire import Failure
from proctor_service.features.journal.rows import clean
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings import Settings

NAMES = list(HOSTILE)
PLAYGROUND = "/console/playground"
FILTERS = ("job", "task", "tag", "signal")
TYPED = ("completion", "tests", "stdin")
_HIDDEN = (
    r"[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
_UNSEEN = f"""
() => {{
  const hidden = /{_HIDDEN}/, found = [];
  const walker = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {{
    const said = walker.currentNode.data.replaceAll(/[\\r\\n\\t]/g, '');
    const parent = walker.currentNode.parentElement;
    if (hidden.test(said) && parent.tagName !== 'TEXTAREA')
      found.push(`${{parent.outerHTML.slice(0, 200)}}: ${{JSON.stringify(said.slice(0, 200))}}`);
  }}
  return found;
}}
"""
"""Texts of a page with characters that nobody sees, but where somebody types."""


_MARKUP_OF = """
html => {
  const parsed = new DOMParser().parseFromString(html, 'text/html');
  const odd = /^(iframe|object|embed|base|style|img|video|math|template|xmp)$/i;
  const isWrong = each => odd.test(each.tagName)
    || (each.tagName === 'SCRIPT' && each.getAttribute('src') !== '/console/static/console.js')
    || [...each.attributes].some(({name, value}) => /^on/i.test(name) || name === 'style'
      || (/^(href|src|action|formaction)$/i.test(name) && !/^([/](?![/])|#)/.test(value)));
  return [...parsed.querySelectorAll('*')].filter(isWrong).map(each => each.outerHTML.slice(0, 200));
}
"""


_ROWS_OF = """
html => new DOMParser().parseFromString(html, 'text/html').querySelectorAll('main tbody tr').length
"""


async def echo(submission: Submission, backend: Sandboxes) -> Judgement:
    """A judge that says what the submission says, everywhere."""
    said = submission.source
    failure = Failure(index=0, test=said, message=said)
    return Judgement("failed", 0, 1, (failure,), said, said, said)


def batches(size: int) -> list[list[str]]:
    """The names of all texts, in lists of this size."""
    return [NAMES[start : start + size] for start in range(0, len(NAMES), size)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    evaluations = [
        each
        for number, text in enumerate(HOSTILE.values())
        for each in hostile_evaluations(number, text, "local")
    ]
    rollouts = [
        hostile_rollout(number, [HOSTILE[name] for name in names], "local")
        for number, names in enumerate(batches(8))
    ]
    path = tmp_path_factory.mktemp("hostile") / "journal.db"
    url = written(path, *evaluations, records=rollouts)
    with running_service(Settings(journal=SecretStr(url), workers=0), judge=echo) as running:
        yield running


@pytest.fixture(scope="module")
def shared_window(browser: Browser, service: Service) -> Iterator[Window]:
    opened = Window(browser, service.url)
    yield opened
    opened.close()


@pytest.fixture
def window(shared_window: Window) -> Iterator[Window]:
    """One window for all tests here, whose notes are checked after each."""
    notes = shared_window.notes
    for said in vars(notes).values():
        said.clear()
    yield shared_window
    notes.check()


def check(page: Page) -> None:
    """Checks that a page is of use, and that nobody is misled by what cannot be seen."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for name in ("Jobs", "Evaluations", "Playground"):
        expect(page.get_by_role("navigation").get_by_role("link", name=name)).to_be_visible()
    assert page.evaluate(_UNSEEN) == []
    assert sideways_pixels(page) <= 0


def holds(page: Page, name: str, least: int = 1) -> None:
    """Checks that the page shows a text as it is, if it can be shown so."""
    if name in MARKUP:
        said = page.evaluate("() => document.body.textContent")
        # A name is one line of bounded length.
        assert said.count(MARKUP[name][:39]) >= least


@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_shows_hostile_texts_as_texts(window: Window, name: str) -> None:
    number = NAMES.index(name)
    page = window.open(f"/console/evaluations/ev_{2 * number + 1:032x}")
    check(page)
    holds(page, name, 6)
    page = window.open(f"/console/evaluations/ev_{2 * number:032x}")
    check(page)
    holds(page, name, 6)
    assert page.locator("mark").count() == 1
    if name in MARKUP:
        assert page.locator("mark").inner_text().strip() == MARKUP[name].strip()


@pytest.mark.parametrize("name", NAMES[::4])
def test_an_evaluation_judged_again_shows_hostile_texts_as_texts(window: Window, name: str) -> None:
    page = window.open(f"/console/evaluations/ev_{2 * NAMES.index(name):032x}")
    window.submit("Judge again")
    check(page)
    holds(page, name, 8)


def test_every_evaluation_judged_again_shows_texts(window: Window, service: Service) -> None:
    with visitor(service.url) as client:
        for number in range(len(NAMES)):
            page = f"/console/evaluations/ev_{2 * number:032x}"
            found = form(get(client, page), f"{page}/replay").fields
            answer = post(client, f"{page}/replay", found)
            assert answer.status_code == 200
            _shown_as_text(window, answer)


def test_a_hostile_text_is_loaded_down_as_it_was(service: Service) -> None:
    with visitor(service.url) as client:
        for number, text in enumerate(HOSTILE.values()):
            answer = client.get(f"/console/evaluations/ev_{2 * number:032x}/text/completion")
            assert answer.content == f"{text}\n{text}".encode("utf-8", "surrogatepass")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.headers["content-disposition"].startswith("attachment")
            check_headers(answer.headers)


@pytest.mark.parametrize("number", range(len(batches(8))))
def test_a_rollout_shows_hostile_texts_as_texts(window: Window, number: int) -> None:
    page = window.open(f"/console/rollouts/ro_{number:032x}")
    check(page)
    for name in batches(8)[number]:
        holds(page, name, 8)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_shows_hostile_texts_as_texts(window: Window, name: str) -> None:
    job = clean(HOSTILE[name])
    page = window.open(f"/console/jobs/{quote(job, safe='')}")
    check(page)
    holds(page, name)


def test_the_lists_show_hostile_texts_as_texts(window: Window) -> None:
    page = window.open("/console")
    check(page)
    for name in MARKUP:
        holds(page, name)
    assert page.locator("main tbody tr").count() == len({clean(each) for each in HOSTILE.values()})
    page = window.open("/console/evaluations?limit=500")
    check(page)
    assert page.locator("main tbody tr").count() == 2 * len(NAMES)
    for name in MARKUP:
        holds(page, name, 2)


@pytest.mark.parametrize("names", batches(len(FILTERS)), ids=" ".join)
def test_filters_take_hostile_texts_as_texts(window: Window, names: list[str]) -> None:
    texts = [clean(HOSTILE[name])[:200] for name in names]
    filters = dict(zip(FILTERS, texts, strict=False))
    page = window.open("/console/evaluations?" + urlencode(filters))
    check(page)
    for name, (field, text) in zip(names, filters.items(), strict=True):
        if name in MARKUP:
            assert page.locator(f'main form [name="{field}"]').input_value() == text


def _found_by(text: str) -> str:
    """The page of what has this text in every field that a filter has."""
    return "/console/evaluations?" + urlencode(dict.fromkeys(FILTERS, clean(text)[:200]))


def test_filters_find_hostile_texts(window: Window, service: Service) -> None:
    with visitor(service.url) as client:
        for name, text in MARKUP.items():
            answer = client.get(_found_by(text))
            assert window.page.evaluate(_ROWS_OF, answer.text) == 1, name


@pytest.mark.parametrize("name", list(MARKUP)[::8])
def test_the_form_of_filters_finds_hostile_texts(window: Window, name: str) -> None:
    page = window.open(_found_by(MARKUP[name]))
    assert page.locator("main tbody tr").count() == 1
    window.submit("Show")
    assert page.locator("main tbody tr").count() == 1


@pytest.mark.parametrize("names", batches(len(TYPED)), ids=" ".join)
def test_the_playground_shows_hostile_texts_as_texts(window: Window, names: list[str]) -> None:
    page = window.open(PLAYGROUND)
    fields = [page.locator(f'main form [name="{field}"]') for field in TYPED]
    for field, name in zip(fields, names, strict=False):
        field.fill(HOSTILE[name].encode("utf-8", "replace").decode())
    page.locator('main form [name="kind"]').select_option("stdio")
    typed = [field.input_value().replace("\0", "\ufffd") for field in fields]  # HTML has no NUL
    window.submit("Judge")
    check(page)
    assert [field.input_value() for field in fields] == typed
    for name in names:
        holds(page, name)


@pytest.mark.parametrize("field", ["kind", "language", "tests"])
def test_the_playground_refuses_hostile_choices_as_texts(
    window: Window, service: Service, field: str
) -> None:
    with visitor(service.url) as client:
        found = form(get(client, PLAYGROUND), PLAYGROUND).fields
        for text in HOSTILE.values():
            said = text.encode("utf-8", "replace").decode()
            answer = post(client, PLAYGROUND, {**found, "kind": "json", field: said})
            assert answer.status_code in (200, 422)
            _shown_as_text(window, answer)


def test_addresses_are_shown_as_texts(window: Window, service: Service) -> None:
    paths = ("jobs/", "evaluations/", "rollouts/", "", "evaluations/ev_0/text/", "static/")
    fields = ("step", "verdict", "error", "reward", "cursor", "limit", "rollout_id", "text")
    with visitor(service.url) as client:
        for text in HOSTILE.values():
            name = quote(text.encode("utf-8", "surrogatepass"), safe="")
            for path in (
                *(f"/console/{path}x{name}" for path in paths),
                *(f"/console/evaluations?{field}=x{name}" for field in fields),
                f"/console/evaluations?{name}={name}",
                f"/console/evaluations?job={name}&job={name}",
            ):
                answer = client.get(path)
                assert answer.status_code in (200, 404, 422), (path, answer.status_code)
                assert answer.headers["content-type"].startswith("text/html"), path
                check_headers(answer.headers)
                _shown_as_text(window, answer)


def _shown_as_text(window: Window, answer: httpx.Response) -> None:
    """Checks the markup of an answer, as the browser reads it, without running anything."""
    wrong = window.page.evaluate(_MARKUP_OF, answer.text)
    assert wrong == [], answer.url
