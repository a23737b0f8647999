"""What a submission gains by lying to tests that run apart from it: nothing (`attacks_separated.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Service
from judging import ask
from optional_programs import skip_without

_FILE = Path(__file__).with_name("attacks_separated.toml")
_CHANNEL = """
import gc
def of(name): return next(each for each in gc.get_objects() if type(each).__name__ == name)
def conversation(): return of('Conversation')
def line(text): of('Channel').send(text + b'\\n')
"""
_FORGED = "def f(n): line(b'[\"answer\",1,%s,{}]')"


@dataclass(frozen=True)
class Case:
    """A program for the tests of a grader, and whether it is right."""

    name: str
    grader: dict[str, Any]
    program: str
    right: bool


def cases() -> Iterator[Case]:
    """The right program and the wrong ones of each suite."""
    for suite in tomllib.loads(_FILE.read_text())["suite"]:
        name = suite["name"]
        asserts = {"kind": "asserts", "setup": suite.get("setup", ""), "integrity": "separated"}
        grader = {**asserts, "tests": suite["tests"]}
        yield Case(name, grader, suite["right"], right=True)
        for text in (*suite["wrong"], *(_FORGED % wire for wire in suite.get("wires", ()))):
            reaches_channel = "line(" in text or "conversation(" in text
            program = _CHANNEL + text if reaches_channel else text
            yield Case(name, grader, program, right=False)


CASES = [*cases()]


@pytest.mark.parametrize("start", range(0, len(CASES), 60))
def test_a_lie_gains_nothing(service: Service, start: int) -> None:
    """Each wrong program gets 0.0, and none an error that spares it."""
    skip_without("numpy")
    part = CASES[start : start + 60]
    results = ask(service, *({"completion": each.program, "grader": each.grader} for each in part))
    told = [
        (case.name, case.program, result["reward"], result["message"], result["error"])
        for case, result in zip(part, results, strict=True)
        if (result["reward"], result["integrity"]) != (1.0 if case.right else 0.0, "separated")
    ]
    assert told == []
