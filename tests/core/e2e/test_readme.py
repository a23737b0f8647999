"""What the README and the docs show is what works: their examples run, against a real service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import Service
from optional_programs import skip_without
from waits import WAIT_SECONDS

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "README.md",
    "docs/graders.md",
    "docs/wire.md",
    "docs/adapters.md",
    "docs/compat.md",
    "docs/environments.md",
    "docs/named-verifiers.md",
    "docs/verifiers.md",
    "docs/harbor.md",
    "trainers/README.md",
)
SHOWN_URL = "http://127.0.0.1:8080"

_RUNNABLE = re.compile(
    r"<!-- runnable(, goes on)? -->\n```(python|bash)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Example:
    """A block that is marked as runnable, and where it stands."""

    place: str
    language: str
    text: str


def examples() -> list[Example]:
    """The examples of all pages. One that goes on needs the one before that does not."""
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        beginning = ""
        for match in _RUNNABLE.finditer(text):
            goes_on, language, block = match.groups()
            if not goes_on:
                beginning = block
            line = text.count("\n", 0, match.start()) + 1
            whole = f"{beginning}\n{block}" if goes_on else block
            found.append(Example(f"{page}:{line}", language, whole))
    return found


def documents() -> list[str]:
    """All documents for users."""
    found = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")]
    found += [ROOT / "service" / "README.md", ROOT / "trainers" / "README.md"]
    return sorted(str(each.relative_to(ROOT)) for each in found)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.place)
def test_example(example: Example, service: Service, tmp_path: Path) -> None:
    if "curl" in example.text:
        skip_without("curl")
    command = tmp_path / "bin" / "proctor"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proctor_service "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PROCTOR_URL": service.url,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(
            str(ROOT / each) for each in ("client", "service", "trainers")
        ),
    }
    shells = {"python": [sys.executable, "-W", "error"], "bash": ["bash", "-euo", "pipefail"]}
    ran = subprocess.run(
        [*shells[example.language], "-c", example.text.replace(SHOWN_URL, service.url)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"error":{"reason"' not in ran.stdout.replace(" ", "")


def _json_block(page: str, mark: str) -> Any:
    _, _, rest = (ROOT / page).read_text().partition(f"<!-- {mark} -->\n```json\n")
    return json.loads(rest.partition("\n```\n")[0])


def _stable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with types in place of the values that differ from run to run."""
    usage = {name: type(value) for name, value in result["usage"].items()}
    ids = {name: type(result[name]) for name in ("evaluation_id", "sandbox_id", "degraded")}
    return {**result, **ids, "usage": usage}


def test_the_whole_request_has_the_answer_beside_it(service: Service) -> None:
    request, expected = (
        _json_block("docs/wire.md", f"whole {each}") for each in ("request", "answer")
    )
    with service.client() as client:
        response = client.post("/reward", json=request)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert list(map(_stable, answer["results"])) == list(map(_stable, expected["results"]))
    assert answer["summary"] == expected["summary"]


def test_every_command_block_is_run_or_says_why_not() -> None:
    """`journal` blocks run in test_replay.py against a journal with records, `upgrade` blocks in
    test_upgrades.py between two versions.
    """
    known = re.compile(r"<!-- (runnable(, goes on)?|journal|upgrade|not run: .+) -->")
    pages = documents()
    unmarked = [
        f"{page}:{number}"
        for page in pages
        for number, (above, line) in enumerate(pairwise((ROOT / page).read_text().split("\n")), 2)
        if line == "```bash" and not known.fullmatch(above)
    ]
    assert unmarked == []


def test_no_page_installs_from_a_registry_what_is_not_there() -> None:
    for page in documents():
        text = (ROOT / page).read_text()
        assert not re.search(r"^pip install [^\n]*'?proctor-", text, re.MULTILINE), page


def test_each_page_has_examples() -> None:
    assert {example.place.partition(":")[0] for example in examples()} == set(PAGES)


def test_every_page_that_is_linked_to_exists() -> None:
    for page in (*PAGES, "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
