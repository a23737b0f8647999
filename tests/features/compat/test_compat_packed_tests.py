"""Tests that come as a pickle: read when they are plain data, refused when they are anything else."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import pickletools
import zlib
from typing import Any

import pytest
from pydantic import BaseModel

from proctor_service.errors import InvalidRequest
from proctor_service.features.compat import open_instruct
from proctor_service.features.compat.open_instruct import unpacked
from proctor_service.features.compat.open_r1 import ExecuteBatch
from proctor_service.features.compat.sandbox_fusion import RunCode
from proctor_service.http.body import parse_body

PLAIN: list[Any] = [
    "assert f(1) == 2",
    {"input": "1\n", "output": "2\n"},
    ("a", 1, -(2**70), 1.5, None, True, False, ["é😀", ""]),
]


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_is_read_in_every_protocol(protocol: int) -> None:
    assert unpacked(packed(pickle.dumps(PLAIN, protocol))) == PLAIN


def test_a_large_set_is_read() -> None:
    tests = [{"input": f"{number} " * 5000, "output": f"{number}"} for number in range(300)]
    assert unpacked(packed(pickle.dumps(tests))) == tests


@pytest.mark.parametrize("text", ["[]", "", "  ", '["assert 1"]'])
def test_json_is_read_too(text: str) -> None:
    assert unpacked(text) == ([] if "assert" not in text else ["assert 1"])


class Runs:
    """What a hostile pickle does when it is read."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("/tmp/compat-was-unpickled",)


class Plain:
    """An object of some class."""


def hostile() -> dict[str, bytes]:
    """Pickles that make what is no plain data, or break what reads them."""
    return {
        "calls": pickle.dumps([Runs()]),
        "class": pickle.dumps([Plain()]),
        "global": b"cos\nsystem\n.",
        "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "instance": b"(ios\nsystem\n.",
        "object": b"(cos\nsystem\no.",
        "extension": b"\x82\x01.",
        "persistent": b"Pid\n.",
        "bytes": pickle.dumps([b"x"]),
        "bytearray": pickle.dumps([bytearray(b"x")], 5),
        "set": pickle.dumps([{1}]),
        "frozenset": pickle.dumps([frozenset({1})]),
        "buffer": b"\x80\x05\x97.",
        "no list": pickle.dumps({"a": 1}),
        "cut off": pickle.dumps(PLAIN)[:-5],
        "empty": b"",
        "no stop": b"]",
        "pops nothing": b"0.",
        "huge memo": b"]r\xff\xff\xff\xff0N.",
        "huge text": b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
        "huge number": b"\x8b\xff\xff\xff\x7f.",
        "many digits": b"I" + b"9" * 100_000 + b"\n.",
        "unhashable key": b"}]Ns.",
        "unknown": b"\xff.",
    }


@pytest.mark.parametrize("name", hostile())
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        unpacked(packed(hostile()[name]))
    assert not os.path.exists("/tmp/compat-was-unpickled")  # noqa: PTH110


def test_only_harmless_instructions_are_known() -> None:
    known = {chr(code) for code in open_instruct._PlainUnpickler.dispatch}
    names = {opcode.name for opcode in pickletools.opcodes if opcode.code in known}
    assert not names & {
        "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX",
        "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER",
        "BYTEARRAY8", "BINBYTES8",
    }  # fmt: skip
    assert len(names) == len(known) == len(open_instruct._PLAIN.split()) + 1


def test_what_is_too_large_once_unpacked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_instruct, "MOST_UNPACKED_BYTES", 100_000)
    bomb = packed(pickle.dumps(["x" * 200_000]))
    assert len(bomb) < 1000
    with pytest.raises(InvalidRequest, match="bytes"):
        unpacked(bomb)


def test_so_are_too_many_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_instruct._Counted, "left", 10_000)
    with pytest.raises(InvalidRequest, match="instructions"):
        unpacked(packed(b"]" + b"N0" * 20_000 + b"."))


def test_one_long_text_many_times_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_instruct, "MOST_CHARACTERS", 1_000_000)
    long = "x" * 2000
    tests = unpacked(packed(pickle.dumps([long] * 1000)))
    with pytest.raises(InvalidRequest, match="characters"):
        open_instruct.check_size(tests)


@pytest.mark.parametrize("tests", [7, {"a": 1}, "{}", "not base64 §", "AAAA", "[" * 100_000])
def test_what_is_no_list_is_refused(tests: Any) -> None:
    with pytest.raises(InvalidRequest):
        unpacked(tests)


MANY = 300_000
FLOODS: dict[str, tuple[type[BaseModel], str]] = {
    "files of a program": (RunCode, json.dumps({"code": "", "files": {str(n): 1 for n in range(MANY)}})),
    "languages": (ExecuteBatch, json.dumps({"scripts": ["1"], "languages": [1] * MANY})),
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_wrong_values_is_refused_in_few_words(flood: str) -> None:
    model, body = FLOODS[flood]
    with pytest.raises(InvalidRequest) as raised:
        asyncio.run(parse_body(model, body.encode()))
    assert 0 < len(raised.value.message) < 1000
