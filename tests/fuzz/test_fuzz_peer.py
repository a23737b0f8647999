"""The conversation between the two interpreters, with one side that says anything at all."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fuzz_json import bodies, mutated
from fuzzing import Tally, cases
from proctor_service.inside.peer import Gone, Unusable
from proctor_service.inside.sides import Asking, TestSide

CLASS: list[Any] = ["h", 2, {
    "k": "class", "name": "C", "mod": "m", "bases": [], "data": ["T", "list"],
    "flags": ["__eq__", "__len__"], "own": ["append"],
}]  # fmt: skip
OBJECT = ["h", 1, {"c": CLASS, "base": ["l", 1, 2]}]
NEWS = {"k": 1}
ANSWERS = [
    ["a", 1, "v", ["t", 1, ["l", 2], {"x": 1}], NEWS],
    ["a", 1, "v", OBJECT, {**NEWS, "d": [1], "m": [2], "u": [[["m", 1], ["t", 5]]]}],
    ["a", 1, "v", ["h", 3, {"k": "generator"}], NEWS],
    ["a", 1, "x", ["e", ["T", "KeyError"], ["t", "x"], {"__notes__": ["l", "n"]}], NEWS],
    ["a", 1, "x", ["h", 4, {"c": [*CLASS[:2], {**CLASS[2], "data": None}], "x": ["t"]}], NEWS],
    ["a", 1, "v", ["t", ["o", 1], ["p", 1], ["m", 1], ["r", 0]], {**NEWS, "out": "printed"}],
]  # fmt: skip
QUESTIONS = [
    ["q", 1, "call", ["t", ["o", 1], ["t", 4], ["t"]], NEWS],
    ["q", 2, "get", ["t", ["o", 1], "__name__"], NEWS],
    ["q", 3, "len", ["t", ["m", 1]], {**NEWS, "u": [[["m", 1], ["t", 5]]]}],
    ["q", 4, "eq", ["t", ["l", 1], ["l", 1]], {**NEWS, "o": {"out": True, "in": "x", "input": 1}}],
    ["q", 5, "again", ["t", 1], NEWS],
]
lines = st.lists(bodies(mutated(ANSWERS + QUESTIONS)), min_size=1, max_size=5)


class Script:
    """The submission's end: lines that were thought out before, then nothing more."""

    def __init__(self, said: list[bytes]) -> None:
        self._said = said
        self.sent: list[object] = []

    def send(self, line: bytes) -> None:
        """What our side says is always a line of JSON."""
        assert line.endswith(b"\n")
        self.sent.append(json.loads(line))

    def receive(self) -> bytes | None:
        """The next line."""
        return self._said.pop(0) if self._said else None


@cases(1200)
@given(lines)
def test_tests_survive_whatever_a_submission_says(tally: Tally, said: list[bytes]) -> None:
    """They get a value, an exception that came over, or hear that the other side makes no sense."""
    peer = Asking(Script([*said]), TestSide())
    with tally.case(said):
        try:
            # What is shared with the submission is what its answers may change.
            found = peer.request("call", lambda x: x, ([1, 2], {"a": 1}), ())
            with contextlib.suppress(Exception, Gone):
                repr(found)
                hash(found)
        except (Unusable, Gone):
            pass
        except BaseException as error:
            came_over = "__proctor_trace__" in error.__dict__
            if not came_over:
                raise
