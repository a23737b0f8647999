"""What is read out of a policy's answer, and what goes back to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.chat_completion import Choice
from policy_server import completion

from proctor_service.errors import PolicyUnavailable
from proctor_service.features.rollouts.reply import (
    LEAST_RANDOM_KEY,
    LONG_CHARACTERS,
    Reply,
    read_reply,
    scrubbed,
)

KEY = "sk-5f0c6f2b8d2e4a0c9a5b1f3d7e6c8a90"


def read(body: Any, key: str = "") -> Reply:
    return asyncio.run(read_reply(json.dumps(body).encode(), key))


def call(name: Any = "bash", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    }


LOGPROBS = {
    "content": [
        {
            "token": " caf\u00e9",
            "bytes": [32, 99, 97, 102, 195, 169],
            "logprob": -0.00012345678901234567,
            "top_logprobs": [
                {"token": " caf\u00e9", "bytes": [32, 99], "logprob": -1e-05},
                {"token": "\ufffd", "bytes": [255], "logprob": -9999.0},
            ],
        },
        {"token": "", "bytes": None, "logprob": 0.0, "top_logprobs": []},
    ],
    "refusal": None,
}


def test_a_choice_comes_through_without_loss() -> None:
    message = {
        "content": "caf\u00e9 \U0001f600 \u2028",
        "refusal": None,
        "reasoning_content": "because",
        "tool_calls": [call(arguments='{"command":  "ls"}')],
    }
    more = {"stop_reason": None, "token_ids": [1, 2, 3], "seed": 2**70}
    body = completion(message, "tool_calls", LOGPROBS, **more)
    sent = json.loads(read(body).choice_json)
    assert sent == body["choices"][0]
    rebuilt = Choice.model_validate(sent)
    assert rebuilt.model_dump(mode="json", exclude_unset=True) == body["choices"][0]
    assert rebuilt.logprobs is not None
    assert rebuilt.logprobs.content is not None
    assert rebuilt.logprobs.content[0].logprob == -0.00012345678901234567


def test_what_goes_back_holds_only_what_the_api_takes() -> None:
    body = completion({"content": "Let me see.", "reasoning": "…", "tool_calls": [call()]})
    assert read(body).message() == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [call()],
    }
    assert read(completion({"content": "Hi", "audio": {}})).message() == {
        "role": "assistant",
        "content": "Hi",
    }
    assert read(completion({"content": None})).message()["content"] == ""
    assert read(completion({"content": None, "tool_calls": [call()]})).message()["content"] is None


@pytest.mark.parametrize(
    ("name", "arguments", "back"),
    [
        ("bash", '{"command": "ls"}', ("bash", '{"command": "ls"}')),
        ("bash", {"command": "ls"}, ("bash", '{"command": "ls"}')),
        ("bash", '{"command": ', ("bash", "{}")),
        ("bash", "[]", ("bash", "{}")),
        ("bash", '{"n": NaN}', ("bash", "{}")),
        ("bash", None, ("bash", "{}")),
        ("bash", "[" * 100_000, ("bash", "{}")),
        ("bash", {"command": "#" * (1 << 20)}, ("bash", "{}")),
        ("rm -rf /", "{}", ("unknown", "{}")),
        ("", "{}", ("unknown", "{}")),
        (None, "{}", ("unknown", "{}")),
        (["bash"], "{}", ("unknown", "{}")),
        ("x" * 65, "{}", ("unknown", "{}")),
        ("bash", '{"command": "\ud800"}', ("bash", '{"command": "\ufffd"}')),
    ],
)
def test_a_bad_call_goes_back_as_one_that_any_endpoint_takes(
    name: Any, arguments: Any, back: tuple[str, str]
) -> None:
    reply = read(completion({"content": None, "tool_calls": [call(name, arguments)]}))
    message: Any = reply.message()
    [sent] = message["tool_calls"]
    assert (sent["function"]["name"], sent["function"]["arguments"]) == back
    json.dumps(reply.message(), ensure_ascii=False).encode()


@pytest.mark.parametrize("listed", [[{}], ["call"], [None], [{"function": "bash"}], [call(id=7)]])
def test_calls_that_are_none_are_calls_all_the_same(listed: list[Any]) -> None:
    [found] = read(completion({"content": None, "tool_calls": listed})).tool_calls
    assert found.id == "call_0"


def test_half_a_surrogate_pair_can_be_sent_back() -> None:
    reply = read(completion({"content": "a\ud83d"}))
    assert reply.message()["content"] == "a\ufffd"
    assert reply.text == "a\ud83d"


def test_text_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, "b", {"text": 7}, {"text": "c"}]
    assert read(completion({"content": parts})).text == "ac"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Hello",
        b"[]",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": {}}',
        b'{"choices": [7]}',
        b'{"choices": [{"message": "hi"}]}',
        b'{"error": {"message": "no"}}',
        b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        b'{"choices": [{"message": {}, "logprobs": {"content": [{"logprob": -Infinity}]}}]}',
        b"\xff\xfe{\x00}\x00",
        b"[" * 100_000,
        b'{"choices": [{"message": {}, "deep": %s}]}' % (b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_what_is_no_completion_is_a_failure_of_the_endpoint(body: bytes) -> None:
    with pytest.raises(PolicyUnavailable, match=r"^policy: the answer is (no|nested)"):
        asyncio.run(read_reply(body, ""))


@pytest.mark.parametrize("bad", ["", "NaN, ", "1 2, ", "[}, "])
def test_a_long_answer_is_read_as_a_short_one(bad: str) -> None:
    """As one with log probabilities."""
    tokens = ", ".join(
        ['{"token": "x", "logprob": -0.1, "top_logprobs": [{"bytes": [120]}]}'] * 9000
    )
    text = json.dumps(completion({"content": KEY}, logprobs={"content": []}))
    long = text.replace('{"content": []}', f'{{"content": [{bad}{tokens}]}}')
    assert len(long) > LONG_CHARACTERS
    if bad:
        with pytest.raises(PolicyUnavailable, match="the answer is not JSON"):
            asyncio.run(read_reply(long.encode(), KEY))
    else:
        choice = asyncio.run(read_reply(long.encode(), KEY)).choice_json
        assert json.loads(choice) == json.loads(long.replace(KEY, "***"))["choices"][0]


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(content=JSON_VALUES, tool_calls=JSON_VALUES, usage=JSON_VALUES, reason=JSON_VALUES)
def test_no_shape_of_a_message_is_an_exception(
    content: Any, tool_calls: Any, usage: Any, reason: Any
) -> None:
    body = completion({"content": content, "tool_calls": tool_calls}, reason)
    reply = read({**body, "usage": usage})
    assert reply.prompt_tokens >= 0
    json.dumps(reply.message(), ensure_ascii=False).encode()
    assert isinstance(json.loads(reply.choice_json), dict)


def test_tokens_are_counted_where_they_are_numbers() -> None:
    reply = read(completion({"content": ""}))
    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 3)
    body = completion({"content": ""})
    for usage in (
        None,
        7,
        {},
        {"prompt_tokens": "7"},
        {"prompt_tokens": -1},
        {"prompt_tokens": 1.5},
    ):
        assert read({**body, "usage": usage}).prompt_tokens == 0


def test_the_key_is_in_no_choice_even_if_the_endpoint_echoes_it() -> None:
    reply = read(completion({"content": f"You said {KEY}."}), KEY)
    assert KEY.encode() not in reply.choice_json
    # A key that is a word may stand in a solution by chance: no solution is changed for it.
    short = "password"
    assert len(short) < LEAST_RANDOM_KEY
    assert read(completion({"content": "password = 1"}), short).text == "password = 1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"bad key {KEY}", "bad key ***"),
        (f"{KEY}{KEY}", "******"),
        (f"key {KEY[:12]}…{KEY[-8:]}!", "key ***…***!"),
        (f"key {KEY[:7]}", f"key {KEY[:7]}"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_neither_the_key_nor_a_piece_of_it_is_shown(text: str, shown: str) -> None:
    assert scrubbed(text, KEY) == shown


def test_scrubbing_without_a_key_and_with_a_short_one() -> None:
    assert scrubbed("text", "") == "text"
    assert scrubbed("the key EMPTY is bad", "EMPTY") == "the key *** is bad"
