"""Texts that are taken apart in the service: completions, packed tests, labels."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import pickle
import zlib
from typing import Any, Literal

from fuzz_json import bodies, mutated, odd_json
from fuzz_routes import LABELS
from fuzzing import ReplayCounts, cases
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.errors import InvalidRequest
from proctor_service.features.compat.open_instruct import unpacked
from proctor_service.features.compat.slime import submission_of_label
from proctor_service.features.languages.texts import texts_of
from proctor_service.http.json import PacedJson
from proctor_service.judge.extract import extract

PACKED: list[Any] = [
    ["assert f(1) == 2", "assert f(2)"],
    [{"input": "1\n", "output": "2\n"}, {"input": ["1"], "output": ["2"]}],
    [("a", 1.5, None, True, 2**70, -1)] * 3,
]
LONG = [
    {
        "submissions": [{"completion": "x", "grader": {"cases": [{"a": 1}]}}, 5],
        "grader": {"cases": []},
    },
    {"tasks": [{"grader": {"tasks": {"cases": [[]]}}}], "cases": [1, 2.5, None], "job": "j"},
]
PIECES = (
    "```python\n", "```", "~~~", "```py", "\n", "<answer>", "</answer>", "<code>", "</code>", "def f():",
    "    return 1\n", "x = 1", "'''", "\0", "\ud800", "\r", "`", "````", "<", ">", " ", "é", "#", "\\",
)  # fmt: skip
completions = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(codec=None), max_size=5), max_size=30
).map("".join)


@st.composite
def pickles(draw: Any) -> bytes:
    """A pickle of plain data in any protocol, with some bytes changed."""
    data = bytearray(pickle.dumps(draw(st.sampled_from(PACKED)), draw(st.integers(0, 5))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@cases(1000)
@given(pickles(), st.booleans())
def test_packed_tests_are_a_list_or_refused(tally: ReplayCounts, data: bytes, whole: bool) -> None:
    packed = zlib.compress(data) if whole else data
    with tally.case(data), contextlib.suppress(InvalidRequest):
        assert isinstance(unpacked(base64.b64encode(packed).decode()), list)


@cases(800)
@given(mutated(LABELS) | odd_json)
def test_a_label_is_a_grader_or_refused(tally: ReplayCounts, label: Any) -> None:
    with tally.case(label), contextlib.suppress(InvalidRequest):
        assert submission_of_label(label, "x = 1", None).grader is not None


@cases(1000)
@given(
    completions,
    st.sampled_from(("auto", "xml", "fence", "none")),
    st.sampled_from(("python", "cpp", "bash", "javascript")),
)
def test_a_completion_has_code_or_none(
    tally: ReplayCounts, text: str, how: Literal["auto", "xml", "fence", "none"], language: str
) -> None:
    with tally.case(text):
        found = extract(text, how, texts_of(language))
        assert found is None or isinstance(found, str)


@cases(800)
@given(bodies(mutated(LONG)))
def test_a_long_body_in_slices_is_what_json_says(tally: ReplayCounts, body: bytes) -> None:
    with tally.case(body), contextlib.suppress(UnicodeDecodeError):
        text = body.decode()
        assert _sliced(text) == _at_once(text)


def _at_once(text: str) -> str:
    try:
        return repr(json.loads(text))
    except (ValueError, RecursionError):
        return "none"


def _sliced(text: str) -> str:
    try:
        return repr(asyncio.run(PacedJson(text).decode()))
    except (ValueError, RecursionError):
        return "none"
