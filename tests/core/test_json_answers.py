"""When an encoded answer is an expected JSON value, also where the encoding is forged."""

from __future__ import annotations

import array
import collections
import enum
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_service.codec import values
from proctor_service.judge.graders.calls import Equality
from proctor_service.judge.text import Closeness

Kind = Literal["json", "python"]


class Point(NamedTuple):
    """A tuple of a class."""

    x: int
    y: int


class Color(enum.IntEnum):
    """An integer of a class."""

    RED = 1


class Names(dict[str, int]):
    """A dict of a class."""


def answers(value: Any, expected: Any, tolerance: float = 0.0, kind: Kind = "json") -> bool:
    encoder = values.Encoder()
    encoder.plain_arrays = kind == "json"
    equality = Equality(kind, Closeness.of(tolerance))
    try:
        return equality.is_answer(values.dumps(encoder.encode(value)), expected)
    except values.ValueTooLarge:
        return False  # the submission's own sandbox refuses to send it


def _shared(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = [leaf, leaf]
    return leaf


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _counted() -> Any:
    inner = [1, 2]
    return [collections.defaultdict(list, {"a": inner}), inner, inner]


_ROW = [1, 2]
SAME: list[tuple[Any, Any]] = [
    ((1, (2, [3])), [1, [2, [3]]]),
    (Point(1, 2), [1, 2]),
    (Color.RED, 1),
    ({Color.RED: Color.RED}, {"1": 1}),
    (Names(a=1), {"a": 1}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.defaultdict(list, {"a": []}), {"a": []}),
    ([_ROW, _ROW, (_ROW,)], [[1, 2], [1, 2], [[1, 2]]]),
    (_counted(), [{"a": [1, 2]}, [1, 2], [1, 2]]),
    (array.array("i", [1, 2]), [1, 2]),
    (array.array("d", [1.5]), [1.5]),
    (array.array("i"), []),
    ({True: 1, None: 2, 1.5: 3, 2: 4}, {"true": 1, "null": 2, "1.5": 3, "2": 4}),
    ({float("inf"): 1, float("-inf"): 2}, {"Infinity": 1, "-Infinity": 2}),
    ({float("nan"): 1}, {"NaN": 1}),
    ({1e300: 1}, {"1e+300": 1}),
    ({2**70: 1}, {str(2**70): 1}),
    (2**70, 2**70),
    (Decimal("0.5"), 0.5),
    (Fraction(1, 2), 0.5),
    (True, 1),
    (1.0, 1),
    ("\ud800", "\ud800"),
    ([{"a": [None]}] * 3, [{"a": [None]}] * 3),
    (numpy.array([1, 2, 3]), [1, 2, 3]),
    (numpy.array([[1.5, 2], [3, 4]]), [[1.5, 2], [3, 4]]),
    (numpy.arange(24).reshape(2, 3, 4), numpy.arange(24).reshape(2, 3, 4).tolist()),
    (numpy.arange(6).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]]),
    (numpy.array(5), 5),
    (numpy.zeros((0, 3)), []),
    (numpy.zeros((3, 0)), [[], [], []]),
    (numpy.array([True, False]), [True, False]),
    (numpy.array(["a", "b"]), ["a", "b"]),
    (numpy.array([2**63], dtype="uint64"), [2**63]),
    (numpy.int64(3), 3),
    (numpy.float64(1.5), 1.5),
    (numpy.bool_(True), True),
    ([numpy.int64(1), numpy.array([2])], [1, [2]]),
    ({"a": numpy.array([1]), numpy.int64(1): 2}, {"a": [1], "1": 2}),
    (numpy.array([[1], [2, 3]], dtype=object), [[1], [2, 3]]),
    (numpy.array([None, "a"], dtype=object), [None, "a"]),
    ([numpy.array([1]), _ROW, _ROW], [[1], [1, 2], [1, 2]]),
    ([(numpy.array([1]),), {"a": _ROW}, _ROW], [[[1]], {"a": [1, 2]}, [1, 2]]),
]
DIFFERENT: list[tuple[Any, Any]] = [
    ({1: "b", "1": "a"}, {"1": "a"}),
    ({"1": "a", 1: "b"}, {"1": "a"}),
    ({"1": "a", 1: "a"}, {"1": "a"}),
    ({None: 1, "null": 1}, {"null": 1}),
    ({True: 1, "true": 1}, {"true": 1}),
    ({1.5: 1, "1.5": 1}, {"1.5": 1}),
    ({1: "b", "1": "a"}, {"1": "a", "2": "b"}),
    ({(1,): 1}, {"1": 1}),
    ({b"1": 1}, {"1": 1}),
    ({1.0: 1}, {"1": 1}),
    ({10**400: 1}, {"1": 1}),
    ({1, 2}, [1, 2]),
    (range(2), [0, 1]),
    (collections.deque([1]), [1]),
    ({"a": 1}.keys(), ["a"]),
    (b"a", "a"),
    (bytearray(b"a"), [97]),
    ("ab", ["a", "b"]),
    ([], {}),
    ({}, []),
    (None, []),
    ([], None),
    (object(), None),
    (len, None),
    (2**4_000_000, 5),
    (float("nan"), float("nan")),
    (_shared(23, 1), [1, 1]),
    (_shared(23, 1), 5),
    (_endless(), [[]]),
    (numpy.array([1, 2]), [1, 3]),
    (numpy.array([1, 2]), [[1, 2]]),
    (numpy.array([[1, 2]]), [1, 2]),
    (numpy.array([1, 2]), [1]),
    (numpy.array([1]), 1),
    (numpy.array(1), [1]),
    (numpy.array([float("nan")]), [float("nan")]),
    (numpy.array([1 + 2j]), [1]),
    (numpy.array(["2020-01-01"], dtype="datetime64[D]"), ["2020-01-01"]),
    (numpy.array([[1], [2, 3]], dtype=object), [[1], [2, 4]]),
    (array.array("i", [1]), [2]),
]


