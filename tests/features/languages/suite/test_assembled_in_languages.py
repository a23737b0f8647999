"""Preludes and prompts in every language: bodies, whole functions and whole files, judged in one request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Service
from judging import judge

LIMITS = {"cpu_seconds": 20, "memory_mb": 1024, "wall_seconds": 20}
PROGRAMS = Path(__file__).resolve().parents[3] / "support" / "assembled_programs.txt"


def _samples() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield each language with its texts by kind. Of the answers, each right one has another form."""
    for part in PROGRAMS.read_text().split("=== ")[1:]:
        language, *texts = part.split("\n--- ")
        found: dict[str, list[str]] = {}
        for text in texts:
            kind, _, content = text.partition("\n")
            found.setdefault(kind, []).append(content if kind == "prompt" else content.rstrip("\n"))
        yield language, found


def _submission(language: str, texts: dict[str, list[str]], completion: str) -> dict[str, Any]:
    name = "F" if language == "csharp" else "f"
    return {
        "completion": completion,
        "language": language,
        "limits": LIMITS,
        "prelude": texts["prelude"][0],
        "prompt_code": texts["prompt"][0] + "\n",
        "grader": {"kind": "exec", "tests": texts["tests"][0], "entry_point": name},
    }


def test_bodies_whole_functions_and_files_in_every_language(service: Service) -> None:
    rows = []
    for language, texts in _samples():
        right = texts["right"]
        fenced = f"Here:\n```{language}\n{right[-1]}\n```"
        rows += [(_submission(language, texts, each), 1.0) for each in (*right, fenced)]
        rows += [(_submission(language, texts, each), 0.0) for each in texts["wrong"]]
    results = judge(service, *(item for item, _ in rows), extract="auto")
    differ = [
        (item["language"], item["completion"], result["verdict"], result["message"][-600:])
        for (item, reward), result in zip(rows, results, strict=True)
        if result["reward"] != reward
    ]
    assert differ == []
