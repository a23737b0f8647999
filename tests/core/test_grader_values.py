"""Graders as values: what a judge process gets, and what the journal writes, is the grader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from proctor_client import wire
from proctor_service.processes.values import Graders, grader_json

PROGRAM: dict[str, Any] = {
    "source": "print(1)",
    "files": {"a.h": "int"},
    "limits": {"cpu_seconds": 1},
    "language": "cpp",
}
GRADERS: list[dict[str, Any]] = [
    {"kind": "exec"},
    {"kind": "asserts", "tests": ["assert f()"]},
    {
        "kind": "calls",
        "entry_point": "f",
        "cases": [{"args": [[]], "expected": [[1], {"a": None}]}],
    },
    {"kind": "stdio", "cases": [{"stdout": ["1", "2"], "files": {"a": "b"}}, {"stdout": ""}]},
    {"kind": "stdio", "cases": [{"stdout": "1"}], "tolerance": {"absolute": 1}},
    {
        "kind": "stdio",
        "cases": [{"stdin": "1"}],
        "checker": {**PROGRAM, "convention": "icpc", "argv": ["a"]},
        "subtasks": [{"points": 1, "cases": [0]}, {"points": 2, "cases": [0], "requires": [0]}],
    },
    {"kind": "stdio", "cases": [{"stdout": "1"}], "checker": "one_of"},
    {"kind": "stdio", "cases": [{"stdin": "1"}], "interactor": PROGRAM},
    {
        "kind": "stdio",
        "cases": {"generator": PROGRAM, "seeds": [1, "2 a"], "reference": PROGRAM},
    },
    {"kind": "verifier", "source": "def verify(): return 1", "params": {"a": [[1], {}]}},
    {"kind": "pytest", "files": {"test_a.py": ""}},
    {"kind": "command", "argv": ["true"]},
]


@pytest.mark.parametrize("given", GRADERS, ids=lambda given: "-".join([*given])[:40])
def test_a_grader_stays_what_it_is(given: dict[str, Any]) -> None:
    adapter: TypeAdapter[wire.Grader] = TypeAdapter(wire.Grader)
    grader = adapter.validate_python(given)
    encoded = Graders().encode(grader)
    assert Graders().decode(encoded) == grader
    written = json.loads(json.dumps(grader_json(encoded)))
    assert written == json.loads(adapter.dump_json(grader))
    assert adapter.validate_python(written) == grader
