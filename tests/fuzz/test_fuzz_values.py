"""The encoding between the sandboxes: what is honest comes back, and nothing else does any harm."""

from __future__ import annotations

import collections
import contextlib
import json
import math
from typing import Any

import pytest
from fuzz_json import bodies, mutated, odd_json
from fuzzing import ReplayCounts, cases
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.codec import values
from proctor_service.codec.values import Malformed
from proctor_service.judge.analysis.formulas import Condition, NotDecidable
from proctor_service.judge.graders.asserts import holds, shown
from proctor_service.judge.run import understand

numbers = st.integers() | st.integers(-(2**300), 2**300) | st.floats() | st.complex_numbers()
moments = st.dates() | st.datetimes(timezones=st.none() | st.timezones()) | st.times()
exact = (
    st.decimals().filter(lambda each: not each.is_snan())
    | st.fractions()
    | st.timedeltas()
    | st.uuids()
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(st.characters(codec=None)),
    st.binary(),
    moments,
    exact,
    st.just(...),
    st.sampled_from([int, list, type, type(None), ValueError, object, property, type(...)]),
)
keys = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Every kind of container, of such parts."""
    pairs = st.dictionaries(keys, inner, max_size=4)
    lists = st.lists(inner, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        pairs,
        pairs.map(collections.OrderedDict),
        pairs.map(lambda each: collections.defaultdict(list, each)),
        st.dictionaries(keys, st.integers(), max_size=3).map(collections.Counter),
        st.sets(keys, max_size=4),
        st.builds(collections.deque, lists, st.none() | st.integers(0, 3)),
        st.binary(max_size=9).map(bytearray),
        lists.map(lambda parts: [parts, parts]),
    )


anything = st.recursive(keys, containers, max_leaves=25)


def form(value: Any) -> str:
    """The value with the types of all its parts; NaN is NaN, and sets have no order."""
    name = type(value).__name__
    if isinstance(value, dict):
        return f"{name}({[(form(key), form(each)) for key, each in value.items()]})"
    if isinstance(value, set | frozenset):
        return f"{name}({sorted(map(form, value))})"
    if isinstance(value, list | tuple | collections.deque):
        return f"{name}({[form(each) for each in value]})"
    return f"{name}({value!r})"


@cases(2000)
@given(anything)
def test_any_value_comes_back_as_it_went(tally: ReplayCounts, value: Any) -> None:
    with tally.case(value):
        line = values.dumps(values.encode(value))
        assert form(values.decode(values.loads(line))) == form(value)


HONEST = [
    values.encode(value)
    for value in (
        [1, 2.5, "x", None, True, 2**70, b"ab", 1j],
        {"a": [1, {2: (3, frozenset([4]))}], None: {5, 6}},
        (collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1], 2)),
        [collections.defaultdict(list, a=[1]), range(1, 9, 2), slice(1, None), ..., int],
        [bytearray(b"xy"), {1: 2}.keys(), {1: 2}.values(), {1: 2}.items(), NotImplemented],
        [[7]] * 2,
    )
] + [
    ["h", 0, {"type": "C", "base": ["t", 1], "truth": True}],
    ["l", ["decimal", "1.5"], ["fraction", 1, 3], ["date", 2024, 1, 2], ["uuid", "0" * 32]],
    ["l", ["timedelta", 1, 2, 3], ["timezone", ["timedelta", 0, 3600, 0], "x"], ["zone", "UTC"]],
    ["datetime", 2024, 3, 1, 2, 3, 4, 5, 0, ["timezone", ["timedelta", 0, 0, 0]]],
    [
        "l",
        ["time", 1, 2, 3, 4, 1, None],
        ["path", "PurePosixPath", "a/b"],
        ["array", "d", "00" * 8],
    ],
    ["l", ["nd", "<f8", [2], "C", "00" * 16], ["ns", "<i4", 5], ["m", 1], ["o", 2], ["p", 3]],
    ["e", ["T", "ValueError"], ["t", "x"]],
    ["l", ["n", "math", "sqrt"], ["r", 0]],
    ["l", ["so", [8, [1, -3, 0]], 1, "x"], ["fso", [16, [0, 1]], 1, 9], ["u", "eda0bd"]],
    ["l", ["nd", "|O", [2], "F", ["l", 1], ["r", 1]], ["nan"], ["npnan"]],
    ["nd", ["fields", [["a"]], ["<f8"], [0], 8, False], [1], "C", "00" * 8],
]
encodings = bodies(mutated(HONEST) | odd_json)


@cases(3500)
@given(encodings, st.booleans())
def test_whatever_is_decoded_is_a_value_or_malformed(
    tally: ReplayCounts, line: bytes, resolved: bool
) -> None:
    resolve = (lambda reference, content: content()) if resolved else None
    with tally.case(line), contextlib.suppress(Malformed):
        values.decode(values.loads(line), resolve)


@cases(1000)
@given(encodings)
def test_what_was_decoded_can_be_encoded_again(tally: ReplayCounts, line: bytes) -> None:
    with tally.case(line), contextlib.suppress(Malformed, values.ValueTooDeep):
        value = values.decode(values.loads(line))
        again = values.decode(values.encode(value))
        assert type(again) is type(value)


EXPECTED: tuple[Any, ...] = (
    1, 1.5, "x", None, True, [1, "x"], (1, 2), {1: 2}, {1, 2}, 2**70, b"ab", math.inf, 1j, [], "",
)  # fmt: skip
SYMBOLS = ("==", "!=", "is", "is not", "<", ">=")


@cases(1700)
@given(
    encodings,
    st.sampled_from(EXPECTED),
    st.sampled_from([*SYMBOLS, None]),
    st.booleans(),
)
def test_a_comparison_says_yes_no_or_why_not(
    tally: ReplayCounts, line: bytes, expected: Any, symbol: str | None, flag: bool
) -> None:
    wire = values.dumps(values.encode(expected))[:-1]
    truth = Condition("f(1)", (0,), "not" if flag else "")
    check = truth if symbol is None else Condition("f(1)", (0,), symbol, wire, flag)
    with tally.case(line):
        with contextlib.suppress(NotDecidable, Malformed):
            assert holds(check, [line]) in (True, False)
        assert isinstance(shown(line), str)


FRAMES = [
    ["loaded"], ["value", 0, ["l", 1]], ["value", 1, 5], ["done"], ["reached", "w"],
    ["syntax", "m", "t"], ["raised", "load", "E", "m", "t", ["E"]], ["exit", "load", 0],
    ["raised", 0, "E", "m", "t", ["E", "Exception"]], ["exit", 0, 3],
]  # fmt: skip


@cases(1200)
@given(
    st.lists(bodies(mutated(FRAMES)) | st.sampled_from([b'["loaded"]', b'["done"]']), max_size=5),
    st.integers(0, 3),
)
def test_what_an_interpreter_says_is_understood_or_a_forgery(
    tally: ReplayCounts, lines: list[bytes], calls: int
) -> None:
    with tally.case(lines):
        said = understand(lines, calls)
        assert len(said.answers) <= calls
        assert not (said.done and len(said.answers) != calls)


def test_the_deepest_and_the_longest_are_refused(tally: ReplayCounts) -> None:
    for line in (
        b'["l",' * 500_000, b"[" * 5_000_000, b'{"a":' * 1_000_000, b"9" * 5_000_000,
        b'["i","' + b"f" * 5_000_000 + b'"]', b'"' + b"\\u0000" * 1_000_000 + b'"',
        b'["l"' + b',["l"]' * 1_000_000 + b"]", b'["s"' + b",1" * 1_000_000 + b"]",
        b'["decimal","1e' + b"9" * 5000 + b'"]', b'["range",0,' + b"9" * 4000 + b",1]",
        json.dumps(["fraction", ["i", "f" * 60_000], ["i", "e" * 60_000]]).encode(),
    ):  # fmt: skip
        with tally.case(line[:80]), contextlib.suppress(Malformed):
            values.decode(values.loads(line))


@pytest.mark.parametrize("symbol", ["==", "<"])
def test_a_value_that_is_dear_to_compare_is_given_up_soon(tally: ReplayCounts, symbol: str) -> None:
    twice: Any = ["t", 1]
    for _ in range(60):
        twice = ["l", twice, ["r", 1]]
    line = json.dumps(twice).encode()
    check = Condition("f(1)", (0,), symbol, b'["l",1]')
    with tally.case(line), contextlib.suppress(NotDecidable, Malformed):
        holds(check, [line])
