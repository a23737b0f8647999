"""The pages as a reader uses them: lists, filters, single records, links between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from browsing import Window
from console_journal import (
    CHEAT_ID,
    IN_STEP,
    JOB,
    LATE_ID,
    NO_CODE_ID,
    OTHER_JOB,
    RIGHT_ID,
    STEPS,
    WRONG,
    WRONG_ID,
)
from harness import Service, running_service
from journals import DOUBLE, Evaluated, written
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from proctor_service.settings import Settings

NAMES = [".", "..", "a/b", "a//b", "/a/", "a?b#c", "a%2Fb", "100%", "a b+c&d=e", "ä ö", "a\\b"]


@pytest.fixture(scope="module")
def oddly_named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with jobs that have odd names."""
    jobs = [Evaluated(index + 1, job=job, tenant="local") for index, job in enumerate(NAMES)]
    url = written(tmp_path_factory.mktemp("names") / "journal.db", *jobs)
    with running_service(Settings(journal=SecretStr(url), workers=0)) as service:
        yield service


def listed(page: Page) -> list[str]:
    """The ids of the evaluations that a page lists."""
    found = page.locator('main tbody a[href^="/console/evaluations/ev_"]')
    return [str(each.get_attribute("href")).rpartition("/")[2] for each in found.all()]


def heading(page: Page) -> str:
    """The heading of a page."""
    return page.get_by_role("heading", level=1).inner_text()


def test_the_list_of_jobs_leads_to_a_job_its_evaluations_and_back(shown: Window) -> None:
    page = shown.open("/console")
    assert heading(page) == "Jobs"
    rows = page.locator("main tbody tr")
    expect(rows.filter(has_text=JOB)).to_contain_text(str(STEPS * IN_STEP))
    shown.follow(JOB)
    assert JOB in heading(page)
    assert page.url.endswith("/console/jobs/run%2F17%20a")
    shown.follow("Evaluations of this job")
    assert parse_qs(urlsplit(page.url).query)["job"] == [JOB]
    assert len(listed(page)) == 50
    shown.follow("Jobs")
    assert heading(page) == "Jobs"


def test_a_job_has_charts_with_names_and_figures(shown: Window) -> None:
    page = shown.open("/console/jobs/run%2F17%20a")
    charts = page.locator("main svg[role=img]")
    assert charts.count() >= 2
    for chart in charts.all():
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 100
        assert chart.evaluate(
            "each => document.getElementById(each.getAttribute('aria-labelledby')"
            ".split(' ')[0])?.textContent"
        )
    expect(page.get_by_role("img", name="Mean reward by step")).to_be_visible()
    others = page.locator("main svg:not([role=img])")
    assert others.count() == page.locator("main svg[aria-hidden=true]").count()
    main = page.get_by_role("main")
    for said in (str(STEPS * IN_STEP), f"{STEPS * IN_STEP - 1} with a reward", "failed 38"):
        expect(main).to_contain_text(said)


