"""JSON that no client of ours would send, as strategies, and a writer that writes it as it is."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st


class Raw(str):
    """Text that stands in the JSON as it is: a number that no float holds, or no JSON at all."""


class Pairs(list[tuple[str, Any]]):
    """An object by its names in order, of which one may come twice."""


def write(value: Any) -> str:
    """The JSON of a value; strings in ASCII."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs | dict):
        pairs = value if isinstance(value, Pairs) else value.items()
        return "{" + ",".join(f"{json.dumps(name)}:{write(each)}" for name, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return json.dumps(value)


NUMBERS = (
    0, 1, -1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400,
    0.0, -0.0, 0.5, 1e308, 5e-324, math.nan, math.inf, -math.inf,
    Raw("1e999"), Raw("-1E-999"), Raw("9" * 4301), Raw("1." + "0" * 5000 + "1"),
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "\x7f", "\r\n", "\ud800", "\udfff\ud800", "\u202e", "é", "x" * 5000,
    "../x", "/etc/passwd", "python", "bash", "NaN", "null", "[]", "{", "[" * 2000, "\\",
    "```python\nx\n```", "<answer>", "a/b", "a//b", ".", "eJwDAAAAAAE=", "9" * 5000,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, [], {}, [None], [[]], {"": None}, {"\ud800": 1}, {"__proto__": {}},
    {"kind": "exec"}, {"kind": "nothing"}, {"kind": None}, [{}] * 70, ["x"] * 5000,
    Pairs([("kind", "exec"), ("kind", "stdio")]),
    *(Raw("[" * depth + "]" * depth) for depth in (150, 250, 1000, 20_000)),
    *(Raw('{"a":' * depth + "0" + "}" * depth) for depth in (150, 250, 1000, 20_000)),
)  # fmt: skip
BROKEN = (
    "",
    "nul",
    "01",
    "+1",
    ".5",
    "1.",
    "0x10",
    "'x'",
    '"\\x"',
    '"\n"',
    "[1,]",
    "\0",
    "}",
    "{]",
)

odd_numbers = st.sampled_from(NUMBERS) | st.integers(-3, 300) | st.integers() | st.floats()
odd_texts = st.sampled_from(TEXTS) | st.text(st.characters(codec=None), max_size=20)
odd_leaves = odd_numbers | odd_texts | st.sampled_from(OTHERS)
"""Values of which each is something that a program may not expect."""

odd_json = st.recursive(
    odd_leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
"""Any value at all."""


@st.composite
def mutated(draw: Callable[..., Any], seeds: Sequence[Any]) -> Any:
    """One of these values, changed in one to three places; or, now and then, as it is."""
    value = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3, 0)))):
        places = list(_places(value))
        if not places:
            return draw(odd_json)
        holder, at = places[draw(st.integers(0, len(places) - 1))]
        _change(draw, holder, at)
    return value


def _change(draw: Callable[..., Any], holder: Any, at: Any) -> None:
    how = draw(st.sampled_from(CHANGES))
    if how == "remove":
        del holder[at]
    elif how == "wrap":
        holder[at] = [holder[at]]
    elif how == "add" and isinstance(holder, dict):
        holder[draw(st.sampled_from(TEXTS) | st.text(max_size=8))] = draw(_fresh(odd_leaves))
    elif how == "twin" and isinstance(holder[at], dict) and holder[at]:
        pairs = Pairs(holder[at].items())
        pairs.append((draw(st.sampled_from([name for name, _ in pairs])), draw(_fresh(odd_leaves))))
        holder[at] = pairs
    else:
        holder[at] = draw(_fresh(_alike(holder[at]) if how == "alike" else odd_json))


CHANGES = ("alike",) * 6 + ("replace", "replace", "remove", "wrap", "add", "twin")


def _alike(value: Any) -> st.SearchStrategy[Any]:
    """Odd values of the same kind, which a request may well hold."""
    if isinstance(value, str):
        return odd_texts
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return odd_numbers
    if isinstance(value, list) and value:
        return st.lists(st.sampled_from(value), max_size=70)
    if isinstance(value, dict) and value:
        return st.dictionaries(odd_texts, st.sampled_from(list(value.values())), max_size=4)
    return odd_json


def _fresh(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Copies: what is drawn may be a constant, or part of a seed, and is changed further."""
    return values.map(copy.deepcopy)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each part of a value, as what holds it and where."""
    inner: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(value, Mapping):
        inner = iter(value.items())
    elif isinstance(value, list) and not isinstance(value, Pairs):
        inner = iter(enumerate(value))
    for at, part in inner:
        yield value, at
        yield from _places(part)


@st.composite
def bodies(draw: Callable[..., Any], values: st.SearchStrategy[Any]) -> bytes:
    """The bytes of such a value, and now and then of something that is hardly JSON any more."""
    text = write(draw(values))
    data: bytes = text.encode()
    match draw(st.sampled_from(("whole",) * 12 + ("cut", "spoilt", "broken", "coded"))):
        case "cut":
            data = data[: draw(st.integers(0, len(data)))]
        case "spoilt":
            at = draw(st.integers(0, len(data)))
            data = data[:at] + draw(st.binary(min_size=1, max_size=4)) + data[at:]
        case "broken":
            data = draw(st.sampled_from(BROKEN)).join(text.split(":", 2)).encode()
        case "coded":
            data = text.encode(draw(st.sampled_from(CODECS)))
    return data


CODECS = ("utf-8-sig", "utf-16", "utf-32-le", "utf-7")
