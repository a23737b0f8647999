"""A long JSON text is decoded in short pieces, to the value or the refusal of Python's own parser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.http import json as http_json
from proctor_service.http.json import PacedJson
from proctor_service.scheduling.pacer import Pacer

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=60,
)
SHORT = st.sampled_from([1, 4, 9, 30, 100, 1000])
EDITS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.integers(0, 2),
        st.sampled_from(["", ",", "]", "[", "{", "}", '"', ":", " ", "1", "\\", "nul", "\n"]),
    ),
    max_size=3,
)


class Recorder(json.JSONDecoder):
    """A decoder that notes the length of each text with an array or object, and its failures."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []
        self.failures = 0

    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        if s[idx : idx + 1] in ("[", "{"):
            self.lengths.append(len(s) - idx)
        try:
            return super().raw_decode(s, idx)
        except ValueError:
            self.failures += 1
            raise


def array(item: str, count: int, between: str = ",") -> str:
    return f"[{between.join([item] * count)}]"


def paced(text: str, short: int, decoder: json.JSONDecoder | None = None) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_json, "SHORT_CHARACTERS", short)
        return asyncio.run(PacedJson(text, decoder).decode())


def outcome(decode: Callable[[], Any]) -> str:
    try:
        return repr(decode())
    except (ValueError, RecursionError) as error:
        return type(error).__name__


@given(VALUES, st.sampled_from([None, 0, 3]), SHORT, EDITS)
def test_the_outcome_is_that_of_pythons_parser(
    value: Any, indent: int | None, short: int, edits: list[tuple[int, int, str]]
) -> None:
    text = json.dumps(value, indent=indent)
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    assert outcome(lambda: paced(text, short)) == outcome(lambda: json.loads(text)), text


@pytest.mark.parametrize("short", [1, 4, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "", " ", "[1 2]", "[[1] [2]]", '{"a" 1}', '{"a": 1 "b": 2}', "{a: 1}", "[[1], [2], {3}]", "[1",
        '{"a": 1', "[[1], ", "[1]x", '{"a": [1]} []', "[1, nul]", '{"a": }', '[["a", "b\nc"]]', "[1}",
    ],
)  # fmt: skip
def test_an_error_names_the_place(text: str, short: int) -> None:
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as found:
        paced(text, short)
    assert (found.value.msg, found.value.pos) == (expected.value.msg, expected.value.pos)


@pytest.mark.parametrize(
    "text",
    [
        array("7", 9000, ", "),
        array("[1,[2,[3]]]", 9000),
        array('{"a":[{"b":[]}]}', 9000),
        array('{"a": 1, "b": "]},"}', 9000),
        json.dumps([{"a": [1, 2]}] * 2000, indent=2),
        json.dumps({f"key {number}": [number] for number in range(9000)}),
        json.dumps({"a": {"b": {"c": {"d": [{"e": [["x", 1.5, None]] * 50}] * 90}}}}),
        f"{'[' * 900}{'1,' * 9000}1{']' * 900}",
        array("[" * 300 + "]" * 300, 90),
        json.dumps(["x" * 500] * 200),
    ],
    ids=lambda text: text[:40],
)
def test_no_long_piece_is_decoded_at_once(text: str) -> None:
    recorder = Recorder()
    assert paced(text, 1000, recorder) == json.loads(text)
    assert max(recorder.lengths) <= 1000 + len("[null]")
    assert recorder.failures <= 8 * len(text) / 1000 + 10


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 5000 + "]" * 5000])
def test_a_text_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises((RecursionError, ValueError)):
        paced(text, 1000)


def test_other_tasks_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def both() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await PacedJson(array("[1, [2]]", 100_000)).decode()
        counting.cancel()
        return turns

    monkeypatch.setattr(http_json, "Pacer", lambda: Pacer(0.0))
    assert asyncio.run(both()) > 10
