"""The languages of `settings/languages.toml`: rows alone give the verdicts of the other languages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import Service
from installed import are_installed
from judging import JSON, judge

from proctor_service.settings.language_rows import KNOWN_LANGUAGES
from proctor_service.settings.languages import LANGUAGES

ROWS = {name: row for name, row in KNOWN_LANGUAGES.items() if name not in LANGUAGES}
PROGRAMS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("row_programs.toml").read_text(encoding="utf-8")
)
HERE = [name for name, row in ROWS.items() if are_installed(row.needs)]
SUM = {
    "kind": "stdio",
    "cases": [{"stdin": "2 3\n", "stdout": "5\n"}, {"stdin": "40 -7\n", "stdout": "33\n"}],
}
HIDDEN = {"kind": "stdio", "cases": [{"stdout": "hidden"}]}
EXEC = {"kind": "exec"}
PROSE = "The answer is 42"
KINDS: Mapping[str, tuple[Mapping[str, Any], float, str]] = {
    "adds": (SUM, 20, "passed"),
    "fails": (EXEC, 20, "runtime_error"),
    "broken": (EXEC, 20, ""),
    "prose": (EXEC, 20, ""),
    "spins": (EXEC, 1, "timeout"),
    "hoards": (EXEC, 20, "memory_limit"),
    "peeks": (HIDDEN, 20, "passed"),
    "swarms": (EXEC, 20, "runtime_error"),
}
"""Grader, limit of CPU time in seconds, and verdict of each kind of program."""
Results = Mapping[tuple[str, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def results(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """Judge the programs of each kind in all languages in one batch."""
    peeked = tmp_path_factory.mktemp("peeked") / "secret.txt"
    peeked.write_text("the secret\n")
    peeked.chmod(0o644)
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for kind, (grader, cpu_seconds, _) in KINDS.items():
        sources = {
            name: text.replace("PEEKED", str(peeked))
            for name in HERE
            if (text := PROSE if kind == "prose" else PROGRAMS[name].get(kind)) is not None
        }
        items = [
            {"completion": f"So:\n```{name}\n{text.strip()}\n```\n", "language": name}
            for name, text in sources.items()
        ]
        limits = {"cpu_seconds": cpu_seconds, "wall_seconds": 20}
        judged = judge(service, *items, grader=grader, limits=limits, extract="auto")
        found.update({(name, kind): each for name, each in zip(sources, judged, strict=True)})
    yield found
    assert peeked.read_text() == "the secret\n"


def test_each_row_has_programs() -> None:
    assert set(PROGRAMS) == set(ROWS)
    assert all({"adds", "fails", "broken"} <= set(programs) for programs in PROGRAMS.values())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_gives_the_verdicts_of_a_language(results: Results, name: str) -> None:
    if name not in HERE:
        pytest.skip(f"no {' and no '.join(ROWS[name].needs)} here")
    verdict_of_broken = "runtime_error" if ROWS[name].compile is None else "syntax_error"
    found = {kind: results[name, kind] for kind in KINDS if (name, kind) in results}
    expected = {kind: KINDS[kind][2] or verdict_of_broken for kind in found}
    assert {kind: each["verdict"] for kind, each in found.items()} == expected, found
    assert all((r["reward"] == 1.0) == (r["verdict"] == "passed") for r in found.values())


def test_languages_without_their_programs_are_refused(service: Service) -> None:
    for name in sorted(ROWS.keys() - HERE):
        body = {"submissions": [{"completion": "x", "language": name}], "grader": EXEC}
        with service.client() as client:
            answer = client.post("/reward", json=body, headers=JSON)
        assert answer.status_code == 422
        assert f"no '{name}' here" in answer.json()["error"]["message"]
