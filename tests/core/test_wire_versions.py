"""Versions of the wire: a client of this version can use every service of the same version."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from wire_outline import FILE, Outline, breaks, outline

from proctor_client import Client, ProtocolError, wire
from proctor_client._flow import WIRE
from proctor_client.testing import FakeProctor
from proctor_service.app import build_app
from proctor_service.settings import Settings

FIRST: Outline = json.loads(FILE.read_text())


def test_the_contract_has_only_grown() -> None:
    assert list(breaks(FIRST, outline(build_app(Settings()).openapi()))) == []


def _without_route(new: Outline) -> None:
    new["routes"].remove("POST /reward")


def _without_model(new: Outline) -> None:
    del new["models"]["Result"]


def _without_field(new: Outline) -> None:
    del new["models"]["Result"]["fields"]["reward"]


def _with_required_field(new: Outline) -> None:
    new["models"]["RewardRequest"]["required"].append("job")


def _with_missing_field(new: Outline) -> None:
    new["models"]["Result"]["required"].remove("index")


def _without_word(new: Outline) -> None:
    new["models"]["RewardRequest"]["fields"]["scoring"].remove("all")


def _with_verdict(new: Outline) -> None:
    new["models"]["Result"]["fields"]["verdict"].append("perhaps")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without_route, "POST /reward: gone"),
        (_without_model, "Result: gone"),
        (_without_field, "Result.reward: gone"),
        (_with_required_field, "RewardRequest.job: required now"),
        (_with_missing_field, "Result.index: may be missing now"),
        (_without_word, "RewardRequest.scoring: no longer takes ['all']"),
        (_with_verdict, "Result.verdict: may be ['perhaps'] now"),
    ],
)
def test_what_breaks_an_older_client_is_found(change: Callable[[Any], None], told: str) -> None:
    new = copy.deepcopy(FIRST)
    change(new)
    assert list(breaks(FIRST, new)) == [told]


def test_additions_break_nothing() -> None:
    new = copy.deepcopy(FIRST)
    new["routes"].append("POST /more")
    new["models"]["More"] = new["models"]["Result"]
    new["models"]["Result"]["fields"]["more"] = []
    new["models"]["Result"]["required"].append("more")
    new["models"]["RewardRequest"]["fields"]["scoring"].append("most")
    assert list(breaks(FIRST, new)) == []


def test_a_newer_version_is_told_at_once() -> None:
    fake = FakeProctor()
    fake.answer_next(b"{}", headers={WIRE: str(wire.WIRE_VERSION + 1)}, count=9)
    with fake.client() as client, pytest.raises(ProtocolError, match="update proctor-client"):
        client.capacity()
    assert len(fake.requests) == 1


@pytest.mark.parametrize("version", ["", "0", "1", "one", "-2", "9" * 400])
def test_other_versions_are_no_error(version: str) -> None:
    with _answering(version) as client:
        assert client.reward(["x = 1"], grader={"kind": "exec"}).results[0].reward is not None


def _answering(version: str) -> Client:
    class Older(FakeProctor):
        def handle_request(self, request: Any) -> Any:
            answer = super().handle_request(request)
            answer.headers[WIRE] = version
            return answer

    return Older().client()
