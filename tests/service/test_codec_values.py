"""The encoding in which values leave a sandbox: what survives, what is refused, and what is never called."""

import array
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor_service.codec import values
from proctor_service.codec.limits import NO_BASE
from proctor_service.codec.safe_repr import show
from proctor_service.codec.values import Malformed, ValueTooDeep, ValueTooLarge


def across(value: Any) -> Any:
    return values.decode(values.loads(values.dumps(values.encode(value))))


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.just(...)
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
anything = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.sets(hashables, max_size=3)
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(left) is not type(right) or left != right:
        return False
    if isinstance(left, list | tuple | collections.deque):
        return all(map(same, left, right))
    if isinstance(left, dict):
        return same([*left.items()], [*right.items()])
    return True


@settings(max_examples=150, deadline=None)
@given(anything)
def test_plain_values_come_back_as_they_went(value: Any) -> None:
    assert same(across(value), value)


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.Counter("aab"),
        collections.deque([1, [2]], maxlen=3),
        bytearray(b"xy"),
        range(1, 10, 3),
        range(2**70),
        slice(1, None, 2),
        NotImplemented,
        int,
        ValueError,
        type(None),
        array.array("d", [1.5, -0.0]),
        pathlib.PurePosixPath("a/b"),
        uuid.UUID(int=7),
        decimal.Decimal("-1.500"),
        decimal.Decimal("Infinity"),
        fractions.Fraction(-1, 3),
        datetime.datetime(2024, 3, 1, 2, 3, 4, 5, datetime.UTC, fold=1),
        datetime.datetime(
            2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5), "here")
        ),
        datetime.time(1, 2, fold=1),
        "\ud800",
        -0.0,
        2**63,
        -(2**63),
        1 << 20_000,
        {1: "a", (2, 3): "b", None: "c", 1.5: 2},
    ],
    ids=itertools.count(),
)
def test_other_values_come_back_as_they_went(value: Any) -> None:
    back = across(value)
    assert same(back, value)


def test_the_unequal_and_the_factories_survive() -> None:
    assert math.isnan(across(math.nan))
    assert across(collections.defaultdict(list, a=[1]))["new"] == []
    assert [*across({1: 2}.values())] == [2]
    assert across({1: [2]}.items()) == {1: [2]}.items()
    assert across({1: 2}.keys()) == {1}


def test_shared_and_circular_containers_stay_so() -> None:
    inner: list[Any] = [1]
    left, right = across([inner, inner])
    assert left is right
    inner.append(inner)
    back = across(inner)
    assert back[1] is back
    tree: Any = [1]
    for _ in range(18):
        tree = [tree, tree]
    assert len(values.dumps(values.encode(tree))) < 500


class Person(collections.namedtuple("Person", "name age")):
    """A tuple by another name."""


class Colour(enum.IntEnum):
    RED = 3


