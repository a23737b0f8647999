"""Lines between interpreters: whole, in linear work, and nested as deep as values may be."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor_service.codec import json_lines, values
from proctor_service.guest.channel import Channel

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(json_values, st.sampled_from([None, 1]))
def test_both_parsers_and_both_writers_agree(value: Any, indent: int | None) -> None:
    assert json_lines.parse(json.dumps(value, indent=indent)) == value
    assert json_lines.write(value) == json.dumps(value, separators=(",", ":"))


pieces = st.lists(st.sampled_from(["[", "]", "{", "}", ",", ":", "1", '"a"', "x", '"', "\\", " "]))


@settings(max_examples=500, deadline=None)
@given(pieces.map("".join))
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    expected: Any = ValueError
    with contextlib.suppress(ValueError):
        expected = json.loads(text)
    if expected is not ValueError:
        assert json_lines.parse(text) == expected
        return
    with contextlib.suppress(ValueError):
        json_lines.parse(text)


def test_nesting_costs_no_stack() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep, {"a": deep}] if not deep else [deep]
    line = values.dumps(deep)
    assert values.dumps(values.loads(line)) == line
    with pytest.raises(values.Malformed):
        values.loads(b"[" * 100_000 + b"]" * 100_000)


def test_lines_arrive_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    lines = [b"", b"x", b"y" * 200_000, b"", b"z" * 3_000_000, b"end"]
    sender = threading.Thread(target=theirs.sendall, args=(b"\n".join(lines) + b"\n",))
    sender.start()
    channel = Channel(ours.fileno())
    assert [channel.receive() for _ in lines] == lines
    sender.join()
    theirs.sendall(b"one\nfour and then\nmore")
    assert channel.receive() == b"one"
    assert channel.read(4) == b"four"
    assert channel.receive() == b" and then"
    theirs.close()
    assert channel.receive() is None
    ours.close()


def test_a_long_line_is_moved_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes searched for a newline grow with the line, and not with its square."""
    read_end, write_end = os.pipe()
    size, searched = 2_000_000, 0

    class Counting(bytearray):
        def find(self, *args: Any) -> int:
            nonlocal searched
            searched += len(self) - args[1]
            return super().find(*args)

    channel = Channel(read_end)
    monkeypatch.setattr(channel, "_received", Counting())
    sender = threading.Thread(target=_write, args=(write_end, b"a" * size + b"\n"))
    sender.start()
    line = channel.receive()
    sender.join()
    assert line is not None
    assert len(line) == size
    assert searched <= 2 * size
    os.close(read_end)
    os.close(write_end)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
