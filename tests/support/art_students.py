"""A policy that solves the toy problems in ways that are known, with tool calls and logprobs.

The first answer of an episode draws its fate, and puts it into the ids of its tool calls, which come
back with each turn: so what an episode is worth can be read off its messages.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from policy_server import Act, Asked, Handler, completion, fails, hangs

Fate: TypeAlias = Literal["right", "wrong", "retried", "silent", "broken", "endless"]

SOLUTIONS: Mapping[str, str] = MappingProxyType(
    {
        "doubles": "def double(n):\n    return 2 * n\n",
        "adds": "def add(a, b):\n    return a + b\n",
        "largest": "def largest(numbers):\n    return max(numbers)\n",
        "even": "def is_even(n):\n    return n % 2 == 0\n",
    }
)
WORTH: Mapping[str, float] = MappingProxyType(
    {"right": 1.0, "wrong": 0.0, "retried": 1.0, "silent": 0.0}
)
FATES: tuple[Fate, ...] = ("right", "wrong", "retried", "silent")
LOOK = "print(open('/etc/passwd').read()[:4]); raise KeyError('slip')"


class Student:
    """Draws fates from `draw`, which gets the number of the episode; its script is `answer`.

    `sent` has each choice that it sent, by the id that is in it.
    """

    def __init__(self, draw: Callable[[int], Fate]) -> None:
        self.sent: dict[str, dict[str, Any]] = {}
        self._draw = draw
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def answer(self, asked: Asked) -> Act:
        """What it says, and the ways it fails."""
        name = _name_of(asked.messages) or self._begin()
        fate = fate_of(name)
        if fate == "broken" and asked.turn:
            return fails(500, "out of memory")
        if fate == "endless" and asked.turn:
            return hangs
        code = next(code for word, code in SOLUTIONS.items() if word in asked.task)
        if fate == "wrong":
            code = code.replace("return ", "return not ")
        if asked.turn == 0 and fate in ("retried", "broken", "endless"):
            return self._calls(name, asked.turn, "execute_code", LOOK)
        if fate == "silent":
            code = "I do not know"
        return self._calls(name, asked.turn, "submit_solution", code)

    def _begin(self) -> str:
        with self._lock:
            number = next(self._numbers)
        return f"e{number}-{self._draw(number)}"

    def _calls(self, name: str, turn: int, tool: str, code: str) -> Act:
        call_id = f"{name}-t{turn}"
        function = {"name": tool, "arguments": json.dumps({"code": code})}
        call = {"id": call_id, "type": "function", "function": function}
        body = completion(
            {"content": "let me see · é", "tool_calls": [call], "reasoning_content": "hm"},
            "tool_calls",
            logprobs_of(call_id),
            stop_reason=None,
            token_ids=[7, 8],
        )
        with self._lock:
            self.sent[call_id] = body["choices"][0]

        def act(handler: Handler) -> None:
            handler.send_json(body)

        return act


def logprobs_of(text: str) -> dict[str, Any]:
    """A token for each character, as vLLM has them for ART."""
    tokens = [
        {
            "token": f"token_id:{ord(letter)}",
            "bytes": list(letter.encode()),
            "logprob": -0.1 * place,
            "top_logprobs": [{"token": "x", "bytes": None, "logprob": -1e-7}],
        }
        for place, letter in enumerate(text)
    ]
    return {"content": tokens, "refusal": None}


def fate_of(name: str) -> Fate:
    """The fate in the name of an episode, or in the id of one of its calls."""
    return cast(Fate, name.split("-")[1])


def _name_of(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in messages:
        for call in message.get("tool_calls") or ():
            found = re.match(r"(e\d+-[a-z]+)-t", call["id"])
            if found:
                return found[1]
    return ""
