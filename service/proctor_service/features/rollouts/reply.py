"""Parser of a policy's answer: its text, its tool calls, and the choice as received.

The choice is kept for the trainer. The next request contains a new message with only the parts
accepted by every endpoint. Some endpoints fail on a lone surrogate, on a function name with unusual
characters, or on their own tool calls with arguments other than a JSON object. The policy must be
unable to turn its own invalid reply into a failure of the endpoint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor_service.errors import PolicyUnavailable
from proctor_service.http.json import STRICT, PacedJson, encode, without_surrogates
from proctor_service.outcomes import JsonObject

LEAST_RANDOM_KEY = 20
"""Minimum length of a key to mask; a solution may contain a shorter key by chance."""
LONG_CHARACTERS = 1 << 19
"""Least length of an answer parsed with pauses for the event loop."""
MOST_ARGUMENTS_CHARACTERS = 1 << 20
"""Most characters of a tool call's arguments; policies' answers are shorter by tokens."""
REASONING = ("reasoning", "reasoning_content")
"""Fields of a message with the policy's reasoning; endpoints use either name or both."""
PIECE = 8
MASK = "***"
FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # "run_tests"; not "run tests"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Tool call of the policy. `arguments`: text for a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of the policy. `cut`: the answer ended at the token limit.

    `choice_json`: the choice as received, encoded.
    """

    choice_json: bytes
    text: str
    tool_calls: Sequence[ToolCall]
    cut: bool
    prompt_tokens: int
    completion_tokens: int
    reasoning: Mapping[str, str] = field(default_factory=dict)
    """Fields of the reply with its reasoning, for the next request to the policy: name to text."""

    def message(self) -> JsonObject:
        """Return the assistant's message for the next request to the policy."""
        text, more = (
            without_surrogates(self.text),
            {name: without_surrogates(part) for name, part in self.reasoning.items()},
        )
        if not self.tool_calls:
            return {"role": "assistant", "content": text, **more}
        calls: list[Any] = [_sent_back(call) for call in self.tool_calls]
        return {"role": "assistant", "content": text or None, **more, "tool_calls": calls}


async def read_reply(body: bytes, key: str, send_reasoning: bool = False) -> Reply:
    """Parse the body of an answer, without the key. Raises PolicyUnavailable without a reply."""
    try:
        text = body.decode()
        if len(key) >= LEAST_RANDOM_KEY:
            text = text.replace(key, MASK)
        if len(text) > LONG_CHARACTERS:  # log probabilities, most often
            answer = await PacedJson(text, STRICT).decode()
        else:
            answer = STRICT.decode(text)
        return reply_of(answer, send_reasoning)
    except RecursionError:
        raise PolicyUnavailable("policy: the answer is nested too deeply") from None
    except ValueError:
        raise PolicyUnavailable("policy: the answer is not JSON") from None


def reply_of(answer: Any, send_reasoning: bool = False) -> Reply:
    """Return the reply in an answer of a policy. Raises PolicyUnavailable if missing.

    vLLM writes the token ids of a completion into its choice and the prompt's beside the choices
    (`return_token_ids`); the choice of the reply has both.
    """
    answer = _object(answer)
    choices = answer.get("choices")
    choice = _object(choices[0] if isinstance(choices, list) and choices else None)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise PolicyUnavailable("policy: the answer is no chat completion with a choice")
    prompt_token_ids = answer.get("prompt_token_ids")
    if isinstance(prompt_token_ids, list) and choice.get("prompt_token_ids") is None:
        choice["prompt_token_ids"] = prompt_token_ids
    reasoning = {name: message.get(name) for name in REASONING if send_reasoning}
    usage = _object(answer.get("usage"))
    return Reply(
        choice_json=encode(choice),
        text=_text(message.get("content")),
        tool_calls=tuple(_tool_calls(message.get("tool_calls"))),
        cut=choice.get("finish_reason") == "length",
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        reasoning={name: part for name, part in reasoning.items() if isinstance(part, str)},
    )


def scrubbed(text: str, key: str) -> str:
    """Return `text` with every run of eight characters of the key masked."""
    size = min(len(key), PIECE)
    if not size:
        return text
    pieces = {key[at : at + size] for at in range(len(key) - size + 1)}
    characters: list[str] = []
    masked_until = 0
    for at, character in enumerate(text):
        if text[at : at + size] in pieces:
            if at >= masked_until:
                characters.append(MASK)
            masked_until = at + size
        if at >= masked_until:
            characters.append(character)
    return "".join(characters)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(part for part in parts if isinstance(part, str))


def _tool_calls(listed: Any) -> list[ToolCall]:
    if not isinstance(listed, list):
        return []
    found = []
    for number, each in enumerate(listed):
        call = _object(each)
        function = _object(call.get("function"))
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(arguments, str):  # some servers send parsed arguments
            arguments = "" if arguments is None else json.dumps(arguments)
        call_id = call.get("id")
        found.append(
            ToolCall(
                id=without_surrogates(call_id)
                if isinstance(call_id, str) and call_id
                else f"call_{number}",
                name=name if isinstance(name, str) else "",
                arguments=arguments,
            )
        )
    return found


def _sent_back(call: ToolCall) -> JsonObject:
    name = call.name if FUNCTION_NAME.fullmatch(call.name) else "unknown"
    function: JsonObject = {"name": name, "arguments": _plain_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _plain_arguments(text: str) -> str:
    """Return the arguments if they are a readable JSON object, else an empty object."""
    try:
        is_object = len(text) <= MOST_ARGUMENTS_CHARACTERS and type(STRICT.decode(text)) is dict
    except (ValueError, RecursionError):
        is_object = False
    return without_surrogates(text) if is_object else "{}"


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if type(value) is int and 0 <= value < 1 << 40 else 0
