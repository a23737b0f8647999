"""The encoding in which values leave a sandbox: values that survive, and code that is never called."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import itertools
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
from proctor_service.codec.values import ValueTooLarge


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