@pytest.mark.parametrize("case", SAME, ids=lambda case: str(case[1])[:40])
def test_same(case: tuple[Any, Any]) -> None:
    value, expected = case
    assert answers(value, expected)
    assert answers(value, expected, 1e-9)
    assert not answers([value], expected)
    assert not answers(value, [expected])


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: str(case[1])[:40])
def test_different(case: tuple[Any, Any]) -> None:
    assert not answers(*case)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ([1, [2.0, None]], [1, [2, None]], True),
        ((1, 2), [1, 2], False),
        ([(1, 2)], [[1, 2]], False),
        ({"a": 1}, {"a": 1}, True),
        ({1: 1}, {"1": 1}, False),
        ({"a": (1,)}, {"a": [1]}, False),
        (collections.OrderedDict(a=1), {"a": 1}, True),
        (collections.Counter("aab"), {"a": 2, "b": 1}, True),
        (Point(1, 2), [1, 2], False),
        (array.array("i", [1]), [1], False),
        (numpy.array([1, 2]), [1, 2], False),
        (numpy.int64(3), 3, True),
        (numpy.float64(0.5), 0.5, True),
        (True, 1, True),
        ("1", 1, False),
        (1, "1", False),
        ({1, 2}, [1, 2], False),
        (10**10_000, 10**10_000, True),
        (10**10_000, 10**10_000 + 1, False),
        ("9" * 10_000, 10**10_000 - 1, False),
    ],
    ids=lambda value: ascii(type(value)),
)
def test_python_equality(value: Any, expected: Any, same: bool) -> None:
    assert answers(value, expected, kind="python") is same
    assert answers(value, expected, 1e-9, kind="python") is same


@pytest.mark.parametrize(
    ("absolute", "relative", "got", "wanted", "same"),
    [
        (0.5, 0, 10.5, 10, True),
        (0.5, 0, 1000000.75, 1000000.0, False),
        (0, 0.01, 1009.0, 1000.0, True),
        (0, 0.01, 0.001, 0.0, False),
        (1.0, 0.01, 1011.5, 1000.0, False),
        (1.0, 0.01, 1010.5, 1000.0, True),
        (2, 0, 3, 5, False),
        (2, 0, 3.0, 5, True),
    ],
)
def test_absolute_and_relative_tolerances_add_up(
    absolute: float, relative: float, got: float, wanted: float, same: bool
) -> None:
    equality = Equality(closeness=Closeness(absolute, relative))
    line = values.dumps(values.encode([got]))
    assert equality.is_answer(line, [wanted]) is same


def test_a_tolerance_holds_in_arrays_too() -> None:
    near = numpy.array([[0.1 + 0.2, 1.0]])
    assert answers(near, [[0.3, 1]], 1e-9)
    assert not answers(near, [[0.3, 1]])
    assert not answers(near, [[0.4, 1]], 1e-9)
    assert answers(array.array("d", [0.1 + 0.2]), [0.3], 1e-9)
    assert answers(numpy.float32(0.1), 0.1, 1e-6)
    assert not answers(numpy.array([1, 2]), [1, 3], 1.0)  # integers are compared exactly
    assert answers(numpy.array([float("nan")]), [float("nan")], 1e-9)


