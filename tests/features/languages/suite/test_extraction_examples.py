"""The examples of extraction in docs/wire.md have the rewards that the document says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import Service
from judging import judge

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "wire.md"
GRADERS: dict[str, dict[str, Any]] = {
    "python": {"kind": "asserts", "tests": ["assert twice(4) == 8"]},
    "c": {
        "kind": "exec",
        "tests": "#include <assert.h>\nint twice(int);\nint main(void) { assert(twice(4) == 8); }",
    },
    "javascript": {"kind": "exec", "tests": "if (twice(4) !== 8) throw new Error('no');"},
}


def test_the_document_says_the_reward_of_each_example(service: Service) -> None:
    examples = DOCUMENT.read_text().split("<!-- extraction examples -->\n```json\n")[1]
    rows = [json.loads(line) for line in examples.split("\n```\n")[0].splitlines()]
    assert len(rows) == 30
    items = [
        {
            "completion": row["completion"],
            "language": row.get("language", "python"),
            "grader": GRADERS[row.get("language", "python")],
            **({"extract": row["extract"]} if "extract" in row else {}),
        }
        for row in rows
    ]
    for row, result in zip(rows, judge(service, *items, extract="auto"), strict=True):
        assert result["reward"] == row["reward"], (row, result)
        assert (result["verdict"] == "no_code") == ("no_code" in row["why"]), (row, result)
