"""The OpenAPI page tells the truth: what it allows and what it forbids, sent by schemathesis.

Statuses, types and bodies of the answers are held against the page; so is the need for a token. That
what the schema allows is taken, and what it forbids refused, is not: that a path stays in its folder is
more than a schema can say, and `"5"` is taken for a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from fastapi.openapi.utils import get_openapi
from fuzzing import ReplayCounts, cases
from harness import NoBackend, Service, passes, running_service
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks
from scripted_sandboxes import FakeBackend

from proctor_service.app import build_app
from proctor_service.settings import Settings

TOKEN = "fuzz-token-of-many-characters"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
CHECKS: list[Any] = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.ignored_auth,
]


def page() -> dict[str, Any]:
    found: dict[str, Any] = build_app(Settings(), NoBackend(), passes).openapi()
    return found


OPERATIONS = [f"{method} {path}" for path, methods in page()["paths"].items() for method in methods]


@dataclass(frozen=True)
class Target:
    """A service, and what its page says."""

    service: Service
    schema: Any
    session: requests.Session

    def living(self) -> str:
        """A sandbox that lives."""
        url = f"{self.service.url}/sandboxes"
        for each in self.session.get(url).json()["sandboxes"]:
            self.session.delete(f"{url}/{each['id']}?missing_ok=true")
        found: str = self.session.post(url, json={}).json()["id"]
        return found


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    settings = Settings(tokens=SecretStr(f'{{"a": "{TOKEN}"}}'), policy_hosts=[], max_queued=64)
    with (
        running_service(settings, judge=passes, backend=FakeBackend()) as service,
        requests.Session() as session,
    ):
        session.headers.update(AUTHORIZED)
        session.trust_env = False
        schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json", headers=AUTHORIZED)
        yield Target(service, schema, session)


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_are_as_the_page_says(target: Target, tally: ReplayCounts, name: str) -> None:
    method, path = name.split(" ")
    operation = target.schema[path][method.upper()]
    allowed = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    forbidden = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    living = target.living() if "sandbox_id" in path else ""

    @cases(60)
    @given(st.data(), st.booleans(), st.booleans())
    def send(data: st.DataObject, alive: bool, rightly: bool) -> None:
        case = data.draw(allowed if rightly else forbidden)
        if alive and living:
            case.path_parameters["sandbox_id"] = living
        with tally.case(case):
            answer = case.call(session=target.session, headers=AUTHORIZED)
        case.validate_response(answer, checks=CHECKS, headers=AUTHORIZED)

    send()


def test_every_model_on_the_page_has_a_name_of_its_own() -> None:
    """One of two with one name would stand for both: the error body was once a data set's row."""
    app = build_app(Settings(), NoBackend(), passes)
    answers = get_openapi(title="x", version="0", routes=app.routes)["components"]["schemas"]
    shown = app.openapi()["components"]["schemas"]
    assert {name for name in answers if answers[name] != shown[name]} == set()


def test_the_page_says_which_routes_need_no_token() -> None:
    paths = page()["paths"]
    open_ones = {path for path in paths if paths[path].get("get", {}).get("security") == []}
    assert open_ones == {"/healthz", "/readyz"}
