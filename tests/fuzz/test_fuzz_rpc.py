"""The connection between the two interpreters, with a submission's side that says anything at all."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from fuzz_json import bodies, mutated
from fuzzing import ReplayCounts, cases
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.guest.rpc.connection import Gone, Unusable
from proctor_service.guest.rpc.environment import Environment
from proctor_service.guest.rpc.exported_classes import TRACE
from proctor_service.guest.rpc.handles import Refused, own_view
from proctor_service.guest.rpc.test_endpoint import TestEndpoint

CLASS = {
    "name": "C", "module": "solution", "text": "solution.C", "bases": [["builtins", "object"]],
    "mro": [["builtins", "object"]], "special": ["__eq__", "__len__", "__call__"],
}  # fmt: skip
FAILURE = {
    **CLASS,
    "name": "E",
    "bases": [["builtins", "ValueError"]],
    "mro": [7, ["builtins", "KeyError"]],
}
NEWS: dict[str, Any] = {"k": 1, "s": [], "u": [], "d": [], "m": [], "c": [[2, CLASS], [3, FAILURE]]}
ANSWERS = [
    ["a", 1, "v", ["t", 1, ["l", 2], {"x": 1}], {**NEWS, "s": [1]}],
    ["a", 1, "v", ["h", 1, {"k": "object", "c": 2}, 0], {**NEWS, "d": [1], "m": [2]}],
    ["a", 1, "v", ["h", 4, {"k": "content", "c": 2, "base": ["l", 1, 2]}], NEWS],
    ["a", 1, "v", ["h", 4, {"k": "content", "c": 2, "as": "dict", "base": ["t", ["t", 1, 2]]}], NEWS],
    ["a", 1, "v", ["h", 2, {"k": "class"}], {**NEWS, "u": [[2, ["t", 5]]]}],
    ["a", 1, "v", ["h", 3, {"k": "class"}], {**NEWS, "u": [[4, ["t", "k", 5]]]}],
    ["a", 1, "v", ["h", 5, {"k": "generator"}], NEWS],
    ["a", 1, "v", ["n", "collections", "deque"], NEWS],
    ["a", 1, "x", ["e", 0, ["builtins", "KeyError"], "'x'", ["t", "x"], {"__notes__": ["l", "n"]}], NEWS],
    ["a", 1, "x", ["e", 6, 3, "text", ["t"], {"code": 4}], {**NEWS, "t": [[3, "f"]]}],
    ["a", 1, "x", ["e", 0, ["builtins", "SystemExit"], "", ["t", 0], {"code": 0}], NEWS],
    ["a", 1, "v", ["t", ["o", 1], ["m", 2], ["r", 0]], {**NEWS, "o": {"out": "printed", "rest": ""}}],
]  # fmt: skip
REQUESTS = [
    ["q", 1, "call", ["t", ["o", 1], ["t", 4], ["t"]], NEWS],
    ["q", 2, "get", ["t", ["o", 1], "__name__"], NEWS],
    ["q", 3, "len", ["t", ["m", 2]], {**NEWS, "u": [[2, ["t", 5]]]}],
    ["q", 4, "eq", ["t", ["o", 1], ["l", 1]], {**NEWS, "o": {"out": True, "in": "x"}}],
    ["q", 5, "setitem", ["t", ["o", 1], 1, 2], NEWS],
]
lines = st.lists(bodies(mutated(ANSWERS + REQUESTS)), min_size=1, max_size=5)


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
def test_tests_survive_whatever_a_submission_says(tally: ReplayCounts, said: list[bytes]) -> None:
    """They get a value, an exception that came over, or hear that the other side makes no sense."""
    side = TestEndpoint(Script([*said]), Environment())
    with tally.case(said):
        try:
            # What is shared with the submission is what its answers may change.
            side.connection.held.begin()
            reference = side.connection.references.get(9)
            found = side.ask("call", reference, ([1, 2], {"a": 1}, lambda x: x), ())
            side.connection.held.end()
            with contextlib.suppress(Exception, Gone):
                hash(found)
                repr(own_view(found))
                list(found)
        except (Unusable, Gone, Refused):
            pass
        except BaseException as error:
            if TRACE not in error.__dict__:
                raise