def test_the_pages_of_the_menu_say_which_is_shown(shown: Window) -> None:
    for path, name in (
        ("/console", "Jobs"),
        ("/console/evaluations", "Evaluations"),
        ("/console/playground", "Playground"),
    ):
        page = shown.open(path)
        assert heading(page) == name
        assert name in page.title()
        current = page.get_by_role("navigation").locator("[aria-current=page]")
        assert current.inner_text() == name


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("job", OTHER_JOB, 7),
        ("job", "nothing", 0),
        ("step", "5", IN_STEP),
        ("task", "task-x", 1),
        ("tag", "warm", 1),
        ("signal", "early_exit", 1),
        ("verdict", "no_code", 1),
        ("error", "*", 2),
        ("error", "judge_failed", 1),
        ("text", "peculiar thought", 1),
    ],
)
def test_each_filter_shows_what_fits(shown: Window, field: str, value: str, expected: int) -> None:
    page = shown.open("/console/evaluations")
    if field == "verdict":  # others of these tests judge on this service, in jobs of their own
        page.locator('main form [name="job"]').fill(OTHER_JOB)
    control = page.locator(f'main form [name="{field}"]')
    if control.evaluate("each => each.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)
    shown.submit("Show")
    assert parse_qs(urlsplit(page.url).query)[field] == [value]
    assert control.input_value() == value
    assert len(listed(page)) == expected


def test_filters_hold_together_and_the_reward_is_one_of_them(shown: Window) -> None:
    page = shown.open(f"/console/evaluations?job={OTHER_JOB}&reward=0&verdict=failed&step=1")
    assert listed(page) == [WRONG_ID]


def test_every_evaluation_is_on_one_page_of_the_list(shown: Window) -> None:
    page = shown.open("/console/evaluations?job=run%2F17+a&verdict=")
    found = listed(page)
    while page.get_by_role("link", name="Older").count():
        shown.follow("Older")
        assert "job=run%2F17+a" in page.url
        assert page.get_by_role("link", name="Newest").count()
        found += listed(page)
    assert len(found) == len(set(found)) == STEPS * IN_STEP
    assert found == sorted(found, reverse=True)
    shown.follow("Newest")
    assert listed(page) == found[: len(listed(page))]


@pytest.mark.parametrize(
    "query",
    [
        "step=x",
        "step=-1",
        "step=9007199254740993",
        "verdict=odd",
        "error=odd",
        "reward=x",
        "reward=nan",
        "cursor=x",
        "cursor=99999999999999999999",
        f"job={'j' * 300}",
        "limit=0",
    ],
)
def test_a_filter_that_means_nothing_is_refused_with_a_reason(shown: Window, query: str) -> None:
    page = shown.open(f"/console/evaluations?{query}", status=422)
    expect(page.get_by_role("alert")).to_contain_text(query.partition("=")[0])
    shown.follow("Jobs")


@pytest.mark.parametrize(
    "path",
    [
        "evaluations/ev_0",
        "evaluations/ev_0/text/completion",
        f"evaluations/{RIGHT_ID}/text/nothing",
        "jobs/none",
        "rollouts/ro_0",
        "x/y",
        "jobs/",
        "evaluations/",
        "static/x",
        "login",
    ],
)
def test_what_is_not_there_is_a_page_that_leads_on(shown: Window, path: str) -> None:
    page = shown.open(f"/console/{path}", status=404)
    assert heading(page)
    expect(page.get_by_role("alert")).to_be_visible()
    shown.follow("Evaluations")


def test_an_evaluation_shows_the_code_in_the_completion(shown: Window) -> None:
    page = shown.open(f"/console/evaluations/{RIGHT_ID}")
    completion = page.get_by_label("completion")
    assert completion.inner_text().startswith("I double it.\n")
    assert completion.inner_text().endswith("That is all.")
    assert page.locator("mark").count() == 1
    assert completion.locator("mark").inner_text() == DOUBLE
    main = page.get_by_role("main")
    for said in ("passed", "2 of 2", OTHER_JOB, "first", "warm", "asserts", "assert double(5)"):
        expect(main).to_contain_text(said)
    assert page.locator("main svg[role=img]").count() == 1


def test_an_evaluation_that_failed_shows_why(shown: Window) -> None:
    page = shown.open(f"/console/evaluations/{WRONG_ID}")
    main = page.get_by_role("main")
    for said in ("failed", "1 of 2 tests failed", "assert double(5) == 10", "AssertionError"):
        expect(main).to_contain_text(said)
    assert page.locator("mark").inner_text() == WRONG
    expect(page.locator("pre", has_text=re.compile("^said\n?$"))).to_be_visible()


@pytest.mark.parametrize(
    ("id_", "said"),
    [
        (NO_CODE_ID, "no_code"),
        (NO_CODE_ID, "I do not know."),
        (LATE_ID, "deadline"),
        (CHEAT_ID, "early_exit"),
    ],
)
def test_other_endings_say_so(shown: Window, id_: str, said: str) -> None:
    page = shown.open(f"/console/evaluations/{id_}")
    expect(page.get_by_role("main")).to_contain_text(said)


def test_an_evaluation_links_to_its_job_step_task_and_tags(shown: Window) -> None:
    for link, field, expected in (
        (OTHER_JOB, None, None),
        ("1", "step", "1"),
        ("task-1", "task", "task-1"),
        ("warm", "tag", "warm"),
    ):
        page = shown.open(f"/console/evaluations/{RIGHT_ID}")
        shown.follow(link)
        if field is not None:
            assert parse_qs(urlsplit(page.url).query)[field] == [expected]
            assert RIGHT_ID in listed(page)


def test_a_rollout_is_a_conversation(shown: Window) -> None:
    page = shown.open("/console/rollouts/ro_1")
    said = page.get_by_role("article")
    assert said.count() == 5
    for index, (role, content) in enumerate(
        [
            ("system", "You write Python."),
            ("user", "Write double(n)."),
            ("assistant", "bash"),
            ("tool", "solution.py"),
            ("assistant", "Done: solution.py"),
        ]
    ):
        expect(said.nth(index).get_by_role("heading")).to_contain_text(role)
        expect(said.nth(index)).to_contain_text(content)


def test_texts_can_be_loaded_down_whole(shown: Window) -> None:
    answer = shown.context.request.get(f"/console/evaluations/{RIGHT_ID}/text/completion")
    assert DOUBLE in answer.text()
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("job", NAMES)
def test_a_job_opens_whatever_its_name(
    visit: Callable[..., Window], oddly_named: Service, job: str
) -> None:
    page = visit(oddly_named).open("/console")
    link = page.locator(
        "main tbody tr td:first-child a", has_text=re.compile(f"^{re.escape(job)}$")
    )
    with page.expect_navigation() as navigation:
        link.click()
    assert navigation.value.status == 200
    assert heading(page) == f"Job {job}"
