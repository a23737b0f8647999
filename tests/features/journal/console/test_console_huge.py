"""Texts of megabytes in the journal and in the playground: the pages stay of use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from browsing import Window, sideways_pixels
from console_forms import form, get, post, visitor
from console_journal import rollout
from harness import Service, running_service
from hostile_texts import huge_texts
from journals import Evaluated, written
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from proctor_client.wire import AssertsGrader, Failure
from proctor_service.judge.submission import Judgement
from proctor_service.settings import Settings

TEXTS = huge_texts()
NAMES = list(TEXTS)
LONGEST_PAGE = 4_000_000
"""Characters of a page's markup."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with each text as a completion with code, as output and tests, and in a rollout."""
    evaluations, rollouts = [], []
    for number, text in enumerate(TEXTS.values()):
        failures = tuple(Failure(index=index, test=text, message=text) for index in range(3))
        judgement = Judgement("failed", 0, 3, failures, text, text, text)
        grader = AssertsGrader(kind="asserts", tests=[text])
        whole = Evaluated(2 * number, source=text, completion=text, tenant="local")
        framed = Evaluated(
            2 * number + 1, completion=f"{text}\n```\nx = 1\n```\n{text}", source="x = 1"
        )
        evaluations += [
            replace(whole, judgement=judgement, reward=0.0, grader=grader),
            replace(framed, tenant="local"),
        ]
        said = [{"role": "user", "content": text}] * 2
        rollouts.append(rollout(f"ro_{number}", said, tenant="local"))
    many = [{"role": "user", "content": f"turn {number}"} for number in range(5_000)]
    rollouts.append(rollout("ro_many", many, tenant="local"))
    path = tmp_path_factory.mktemp("huge") / "journal.db"
    url = written(path, *evaluations, records=rollouts)
    with running_service(Settings(journal=SecretStr(url), workers=0)) as running:
        yield running


def check(page: Page) -> None:
    """Checks that a page is of use."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link", name="Jobs")).to_be_visible()
    assert sideways_pixels(page) <= 0
    assert len(page.content()) < LONGEST_PAGE


@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_of_megabytes_is_cut(
    visit: Callable[..., Window], service: Service, name: str
) -> None:
    window = visit(service)
    number = NAMES.index(name)
    page = window.open(f"/console/evaluations/ev_{2 * number:032x}")
    check(page)
    address = page.get_by_role("link", name="Whole text").first.get_attribute("href")
    assert address is not None
    whole = window.context.request.get(address)
    assert whole.text() == TEXTS[name]
    page = window.open(f"/console/evaluations/ev_{2 * number + 1:032x}")
    check(page)
    assert page.locator("mark").inner_text() == "x = 1"
    window.follow("Jobs")


@pytest.mark.parametrize("name", [*NAMES, "many"])
def test_a_rollout_of_megabytes_is_cut(
    visit: Callable[..., Window], service: Service, name: str
) -> None:
    window = visit(service)
    number = NAMES.index(name) if name in TEXTS else name
    check(window.open(f"/console/rollouts/ro_{number}"))
    window.follow("Jobs")


def test_the_lists_are_as_small_as_ever(visit: Callable[..., Window], service: Service) -> None:
    window = visit(service)
    for path in ("/console", "/console/evaluations", "/console/jobs/run"):
        page = window.open(path)
        check(page)
        assert len(page.content()) < 100_000


@pytest.mark.parametrize("name", NAMES)
def test_the_playground_takes_what_fits_and_refuses_the_rest(service: Service, name: str) -> None:
    with visitor(service.url) as client:
        found = form(get(client, "/console/playground"), "/console/playground").fields
        for text in (TEXTS[name], TEXTS[name][:300_000]):
            answer = post(client, "/console/playground", {**found, "completion": text})
            assert answer.status_code in (200, 413, 422)
            assert len(answer.text) < LONGEST_PAGE
