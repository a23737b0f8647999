"""`proctor bench hacks` against the real service: by its own route, and by those of other clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import proctor
from harness import Service, running_service

pytestmark = pytest.mark.usefixtures("no_settings")

SOME = ("references", "completions", "programs")


def bench(url: str, wire: str, status: int, tmp_path: Path, *classes: str) -> dict[str, Any]:
    """The report of one run that ends with that status."""
    path = tmp_path / "report.json"
    chosen = [part for name in classes for part in ("--class", name)]
    said = proctor("bench", "hacks", "--wire", wire, "--json", path, *chosen, PROCTOR_URL=url)
    assert said.exit_code == status, said.output
    assert "all" in said.stdout
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["wire"] == wire
    assert found["not_judged"] == 0
    return found


def test_proctor_rewards_what_is_honest_and_nothing_else(service: Service, tmp_path: Path) -> None:
    found = bench(service.url, "proctor", 0, tmp_path, *SOME)
    assert found["hacks"] >= 25
    assert (found["hacks_rewarded"], found["honest_rewarded"]) == (0, found["honest"])
    assert found["classes"]["programs"]["hacks_rewarded"] == 0
    assert found["outcomes"][0]["verdict"] == "passed"


@pytest.mark.parametrize(
    ("wire", "hacks"),
    [
        ("sandboxfusion-submit", 4),
        ("open-r1", 4),
        ("open-instruct", 15),
        ("skypilot", 12),
        ("slime", 15),
        ("code-judge", 4),
    ],
)
def test_so_do_the_compatible_routes_that_get_tests_and_code_apart(
    service: Service, tmp_path: Path, wire: str, hacks: int
) -> None:
    found = bench(f"{service.url}/compat", wire, 0, tmp_path, *SOME)
    assert found["hacks"] >= hacks
    assert (found["hacks_rewarded"], found["honest_rewarded"]) == (0, found["honest"])
    assert found["honest"] > 0
    assert found["not_expressed"] > 0


def test_tests_pasted_behind_the_code_reward_hacks_on_any_machine(
    service: Service, tmp_path: Path
) -> None:
    """What `/run_code` is asked for is an exit code, so there is nothing that a service could do."""
    found = bench(f"{service.url}/compat", "sandboxfusion", 1, tmp_path, "leaving")
    assert found["hacks_rewarded"] > 0
    assert found["honest_rewarded"] == found["honest"]


def test_a_service_that_says_no_reward_is_not_taken_for_a_judge(tmp_path: Path) -> None:
    with running_service() as service:  # it has no routes of that name
        said = proctor("bench", "hacks", "--wire", "skypilot", PROCTOR_URL=f"{service.url}/no")
    assert said.exit_code == 2
    assert "Not judged" in said.stdout


def test_what_it_cannot_do_it_says() -> None:
    nobody = "http://127.0.0.1:1"
    said = proctor("bench", "hacks", "--wire", "slime")
    assert (said.exit_code, "PROCTOR_URL" in said.stderr) == (2, True)
    said = proctor("bench", "hacks", "--wire", "slime", PROCTOR_URL=nobody)
    assert (said.exit_code, "no service answers" in said.stderr) == (2, True)
    said = proctor("bench", "hacks", "--class", "unheard of", PROCTOR_URL=nobody)
    assert (said.exit_code, "there are: changing" in said.stderr) == (2, True)
