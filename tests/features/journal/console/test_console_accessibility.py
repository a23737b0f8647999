"""Pages for everybody: axe's rules, light and dark, a phone's width, the keyboard. Takes pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from browsing import PHONE, Window, grave_findings, sideways_pixels
from console_journal import CHANGED_ID, LATE_ID, NO_CODE_ID, OTHER_JOB, RIGHT_ID, WRONG_ID
from harness import Service
from playwright.sync_api import Page

PAGES = {
    "jobs": "/console",
    "job": "/console/jobs/run%2F17%20a",
    "job-small": f"/console/jobs/{OTHER_JOB}",
    "evaluations": "/console/evaluations",
    "evaluations-filtered": f"/console/evaluations?job={OTHER_JOB}&verdict=failed",
    "evaluations-none": "/console/evaluations?job=none",
    "evaluation-passed": f"/console/evaluations/{RIGHT_ID}",
    "evaluation-failed": f"/console/evaluations/{WRONG_ID}",
    "evaluation-no-code": f"/console/evaluations/{NO_CODE_ID}",
    "evaluation-error": f"/console/evaluations/{LATE_ID}",
    "rollout": "/console/rollouts/ro_1",
    "playground": "/console/playground",
}
VIEWS: dict[str, tuple[Literal["light", "dark"], tuple[int, int]]] = {
    "light": ("light", (1280, 800)),
    "dark": ("dark", (1280, 800)),
    "phone": ("light", PHONE),
    "phone-dark": ("dark", PHONE),
}
_FOCUSED = """
() => {
  const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
  return {
    what: `${each.tagName} ${each.getAttribute('href') ?? each.name ?? each.id}`,
    isSeen: box.width > 0 && box.height > 0 && box.right > 0,
    isMarked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1,
    isBody: each === document.body,
  };
}
"""


@pytest.fixture(params=list(VIEWS))
def view(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def window(view: str, visit: Callable[..., Window], open_service: Service) -> Window:
    scheme, (width, height) = VIEWS[view]
    size = {"width": width, "height": height}
    return visit(open_service, color_scheme=scheme, viewport=size, reduced_motion="reduce")


def look_at(page: Page, screenshots: Path, name: str) -> None:
    """Takes a picture of a page, and checks it."""
    page.screenshot(path=screenshots / f"{name}.png", full_page=True)
    assert grave_findings(page) == []
    assert sideways_pixels(page) <= 0


@pytest.mark.parametrize("name", list(PAGES))
def test_a_page_is_for_everybody(window: Window, screenshots: Path, view: str, name: str) -> None:
    page = window.open(PAGES[name])
    look_at(page, screenshots, f"{name}-{view}")
    scheme, _ = VIEWS[view]
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    lightness = sum(int(each) for each in ground.strip("rgba()").split(",")[:3]) / 3
    assert (lightness > 128) == (scheme == "light")


def test_pages_after_a_form_are_for_everybody(window: Window, screenshots: Path, view: str) -> None:
    page = window.open(f"/console/evaluations/{CHANGED_ID}")
    window.submit("Judge again")
    look_at(page, screenshots, f"evaluation-judged-again-{view}")
    window.open("/console/playground")
    window.submit("Judge")
    look_at(page, screenshots, f"playground-judged-{view}")
    page.locator('main form [name="kind"]').select_option("json")
    window.submit("Judge", status=422)
    look_at(page, screenshots, f"playground-refused-{view}")


def test_refusals_are_for_everybody(window: Window, screenshots: Path, view: str) -> None:
    look_at(window.open("/console/nothing", 404), screenshots, f"unknown-{view}")
    look_at(window.open("/console/evaluations?step=x", 422), screenshots, f"refused-{view}")


def test_the_log_in_is_for_everybody(
    visit: Callable[..., Window], two_tenants: Service, screenshots: Path, view: str
) -> None:
    scheme, (width, height) = VIEWS[view]
    size = {"width": width, "height": height}
    window = visit(two_tenants, color_scheme=scheme, viewport=size)
    page = window.open("/console", 401)
    look_at(page, screenshots, f"log-in-{view}")
    page.get_by_label("token").fill("wrong")
    window.submit("Log in", 401)
    look_at(page, screenshots, f"log-in-wrong-{view}")
    page.get_by_label("token").fill("red-token")
    window.submit("Log in")
    look_at(page, screenshots, f"logged-in-{view}")


@pytest.mark.parametrize(
    "name", ["jobs", "evaluations", "evaluation-passed", "rollout", "playground"]
)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(shown: Window, name: str) -> None:
    page = shown.open(PAGES[name])
    wanted = page.locator("a[href], button, select, textarea, input:not([type=hidden])").count()
    reached: list[str] = []
    while True:
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused["isBody"] or len(reached) > 2 * wanted + 20:
            break
        assert focused["isSeen"], focused
        assert focused["isMarked"], focused
        reached.append(focused["what"])
    assert len([each for each in reached if not each.startswith(("DIV", "PRE"))]) >= wanted
    assert reached[0] == "A #main"


def test_the_first_link_skips_the_menu(shown: Window) -> None:
    page = shown.open("/console/evaluations")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.name") == "job"


def test_a_form_is_sent_with_the_keyboard_alone(shown: Window) -> None:
    page = shown.open("/console/evaluations")
    page.get_by_label("job", exact=True).focus()
    page.keyboard.type(OTHER_JOB)
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.locator("main tbody tr").count() == 7
    page = shown.open(f"/console/evaluations/{RIGHT_ID}")
    page.get_by_role("button", name="Judge again").focus()
    with page.expect_navigation():
        page.keyboard.press("Space")
    assert page.get_by_role("region", name="Judged again").count() == 1


def test_pages_have_one_heading_and_are_in_english(shown: Window) -> None:
    for path in PAGES.values():
        page = shown.open(path)
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title()


def test_pages_are_of_use_without_the_script(
    visit: Callable[..., Window], open_service: Service
) -> None:
    window = visit(open_service, java_script_enabled=False)
    page = window.page
    for path in PAGES.values():
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200
        assert page.get_by_role("heading", level=1).count() == 1
    page.get_by_role("button", name="Judge").click()
    assert page.get_by_role("region", name="Result").count() == 1
