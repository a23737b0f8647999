"""Lines that the decoder of values refuses, and values that cost too much."""

import contextlib
import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor_service.codec import values
from proctor_service.codec.values import Malformed, ValueTooDeep, ValueTooLarge


def test_too_much_is_refused() -> None:
    deep: Any = 1
    for _ in range(1001):
        deep = [deep]
    with pytest.raises(ValueTooDeep):
        values.encode(deep)
    with pytest.raises(ValueTooLarge):
        values.encode(["x" * 1_000_000] * 140)
    with pytest.raises(ValueTooLarge):
        values.encode([0] * 4_400_000)
    circular: Any = ([],)
    circular[0].append(circular)
    with pytest.raises(ValueTooDeep):
        values.encode(circular)


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
    views: list[Any] = ["l", ["proxy", ["d", 0, 1]]]
    for number in range(1, 81, 2):
        views.append(["proxy", ["d", 0, ["r", number], 1, ["r", number]]])
    wires = (["s", wire], ["d", wire, 1], ["l", wire], ["l", shared_chain(17), many], views)
    for forged in wires:
        with pytest.raises(Malformed, match="large"):
            values.decode(forged)


def test_a_pattern_is_compiled_in_a_sandbox_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """It may take minutes, and `re.DEBUG` prints."""
    wire = ["pattern", "(?i)" + "[\\x00-\\uffff]" * 10_000, int(re.DEBUG)]
    assert isinstance(values.decode(wire), values.Opaque)
    assert values.decode(["pattern", ",", 32], lambda *_: None) == re.compile(",")
    assert capsys.readouterr().out == ""


def shared_chain(length: int) -> Any:
    """A tuple that holds the next one twice, and so on: as a forger would write it."""
    wire: Any = ["t", 0]
    for number in range(length, 0, -1):
        wire = ["t", wire, ["r", number + 1]]
    return wire


@pytest.mark.parametrize(
    "line", [b"[" * 50_000 + b"]" * 50_000, b'["' + b"x" * (1 << 20) + b'"]', b"[", b'["\xc3\xa9"]']
)
def test_a_message_is_short_and_hardly_nested(line: bytes) -> None:
    with pytest.raises(Malformed):
        values.loads_message(line)
