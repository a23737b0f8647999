"""Arrays cross exactly."""

from __future__ import annotations

import array
import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from proctor_service.codec import values
from proctor_service.codec.values import Malformed, ValueTooLarge


def across(value: Any) -> Any:
    line = values.dumps(values.encode(value, lambda thing: ["h", 0, {}]))
    return values.decode(values.loads(line), lambda wire, content: "handle")


def alike(left: Any, right: Any) -> bool:
    """Of one type, shape, order and content, NaN included."""
    layout = left.flags.f_contiguous == right.flags.f_contiguous or not right.flags.c_contiguous
    return bool(
        type(left) is type(right)
        and left.dtype == right.dtype
        and left.dtype.isnative == right.dtype.isnative
        and left.shape == right.shape
        and (left.tobytes() == right.tobytes() or left.tolist() == right.tolist())
        and (layout or not right.flags.f_contiguous)
    )


kinds = st.one_of(
    arrays.scalar_dtypes(),
    arrays.byte_string_dtypes(endianness="?", min_len=1),
    arrays.unicode_string_dtypes(endianness="?", min_len=1),
    arrays.array_dtypes(arrays.scalar_dtypes(), allow_subarrays=True),
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_array_comes_back_as_it_went(data: st.DataObject) -> None:
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    value = data.draw(arrays.arrays(data.draw(kinds), data.draw(shapes)))
    if data.draw(st.booleans()):
        value = np.asfortranarray(value)
    assert alike(across(value), value)
    if value.size:
        scalar = value.reshape(-1)[0]
        back = across(scalar)
        assert type(back) is type(scalar)
        # As text, a NaN is a NaN, whatever its bits.
        assert back.tobytes() == scalar.tobytes() or repr(back.item()) == repr(scalar.item())


@pytest.mark.parametrize(
    "value",
    [
        np.array(5),
        np.array([True, False]),
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::2],
        np.array([1.5, np.nan, -0.0]),
        np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
        np.array([1, 2], dtype=">i4"),
        np.array([(1, 2.5)], dtype=[("a", "i1"), ("b", ">f8")]),
        np.zeros(2, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        np.zeros((0, 3)),
        np.array(["a\0b", "c"]),
        np.array([1j, 2], dtype="complex64"),
        np.array([1, 2], dtype=np.longdouble),
    ],
    ids=str,
)
def test_arrays_of_all_kinds(value: Any) -> None:
    back = across(value)
    assert alike(back, value)
    assert back.flags.f_contiguous == value.flags.f_contiguous or value.base is not None
    assert back.flags.writeable


def test_an_array_of_objects_holds_data_and_handles() -> None:
    inner = [1]
    value = np.empty((2, 2), dtype=object)
    value[0, 0], value[0, 1], value[1, 0], value[1, 1] = inner, inner, {"a": (1,)}, object()
    back = across(value)
    assert back.dtype == object
    assert back[0, 0] is back[0, 1]
    assert back.tolist() == [[[1], [1]], [{"a": (1,)}, "handle"]]
    circular = np.empty(1, dtype=object)
    circular[0] = circular
    again = across(circular)
    assert again[0] is again


def test_records_that_hold_objects_are_handles() -> None:
    assert across(np.array([(1, [2])], dtype=[("a", int), ("b", object)])) == "handle"


def test_shared_arrays_stay_shared_and_large_ones_are_refused() -> None:
    value, numbers = np.arange(3), array.array("d", [1.5])
    back = across([value, value, numbers, numbers])
    assert back[0] is back[1]
    assert back[2] is back[3]
    with pytest.raises(ValueTooLarge):
        values.encode([np.zeros(3_000_000)] * 3)
    with pytest.raises(ValueTooLarge):
        values.encode(np.zeros(5_000_000, dtype=object))


def test_a_plain_decoder_has_no_arrays_but_their_scalars() -> None:
    wire = values.encode([np.arange(3), np.float64(1.5), np.str_("x"), np.array([[1]], object), 7])
    found = values.decode(wire)
    assert [type(each) for each in found] == [values.Opaque, float, str, values.Opaque, int]


@pytest.mark.parametrize("code", "bBhHiIlLqQfd")
def test_an_array_of_numbers_comes_back_as_it_went(code: str) -> None:
    value = array.array(code, [1, 2, 3])
    back = across(value)
    assert type(back) is array.array
    assert back.typecode == code
    assert back == value


FORGED: list[Any] = [
    ["nd", "<f8", [2], "C", "00" * 15],
    ["nd", "<f8", [-1], "C", ""],
    ["nd", "<f8", [1 << 40, 0], "C", ""],
    ["nd", "<f8", [2], "X", "00" * 16],
    ["nd", "O", [1], "C", "00" * 8],
    ["nd", ["fields", [["a"]], ["|O"], [0], 8, False], [1], "C", "00" * 8],
    ["nd", ["sub", "<f8", [1 << 30]], [0], "C", ""],
    ["nd", "|V999999", [1], "C", ""],
    ["nd", "|O", [2], "C", 1],
    ["nd", "|O", [4000000], "C"],
    ["ns", "|O", 5],
    ["ns", "<f8", ["l", 1]],
    ["ns", "<M8[s]", None, "00"],
    ["array", "q", "00"],
    ["array", "u", 5],
]


@pytest.mark.parametrize("wire", FORGED, ids=str)
def test_a_forged_array_is_malformed(wire: Any) -> None:
    with pytest.raises(Malformed):
        values.decode(wire, lambda wire, content: None)
    with contextlib.suppress(Malformed):
        values.decode(wire)
