"""Fields of a policy that not every endpoint takes, and refusals that say what to change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from constants import constants
from harness import Service, running_service
from policy_server import (
    Act,
    Asked,
    PolicyServer,
    calls,
    completion,
    fails,
    hangs_up,
    policy_server,
    says,
)
from rollout_requests import CODE, Row, ask, request, task

from proctor_service.features.rollouts.reply import reply_of

TOOLS = {"kind": "tools", "max_turns": 3}
WRONG = "```python\ndef f(): return 2\n```"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with constants(policy_attempts=2), running_service() as running:
        yield running


def played(service: Service, script: Any, **fields: Any) -> tuple[list[Row], PolicyServer]:
    """The trajectories of a request, and the policy server with what it received."""
    with policy_server(script) as server, service.client() as client:
        return ask(client, request(server.url, **fields))["trajectories"], server


def test_trajectories_of_a_task_have_seeds_of_their_own_in_every_turn(service: Service) -> None:
    acts = {0: says(WRONG), 1: says(CODE)}
    tasks = [task("a"), task("b")]
    with policy_server(lambda asked: acts[asked.turn]) as server, service.client() as client:
        policy, agent = {"seed": 41}, {"kind": "tools", "max_turns": 2}
        body = request(server.url, *tasks, policy=policy, trajectories_per_task=2, agent=agent)
        ask(client, body)
        ask(client, request(server.url))
    *seeded, last = server.received
    assert sorted((each.task, each.body["seed"]) for each in seeded) == sorted(
        [(f"Write {name}.", 41 + index) for name in "ab" for index in (0, 1)] * 2
    )
    assert "seed" not in last.body


def test_every_token_id_of_an_answer_is_in_the_trajectory(service: Service) -> None:
    def script(asked: Asked) -> Act:
        body = completion({"content": CODE}, token_ids=[5, 7], prompt_token_ids=None)
        return lambda handler: handler.send_json({**body, "prompt_token_ids": [1, 2, 3]})

    [trajectory], server = played(
        service, script, policy={"extra_body": {"return_token_ids": True}}
    )
    choice = trajectory["messages_and_choices"][-1]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([1, 2, 3], [5, 7])
    assert server.received[0].body["return_token_ids"] is True


@pytest.mark.parametrize(
    ("beside", "within", "kept"), [([1], [2], [2]), ("[1]", None, None), (None, [2], [2])]
)
def test_token_ids_of_a_choice_are_its_own(beside: Any, within: Any, kept: Any) -> None:
    answer = {**completion({}, prompt_token_ids=within), "prompt_token_ids": beside}
    assert json.loads(reply_of(answer).choice_json)["prompt_token_ids"] == kept


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_goes_back_to_the_policy_where_asked(
    name: str, sent: bool, service: Service
) -> None:
    listed = {"id": "c", "type": "function", "function": {"name": "read_it", "arguments": "{}"}}
    replies: list[Row] = [
        {"content": "a", name: "half \ud800 a pair"},
        {"content": None, name: "b", "tool_calls": [listed]},
        {"content": "c", name: {"no": "text"}},
    ]

    def script(asked: Asked) -> Act:
        return lambda handler: handler.send_json(completion(replies[asked.turn]))

    [trajectory], server = played(service, script, agent=TOOLS, policy={"send_reasoning": sent})
    said = [each for each in server.received[-1].messages if each["role"] == "assistant"]
    expected = ["half \ufffd a pair", "b"] if sent else [None, None]
    assert [each.get(name) for each in said] == expected
    kept = [each["message"] for each in trajectory["messages_and_choices"] if "message" in each]
    assert kept[1][name] == "b"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("act", "advice"),
    [
        (fails(400, "temperature is too high"), "fields of policy"),
        (fails(401, "who are you"), "policy.api_key"),
        (fails(403, "not for you"), "policy.api_key"),
        (fails(404, "no such model"), "policy.model"),
        (fails(422, "no"), "fields of policy"),
        (fails(400, "logprobs are not supported"), 'policy.logprobs to false, or to "optional"'),
        (fails(403, "You are not allowed to request logprobs"), "policy.logprobs"),
        (fails(400, "maximum context length is 9 tokens"), "policy.max_tokens"),
    ],
)
def test_a_refusal_is_asked_once_is_final_and_says_what_to_change(
    act: Act, advice: str, service: Service
) -> None:
    [trajectory], server = played(service, lambda asked: act)
    error = trajectory["error"]
    assert (error["reason"], error["retryable"]) == ("policy_unavailable", False)
    assert advice in error["message"]
    assert trajectory["reward"] is None
    assert len(server.received) == 1


@pytest.mark.parametrize("act", [fails(503), hangs_up])
def test_a_failure_that_may_pass_is_retryable(act: Act, service: Service) -> None:
    [trajectory], _ = played(service, lambda asked: act)
    assert trajectory["error"]["retryable"] is True
    assert trajectory["reward"] is None


# ---------------------------------------------------------------- logprobs


def without_logprobs(asked: Asked) -> Act:
    """An endpoint that refuses logprobs."""
    if asked.body.keys() & {"logprobs", "top_logprobs"}:
        return fails(400, "This model does not support logprobs")
    return says(CODE if asked.turn else WRONG)


def test_optional_logprobs_are_given_up_once_for_the_whole_request(service: Service) -> None:
    agent = {"kind": "refine"}
    extra = {"top_logprobs": 3, "top_p": 0.5}
    policy = {"logprobs": "optional", "extra_body": extra}
    found, server = played(service, without_logprobs, agent=agent, policy=policy)
    assert [each["verdict"] for each in found] == ["passed"]
    assert ["logprobs" in each.body for each in server.received] == [True, False]
    assert server.received[-1].body["top_p"] == 0.5


def test_optional_logprobs_are_kept_where_the_endpoint_has_them(service: Service) -> None:
    _, server = played(service, lambda asked: says(CODE), policy={"logprobs": "optional"})
    assert [each.body["logprobs"] for each in server.received] == [True]


def test_an_endpoint_that_refuses_the_request_without_logprobs_too_is_a_failure(
    service: Service,
) -> None:
    act = fails(400, "logprobs: unknown model")
    [trajectory], server = played(service, lambda asked: act, policy={"logprobs": "optional"})
    assert trajectory["error"]["retryable"] is False
    assert trajectory["reward"] is None
    assert len(server.received) == 2


def test_a_refusal_in_the_middle_is_no_reward(service: Service) -> None:
    def script(asked: Asked) -> Act:
        return fails(404, "gone") if asked.turn else calls(("bash", {"command": "ls"}))

    [trajectory], _ = played(service, script, agent=TOOLS)
    assert trajectory["error"]["retryable"] is False
    assert (trajectory["reward"], trajectory["verdict"]) == (None, None)
