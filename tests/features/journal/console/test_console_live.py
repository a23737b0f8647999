"""Pages that follow what is judged, without a reload."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browsing import Window
from harness import Service, exec_request, running_service
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from proctor_service.settings import Settings

STAMP = "() => { window.opened = 1; }"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("live") / "journal.db"
    settings = Settings(journal=SecretStr(f"sqlite:///{path}"), workers=0)
    with running_service(settings) as running:
        judge(running, "first")  # then the journal's file is there
        yield running


@pytest.fixture
def window(visit: Callable[..., Window], service: Service) -> Window:
    return visit(service)


def judge(service: Service, job: str, count: int = 1) -> None:
    """Has so many new submissions judged and recorded."""
    with service.client() as client:
        sources = [f"{job} = {number}" for number in range(count)]
        assert client.post("/reward", json=exec_request(*sources, job=job)).status_code == 200
    journal = service.parts.feature("journal").recorder
    assert journal is not None
    service.until(lambda: journal.unwritten == 0)


def rows(page: Page, job: str) -> int:
    """How many rows of a page are of this job."""
    return page.locator("main tbody tr").filter(has_text=job).count()


@pytest.mark.parametrize("path", ["/console", "/console/evaluations"])
def test_what_is_judged_appears_without_a_reload(
    window: Window, service: Service, path: str
) -> None:
    job = "new" + path.rpartition("/")[2]
    page = window.open(path)
    assert rows(page, job) == 0
    page.evaluate(STAMP)
    judge(service, job)
    expect(page.locator("main tbody tr").filter(has_text=job)).to_have_count(1)
    assert page.evaluate("() => window.opened") == 1


def test_the_charts_of_a_job_follow(window: Window, service: Service) -> None:
    judge(service, "followed")
    page = window.open("/console/jobs/followed")
    expect(page.get_by_text("1 with a reward")).to_be_visible()
    page.evaluate(STAMP)
    judge(service, "followed", 3)
    expect(page.get_by_text("4 with a reward")).to_be_visible()
    assert page.evaluate("() => window.opened") == 1


def test_a_list_with_filters_follows_what_fits_alone(window: Window, service: Service) -> None:
    judge(service, "fits")
    page = window.open("/console/evaluations?job=fits")
    judge(service, "other")
    judge(service, "fits", 2)
    expect(page.locator("main tbody tr")).to_have_count(3)
    assert rows(page, "other") == 0


def test_the_switch_stops_it_and_starts_it_again(window: Window, service: Service) -> None:
    page = window.page
    page.clock.install()
    window.open("/console/evaluations?job=switched")
    page.clock.pause_at("2100-01-01")  # timers run when the test says so
    switch = page.get_by_label("Live")
    switch.uncheck()
    judge(service, "switched")
    before = len(window.requests)
    page.clock.run_for(600_000)
    assert len(window.requests) == before
    assert rows(page, "switched") == 0
    switch.check()
    page.clock.resume()
    expect(page.locator("main tbody tr")).to_have_count(1)


def test_nothing_is_replaced_while_somebody_types(window: Window, service: Service) -> None:
    page = window.page
    page.clock.install()
    window.open("/console/evaluations?job=typed")
    field = page.locator('main form [name="task"]')
    field.fill("half a w")
    judge(service, "typed")
    page.clock.run_for(60_000)
    field.press_sequentially("ord")
    page.clock.run_for(60_000)
    assert field.input_value() == "half a word"
    assert field.evaluate("each => each === document.activeElement")
    assert rows(page, "typed") == 0


def test_pages_of_one_record_ask_for_nothing(window: Window, service: Service) -> None:
    page = window.page
    page.clock.install()
    window.open("/console/playground")
    assert page.get_by_label("Live").count() == 0
    before = len(window.requests)
    page.clock.run_for(600_000)
    assert len(window.requests) == before


def test_a_page_outlives_the_service(visit: Callable[..., Window]) -> None:
    with running_service(Settings(workers=0)) as first:
        port = int(first.url.rpartition(":")[2])
        window = visit(first)
        page = window.open("/console/playground")
    with running_service(Settings(workers=0), port=port):
        window.submit("Judge")
        expect(page.get_by_role("region", name="Result")).to_contain_text("passed")


def test_a_live_page_goes_on_when_the_service_is_back(
    visit: Callable[..., Window], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("back") / "journal.db"
    settings = Settings(journal=SecretStr(f"sqlite:///{path}"), workers=0)
    with running_service(settings) as first:
        judge(first, "before")
        port = int(first.url.rpartition(":")[2])
        window = visit(first)
        page = window.open("/console/evaluations")
        page.evaluate(STAMP)
    with page.expect_event("requestfailed"):
        pass
    with running_service(settings, port=port) as second:
        judge(second, "after")
        expect(page.locator("main tbody tr").filter(has_text="after")).to_have_count(1)
        assert page.evaluate("() => window.opened") == 1
    window.notes.errors.clear()  # the browser notes each request that failed