@pytest.mark.parametrize(
    ("value", "expected", "tolerance", "same"),
    [
        (1, 2, 1.0, False),
        (1.0000001, 1, 1e-6, True),
        (1, 1.0000001, 1e-6, True),
        (1.1, 1.0, 1e-6, False),
        (float("nan"), 1.0, 1.0, False),
        (float("inf"), float("inf"), 1.0, True),
        (float("inf"), 1e308, 1.0, False),
        (10**400, 1.0, 1.0, False),
        ("1.0", 1.0, 1.0, False),
        (None, 0, 1.0, False),
        ([1.0, [2.0]], [1.0, [2.0000001]], 1e-6, True),
        ({"a": 1.0}, {"a": 1.0000001}, 1e-6, True),
        (object(), 1, 1.0, False),
        (Fraction(1, 3), 0.33333333, 1e-6, True),
        (Decimal("0.33333333"), 0.33333333, 1e-6, True),
        (Decimal("0.334"), 0.33333333, 1e-6, False),
        (Decimal("sNaN"), 1.0, 1.0, False),
        (Fraction(10**400), 1.0, 1.0, False),
        (1 + 0j, 1.0, 1e-6, True),
        (numpy.int64(2), 1, 1.0, False),
    ],
)
def test_a_tolerance_is_for_numbers_that_are_not_both_integers(
    value: Any, expected: Any, tolerance: float, same: bool
) -> None:
    assert answers(value, expected, tolerance) is same


FORGED = [
    b"",
    b"{",
    b"{}",
    b"[]",
    b'["r",0]',
    b'["l",["r",-1]]',
    b'["l",["r",7]]',
    b'["h",0,{"base":["r",0]}]',
    b'["h",0,{"base":["h",0,{"base":["h",0,{"base":["r",0]}]}]}]',
    b'["d",["a"]]',
    b'["d",1]',
    b'["d",[["l"],1]]',
    b'["nd","<i8",[2],["l",1]]',
    b'["nd","<i8",[-1,-1],["l",1]]',
    b'["nd","<i8",["a"],["l",1]]',
    b'["nd","<i8",[true],["l",1]]',
    b'["nd","<i8",[1],["t",1]]',
    b'["nd","<i8",[1],["r",0]]',
    b'["nd","<i8",1,["l",1]]',
    b'["nd"]',
    b'["nd","<i8",[],["nd","<i8",[],["l",1]]]',
    b'["ns"]',
    b'["i","x"]',
    b'["i"]',
    b'["i",5]',
    b'["decimal",["l"]]',
    b'["decimal","sNaN"]',
    b'["fraction",1,0]',
    b'["fraction",["s",["l"]],1]',
    b'["c","a",1.0]',
    b'["nonsense",1]',
    b'["m",1]',
    b"[[1]]",
    b"[1]",
    b'["l",{"a":1}]',
    b'{"a":1}',
    b'["nd","O",[' + b"1," * 64 + b'1],["l",1]]',
    b'["nd","O",[' + b"9" * 4000 + b'],["l",1]]',
    b'["nd","O",[],["l",' * 150 + b"2" + b"]]" * 150,
    b'["h",0,{"base":' * 150 + b"2" + b"}]" * 150,
    b"[" * 100_000,
]


@pytest.mark.parametrize("expected", [1, 1.5, [1], [], {}, {"a": 1}, None, "a", [{}], [[1]]])
@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_a_forged_encoding_is_no_answer(expected: Any, tolerance: float) -> None:
    for line in FORGED:
        assert not Equality("json", Closeness.of(tolerance)).is_answer(line, expected), line[:80]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_every_json_value_answers_for_itself(value: Any) -> None:
    assert answers(value, value)
    assert answers([value, value, (value,)], [value, value, [value]])
    assert not answers([value], value)


@given(st.recursive(st.integers(0, 3) | st.sampled_from(["l", "r", "d", "h", "nd", "t"]),
                    lambda inner: st.lists(inner, max_size=4), max_leaves=12))  # fmt: skip
def test_any_json_as_an_encoding_has_an_end(wire: Any) -> None:
    line = json.dumps(wire).encode()
    wanted: tuple[Any, ...] = (1, [1], [[]], {"a": 1})
    for expected in wanted:
        assert Equality().is_answer(line, expected) in (True, False)


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        ([4], [4], True),
        (4, [4], True),
        ((1, 2), [[1, 2]], True),
        (4, [[4]], False),
        (1, [1, 2], False),
        ({1: 2}, {"1": 2}, True),
    ],
)
def test_apps_takes_a_list_of_one_item_for_the_item(value: Any, expected: Any, same: bool) -> None:
    line = values.dumps(values.encode(value))
    assert Equality("apps").is_answer(line, expected) is same