class Liar(str):
    """A string that says what one wants to hear."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("asked")

    __hash__ = str.__hash__
    __class__ = int  # type: ignore[assignment]

    def __len__(self) -> int:
        raise RuntimeError("asked")

    __str__ = __repr__ = __iter__ = __len__  # type: ignore[assignment]


class LyingList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([4, 5])

    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> Any:
        return 4


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def mro(cls) -> list[type]:
        return [cls, *super().mro()[1:]]


class Odd(metaclass=Meta):
    def __bool__(self) -> bool:
        raise RuntimeError("asked")


def test_an_instance_of_a_subclass_is_the_content_of_its_base() -> None:
    assert same(across([Person("a", 1)]), [("a", 1)])
    assert same(across(Colour.RED), 3)
    assert same(across(Liar("x")), "x")
    assert same(across(LyingList([9])), [9])
    wire = values.encode(Person("a", 1))
    assert wire == ["h", 0, {"type": f"{__name__}.Person", "base": ["t", "a", 1]}]


def test_objects_are_only_named() -> None:
    opaque = across(object())
    assert isinstance(opaque, values.Opaque)
    assert opaque.truth is True
    odd = across(Odd())
    assert odd.type_name.endswith("Odd")
    assert odd.truth is None
    assert odd != across(Odd())
    assert across(lambda: 1).type_name == "function"


def test_a_class_that_equals_any_other_is_none_of_them() -> None:
    assert values.encode(np.float64(1.5)) == ["ns", "<f8", 1.5]
    assert values.encode(Odd()) == ["h", 0, {"type": f"{__name__}.Odd"}]


def test_a_caller_makes_and_resolves_handles() -> None:
    things: list[Any] = []

    def make(value: Any) -> Any:
        things.append(value)
        return ["h", len(things) - 1, {}]

    marker, person = object(), Person("a", 1)
    wire = values.loads(values.dumps(values.encode([marker, person, marker], make)))
    bases = []

    def resolve(reference: list[Any], content: Any) -> Any:
        bases.append(content())
        return things[reference[1]]

    back = values.decode(wire, resolve)
    assert back[0] is marker
    assert back[1] is person
    assert back[2] is marker
    assert bases == [NO_BASE, ("a", 1)]


def test_too_much_is_refused() -> None:
    deep: Any = 1
    for _ in range(1001):
        deep = [deep]
    with pytest.raises(ValueTooDeep):
        values.encode(deep)
    with pytest.raises(ValueTooLarge):
        values.encode(["x" * 1_000_000] * 70)
    with pytest.raises(ValueTooLarge):
        values.encode([0] * 2_200_000)
    circular: Any = ([],)
    circular[0].append(circular)
    with pytest.raises(ValueTooDeep):
        values.encode(circular)


def depth(value: Any) -> int:
    """How many containers lie within each other, each the only part of the next."""
    levels = 0
    while value != 1 if isinstance(value, int) else True:
        value = next(iter(value.values() if isinstance(value, dict) else value))
        levels += 1
    return levels


def test_the_deepest_value_that_is_encoded_is_decoded() -> None:
    for make in (
        lambda x: [x],
        lambda x: {1: x},
        lambda x: (x,),
        lambda x: collections.deque([x]),
        lambda x: collections.OrderedDict({1: x}),
        lambda x: frozenset([x]),
    ):
        value: Any = 1
        for _ in range(1000):
            value = make(value)
        assert depth(across(value)) == 1000


BROKEN = [
    b"",
    b"nonsense",
    b"\xff\xfe",
    b"{}",
    b"[]",
    b"[[]]",
    b"[5]",
    b'["zz"]',
    b'["l",["zz"]]',
    b'["r",0]',
    b'["r","x"]',
    b'["l",["r",5]]',
    b'["t",["r",0]]',
    b'["m",1]',
    b'["o",1]',
    b'["n","os","system"]',
    b'["e",["T","ValueError"],["t"]]',
    b'["h"]',
    b'["h",0,5]',
    b'["h",0,{"base":["zz"]}]',
    b'["i",5]',
    b'["i","zz"]',
    b'["i"]',
    b'["b","0"]',
    b'["b",["l"]]',
    b'["d",5]',
    b'["d",1]',
    b'["d",["l"],1]',
    b'["s",["l"]]',
    b'["so",[8,[0]],1,2]',
    b'["so",[8,[0,0]],1,2]',
    b'["so",[9,[0,1]],1,2]',
    b'["so",[1073741824,[0,1]],1,2]',
    b'["so",[8,[0,1,-9]],1,2]',
    b'["so",[8,["x",1]],1,2]',
    b'["so",5,1,2]',
    b'["fso",[8,[0]],1,2]',
    b'["u","ff"]',
    b'["u",5]',
    b'["s",["l"]]',
    b'["fs",["d"]]',
    b'["c","a",1]',
    b'["c",1]',
    b'["range",1,2,0]',
    b'["range","a",2,1]',
    b'["range",1]',
    b'["slice",1]',
    b'["dq",-1]',
    b'["dq","x"]',
    b'["T","eval"]',
    b'["T",["l"]]',
    b'["decimal","1e9999999999"]',
    b'["decimal","abc"]',
    b'["decimal",5]',
    b'["fraction",1,0]',
    b'["fraction","a",1]',
    b'["date",1,2,3,4]',
    b'["date",99999,1,1]',
    b'["datetime",1]',
    b'["datetime",2024,1,1,0,0,0,0,0,5]',
    b'["time",25,0,0,0,0,null]',
    b'["timedelta",1e300,0,0]',
    b'["timezone",5]',
    b'["zone","../../etc/passwd"]',
    b'["zone","No/Where"]',
    b'["uuid","x"]',
    b'["path","Path","x"]',
    b'["array","q","x"]',
    b'["array","zz",1]',
    b'["nd","<f8",[2],{}]',
    b'["l",{"a":1}]',
    b"1" * 5000,
    b'["l",' * 3000 + b"1" + b"]" * 3000,
    b"[" * 100_000,
]


@pytest.mark.parametrize("line", BROKEN, ids=itertools.count())
def test_anything_else_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        values.decode(values.loads(line))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.tuples(
            st.sampled_from(
                [
                    "l",
                    "t",
                    "s",
                    "fs",
                    "d",
                    "i",
                    "b",
                    "ba",
                    "c",
                    "od",
                    "dd",
                    "cn",
                    "dq",
                    "dk",
                    "dv",
                    "di",
                    "range",
                    "slice",
                    "T",
                    "r",
                    "m",
                    "h",
                    "n",
                    "o",
                    "e",
                    "p",
                    "ni",
                    "...",
                    "decimal",
                    "fraction",
                    "date",
                    "datetime",
                    "time",
                    "timedelta",
                    "timezone",
                    "zone",
                    "uuid",
                    "path",
                    "array",
                ]
            ),
            inner,
            inner,
        ).map(list)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(json_values)
def test_no_input_raises_anything_else(wire: Any) -> None:
    for resolve in (None, lambda reference, content: content()):
        with contextlib.suppress(Malformed):
            values.decode(json.loads(json.dumps(wire)), resolve)


def test_hashes_that_cost_too_much_are_refused() -> None:
    modulus = (1 << 61) - 1
    colliding = ["s", *[["i", hex(k * modulus)] for k in range(1, 20_000)]]
    with pytest.raises(Malformed, match="hashes"):
        values.decode(colliding)


def test_what_stands_for_too_much_is_refused_before_it_is_built_or_hashed() -> None:
    doubling: Any = (1,)
    for _ in range(23):
        doubling = (doubling, doubling)
    for value in ([doubling], {1: doubling}, doubling):
        with pytest.raises(ValueTooLarge):
            values.encode(value)
    wire = shared_chain(80)
    many = ["s", *[["t", index, ["r", 1]] for index in range(190)]]
    for forged in (["s", wire], ["d", wire, 1], ["l", wire], ["l", shared_chain(17), many]):
        with pytest.raises(Malformed, match="large"):
            values.decode(forged)


def shared_chain(length: int) -> Any:
    """A tuple that holds the next one twice, and so on: as a forger would write it."""
    wire: Any = ["t", 0]
    for number in range(length, 0, -1):
        wire = ["t", wire, ["r", number + 1]]
    return wire


def test_a_value_that_contains_itself_crosses() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    assert values.decode(values.encode([inner, inner]))[1][1][1][0] == 1


def test_a_large_honest_set_is_not() -> None:
    assert across(set(range(50_000))) == set(range(50_000))
    assert len(across({float(n): n for n in range(20_000)})) == 20_000
    assert across([dict.fromkeys("ab")] * 3000)[0] == dict.fromkeys("ab")


@pytest.mark.parametrize(
    "value",
    [
        "\ud83d\ude00",
        "a\udc00\ud800b",
        "\U0001f600",
        {True: "a", 2: "b"},
        {False, 1},
        decimal.Decimal("-0.0"),
        decimal.Decimal("1E+500000"),
        int("1" * 4000) ** 9,
        slice((1,), [2], None),
        {"x": {}.keys(), "y": slice(range(3))},
    ],
    ids=itertools.count(),
)
def test_edges_come_back_as_they_went(value: Any) -> None:
    back = across(value)
    assert repr(type(back)) == repr(type(value))
    if isinstance(value, int):
        assert back == value
    else:
        assert repr(back) == repr(value)
    if isinstance(value, str):
        assert [*back] == [*value]


def test_decimals_that_are_no_numbers_cross_and_absurd_ones_are_too_large() -> None:
    assert repr(across(decimal.Decimal("-sNaN12"))) == "Decimal('-sNaN12')"
    for value in (
        decimal.Decimal("1E+2000000"),
        decimal.Decimal("1" * 30_000),
        fractions.Fraction(1, 1 << 300_000),
    ):
        with pytest.raises(ValueTooLarge):
            values.encode(value)


def test_which_nan_it_is_survives() -> None:
    mine = float("nan")
    back = across([math.nan, mine, mine, float("nan")])
    assert back[0] is math.nan
    assert back[1] is back[2]
    assert back[1] is not back[3]
    assert all(map(math.isnan, back))


def test_what_is_shown_is_short_and_never_fails() -> None:
    circular: list[Any] = [1]
    circular.append(circular)
    values_shown: list[Any] = [
        circular,
        range(10**5000),
        fractions.Fraction(1, 10**5000),
        frozenset([1, 2]),
        set(),
        {"x": [float("nan")] * 100_000},
    ]
    for value in values_shown:
        assert 0 < len(show(value)) <= 200
