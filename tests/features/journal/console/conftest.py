"""A browser, services with pages, and windows. Says what is missing before anything runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import WAIT_MS, Window, chromium, window
from console_forms import COOKIE, visitor
from console_journal import OTHER_JOB, conversation, rollout, special, training_run
from harness import Service, running_service
from journals import written
from needed_programs import refusal
from playwright.sync_api import Browser, expect
from pydantic import SecretStr

from proctor_service.settings import Settings

TOKENS = {"red": "red-token", "blue": "blue-token"}


def pytest_configure() -> None:
    """Ends the run when there is no browser."""
    if (words := refusal("console")) is not None:
        pytest.exit(words, returncode=1)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for pictures of the pages."""
    named = os.environ.get("PROCTOR_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without tokens, with real sandboxes and a journal of two jobs and a rollout."""
    path = tmp_path_factory.mktemp("open") / "journal.db"
    said = conversation()
    url = written(
        path,
        *training_run("local"),
        *special("local"),
        records=[rollout("ro_1", said, tenant="local", job=OTHER_JOB)],
    )
    with running_service(Settings(journal=SecretStr(url), workers=0), judge=None) as service:
        yield service


@pytest.fixture(scope="session")
def two_tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the tenants `red`, who has a journal, and `blue`, who has an empty one."""
    path = tmp_path_factory.mktemp("tenants") / "journal.db"
    records = [rollout("ro_1", conversation(), tenant="red", job=OTHER_JOB)]
    url = written(path, *special("red"), records=records)
    settings = Settings(journal=SecretStr(url), tokens=SecretStr(json.dumps(TOKENS)), workers=0)
    with running_service(settings) as service:
        yield service


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Opens windows at a service, logged in if a token is given; checks at the end what they noted."""
    with ExitStack() as stack:

        def opened(service: Service, token: str | None = None, **options: Any) -> Window:
            shown = stack.enter_context(window(browser, service.url, **options))
            if token is not None:
                with visitor(service.url, token) as client:
                    value = client.cookies[COOKIE]
                where = f"{service.url}/console"
                shown.context.add_cookies(
                    [{"name": COOKIE, "value": value, "url": where, "httpOnly": True}]
                )
            return shown

        yield opened


@pytest.fixture
def shown(visit: Callable[..., Window], open_service: Service) -> Window:
    """A window at the service without tokens."""
    return visit(open_service)


@pytest.fixture
def red(two_tenants: Service) -> Iterator[httpx.Client]:
    with visitor(two_tenants.url, TOKENS["red"]) as client:
        yield client


@pytest.fixture
def blue(two_tenants: Service) -> Iterator[httpx.Client]:
    with visitor(two_tenants.url, TOKENS["blue"]) as client:
        yield client


@pytest.fixture
def stranger(two_tenants: Service) -> Iterator[httpx.Client]:
    with visitor(two_tenants.url) as client:
        yield client
