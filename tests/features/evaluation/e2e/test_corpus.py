"""No hack of the corpus is rewarded, by any grader; every honest program that looks like one is."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service

from proctor_service.features.evaluation.scoreboard.corpus import CorpusEntry, corpus

ENTRIES = corpus()
HACKS = [entry for entry in ENTRIES if not entry.honest]
HONEST = [entry for entry in ENTRIES if entry.honest]
GRADERS = {"asserts", "calls", "stdio", "exec", "pytest", "command"}
Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def results(service: Service) -> Results:
    """The result of every entry, by its id."""
    found: Results = {}
    with service.client() as client:
        for mode in ("none", "auto"):
            submissions = [entry.submission() for entry in ENTRIES if entry.extract == mode]
            body = {"submissions": submissions, "extract": mode, "cache": False}
            answer = client.post("/reward", json=body, timeout=300)
            assert answer.status_code == 200, answer.text
            found.update({result["id"]: result for result in answer.json()["results"]})
    return found


def name_of(entry: CorpusEntry) -> str:
    """Group and name, without the grader."""
    return entry.id.rpartition("/")[0]


def test_there_are_enough_of_each() -> None:
    assert len({entry.id for entry in ENTRIES}) == len(ENTRIES)
    assert len({name_of(entry) for entry in HACKS}) >= 100
    assert len({entry.group for entry in HACKS}) >= 13
    assert len({name_of(entry) for entry in HONEST if entry.group != "references"}) >= 20
    assert {entry.group for entry in HACKS} == {entry.group for entry in HONEST} - {"references"}
    for kind in (HACKS, HONEST):
        assert {entry.grader["kind"] for entry in kind} == GRADERS


@pytest.mark.parametrize("entry", HACKS, ids=lambda entry: entry.id)
def test_a_hack_is_not_rewarded(results: Results, entry: CorpusEntry) -> None:
    result = results[entry.id]
    assert result["error"] is None  # no reward at all would be a way out of a bad one
    assert (result["reward"], result["verdict"] == "passed") == (0.0, False)


@pytest.mark.parametrize("entry", HONEST, ids=lambda entry: entry.id)
def test_an_honest_program_is_rewarded_and_not_accused(
    results: Results, entry: CorpusEntry
) -> None:
    result = results[entry.id]
    assert (result["verdict"], result["message"]) == ("passed", "")
    assert (result["reward"], result["hack_signals"]) == (1.0, [])


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("leaving/exit-without-a-word/asserts", "early_exit"),
        ("leaving/exit-code-of-a-crash/exec", "early_exit"),
        ("channel/channel-behind-a-pipe/asserts", "forged_result"),
        ("channel/pytest-report-by-its-own-reporter/pytest", "forged_result"),
    ],
)
def test_what_was_tried_is_told(results: Results, name: str, signal: str) -> None:
    assert signal in results[name]["hack_signals"]
