"""POST /rollout over a real connection, with a real policy server: answers, prompts and refusals."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from constants import constants
from harness import running_service
from openai.types.chat.chat_completion import Choice
from policy_server import Act, Asked, completion, policy_server, says
from rollout_requests import (
    ASSERTS,
    CODE,
    KEY,
    NDJSON,
    REFINE,
    Row,
    ask,
    playing,
    reasons,
    request,
    task,
)
from waits import WAIT_SECONDS

from proctor_client import wire
from proctor_service.http import body as bodies
from proctor_service.settings import Settings

# ---------------------------------------------------------------- the answer


def test_a_trajectory_has_every_field_of_the_contract(client: httpx.Client) -> None:
    with policy_server(lambda asked: says(CODE)) as server:
        metadata = {"level": 3, "of": ["a"]}
        answer = ask(client, request(server.url, task("p1", metadata=metadata)))
    assert wire.RolloutResponse.model_validate(answer).summary.mean_reward == 1.0
    [trajectory] = answer["trajectories"]
    assert set(trajectory) == set(wire.Trajectory.model_fields)
    assert answer["summary"] == {
        "count": 1,
        "judged": 1,
        "passed": 1,
        "errors": 0,
        "mean_reward": 1.0,
    }
    assert set(answer["summary"]) == set(wire.RolloutSummary.model_fields)
    assert trajectory.pop("rollout_id").startswith("ro_")
    assert trajectory["metrics"].pop("duration_seconds") > 0
    system, user, choice = trajectory.pop("messages_and_choices")
    assert system["role"] == "system"
    assert user == {"role": "user", "content": "Write p1."}
    assert choice == completion({"content": CODE})["choices"][0]
    assert trajectory == {
        "task_id": "p1",
        "index": 0,
        "tools": None,
        "reward": 1.0,
        "verdict": "passed",
        "error": None,
        "metrics": {
            "turns": 1,
            "tool_calls": 0,
            "exec_errors": 0,
            "bad_tool_calls": 0,
            "hit_max_turns": 0,
            "context_exceeded": 0,
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "attempts": 1,
        },
        "metadata": metadata,
        "sandbox_id": None,
    }


LOGPROBS = {
    "content": [
        {
            "token": " caf\u00e9",
            "bytes": [32, 99, 97, 102, 195, 169],
            "logprob": -0.00012345678901234567,
            "top_logprobs": [{"token": "\ufffd", "bytes": [255], "logprob": -9999.0}],
        }
    ],
    "refusal": None,
}


def test_choices_come_back_as_openais_own_without_loss(client: httpx.Client) -> None:
    body = completion(
        {"content": CODE, "refusal": None, "reasoning_content": "hm"},
        logprobs=LOGPROBS,
        token_ids=[5, 7],
        stop_reason=None,
    )
    expected = body["choices"][0]
    with policy_server(lambda asked: lambda handler: handler.send_json(body)) as server:
        text = client.post("/rollout", json=request(server.url)).text
        lines = client.post("/rollout", json=request(server.url), headers=NDJSON).text
    for trajectory in (json.loads(text)["trajectories"][0], json.loads(lines.splitlines()[0])):
        raw = trajectory["messages_and_choices"][-1]
        assert raw == expected
        choice = Choice.model_validate(raw)
        assert choice.model_dump(mode="json", exclude_unset=True) == expected
        # As a trainer gets it, through the client's models.
        kept = wire.Trajectory.model_validate(trajectory).messages_and_choices[-1]
        assert Choice.model_validate(kept) == choice


def test_trajectories_come_in_the_order_of_the_tasks_and_lines_as_they_end(
    client: httpx.Client,
) -> None:
    release = {name: threading.Event() for name in ("a", "b", "c")}

    def script(asked: Asked) -> Act:
        name = asked.task.removeprefix("Write ").removesuffix(".")

        def act(handler: Any) -> None:
            release[name].wait(WAIT_SECONDS)
            handler.send_json(completion({"content": CODE}))

        return act

    with policy_server(script) as server:
        body = request(server.url, task("a"), task("b"), task("c"))
        with client.stream("POST", "/rollout", json=body, headers=NDJSON) as answer:
            assert answer.headers["content-type"].startswith("application/x-ndjson")
            lines = answer.iter_lines()
            for name in ("c", "a", "b"):
                release[name].set()
                assert json.loads(next(lines))["task_id"] == name
            summary = json.loads(next(lines))
            assert (list(summary), summary["summary"]["count"]) == (["summary"], 3)
            assert list(lines) == []
        whole = ask(client, {**body, "trajectories_per_task": 2})
    found = [(each["task_id"], each["index"]) for each in whole["trajectories"]]
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1)]
    assert len({each["rollout_id"] for each in whole["trajectories"]}) == 6


def test_what_utf8_cannot_hold_goes_to_the_policy_and_comes_back_as_json(
    client: httpx.Client,
) -> None:
    def script(asked: Asked) -> Act:
        return says("half \ud83d" if asked.turn == 0 else CODE)

    with policy_server(script) as server:
        odd = task("id \udfff", prompt="Write \ud800.", metadata={"\ud800": "\udfff"})
        answer = client.post("/rollout", content=json.dumps(request(server.url, odd)))
    assert answer.status_code == 200
    [trajectory] = json.loads(answer.content.decode("utf-8"))["trajectories"]
    assert trajectory["reward"] == 1.0
    assert server.received[0].task == "Write \ufffd."
    assert server.received[1].messages[2] == {"role": "assistant", "content": "half \ufffd"}
    wire.RolloutResponse.model_validate_json(answer.content)


# ---------------------------------------------------------------- what the policy is told


@pytest.mark.parametrize(
    ("prompt", "agent", "roles", "first"),
    [
        ("Hi", {}, ["system", "user"], "expert"),
        ("Hi", {"system_prompt": "Be brief."}, ["system", "user"], "Be brief."),
        ("Hi", {"system_prompt": ""}, ["user"], "Hi"),
        ([{"role": "system", "content": "Own"}, {"role": "user", "content": "Hi"}], {},
         ["system", "user"], "Own"),
        ([{"role": "developer", "content": "Own"}, {"role": "user", "content": "Hi"}], {},
         ["developer", "user"], "Own"),
        ([{"role": "system", "content": "Own"}, {"role": "user", "content": "Hi"}],
         {"system_prompt": "Be brief."}, ["system", "system", "user"], "Be brief."),
    ],
)  # fmt: skip
def test_the_system_prompt(
    client: httpx.Client, prompt: Any, agent: Row, roles: list[str], first: str
) -> None:
    with policy_server(lambda asked: says(CODE)) as server:
        ask(client, request(server.url, task(prompt=prompt), agent={**REFINE, **agent}))
    messages = server.received[0].messages
    assert [each["role"] for each in messages] == roles
    assert first in messages[0]["content"]


@pytest.mark.parametrize(
    ("extract", "said"), [("auto", "```python"), ("fence", "```python"), ("xml", "<answer>")]
)
def test_the_built_in_prompt_asks_for_what_is_looked_for(
    client: httpx.Client, extract: str, said: str
) -> None:
    with policy_server(lambda asked: says(CODE)) as server:
        ask(client, request(server.url, extract=extract, agent={**REFINE, "max_attempts": 1}))
    assert said in server.received[0].messages[0]["content"]


def test_messages_go_to_the_policy_with_the_apis_fields_alone(client: httpx.Client) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "x", "arguments": "{}"}}
    prompt = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "weight": 0, "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [call], "logprobs": []},
        {"role": "tool", "content": "1", "tool_call_id": "c"},
    ]
    with policy_server(lambda asked: says(CODE)) as server:
        ask(client, request(server.url, task(prompt=prompt), agent={**REFINE, "system_prompt": ""}))
    assert server.received[0].messages == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "c"},
    ]


# ---------------------------------------------------------------- refusals


@pytest.fixture(scope="module")
def strict() -> Iterator[httpx.Client]:
    """A client of a service with small bounds, and with policies at some hosts only."""
    settings = Settings(max_body_mb=1, policy_hosts=["*.internal"])
    with (
        constants(max_cpu_seconds=20, max_wall_seconds=60),
        running_service(settings) as running,
        running.client() as opened,
    ):
        yield opened


URL = "http://vllm.internal/v1"
TOOLS = {"kind": "tools"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "tasks: "),
        ([], "the body is not a JSON object"),
        (request(URL, tasks=[]), "tasks: "),
        (request(URL, *[task()] * 1025), "tasks: "),
        (request(URL, *[task()] * 1024, trajectories_per_task=5), "at most 4096 trajectories"),
        (request(URL, taskz=[]), "taskz: unknown field, did you mean tasks?"),
        (request(URL, task(promt="x")), "tasks.0.promt: unknown field, did you mean prompt?"),
        (request(URL, task(prompt=7)), "tasks.0.prompt: "),
        (request(URL, task(prompt=[])), "tasks.0.prompt: it holds no message"),
        (request(URL, task(prompt=[{"content": "x"}])), "tasks.0.prompt.0.role: "),
        (request(URL, task(grader={"kind": "guess"})), "tasks.0.grader: "),
        (request(URL, task(grader={**ASSERTS, "tests": []})), "tasks.0.grader.tests: "),
        (request(URL, task(), task(files={"../x": ""})), "tasks.1.files: '../x'"),
        (
            request(URL, task(grader={"kind": "pytest", "files": {"/t.py": ""}})),
            "tasks.0.grader.files: '/t.py'",
        ),
        (request(URL, agent={"kind": "guess"}), "agent: "),
        (request(URL, agent={**TOOLS, "tools": []}), "agent.tools: "),
        (request(URL, agent={**TOOLS, "tools": ["rm"]}), "agent.tools.0: "),
        (
            request(URL, agent={**TOOLS, "max_turn": 1}),
            "max_turn: unknown field, did you mean max_turns?",
        ),
        (request(URL, agent={**TOOLS, "max_turns": 0}), "agent.max_turns: "),
        (request(URL, agent={**REFINE, "tools": ["bash"]}), "agent.tools: unknown field"),
        (request(URL, agent={**TOOLS, "exec_timeout_seconds": 61}), "agent.exec_timeout_seconds: "),
        (
            request(URL, agent={**TOOLS, "exec_timeout_seconds": float("nan")}),
            "agent.exec_timeout_seconds: ",
        ),
        (request(URL, limits={"cpu_seconds": 21}), "limits.cpu_seconds: "),
        (request(URL, limits={"network": True}), "limits.network: "),
        (request(URL, tags=["x" * 257]), "tags.0: "),
        (request(URL, job=""), "job: "),
        (request(URL, deadline_seconds=0), "deadline_seconds: "),
        (request(URL, policy={"modle": "x"}), "policy.modle: unknown field"),
        (request(URL, policy={"api_key": "a\nb"}), "policy.api_key: "),
        (request(URL, policy={"api_key": "cl\u00e9"}), "policy.api_key: "),
        (request(URL, policy={"timeout_seconds": 0}), "policy.timeout_seconds: "),
        (request("vllm.internal/v1"), "policy.base_url: "),
        (request("http://u:p@vllm.internal/v1"), "policy.base_url: "),
        (request("http://vllm.internal.evil.org/v1"), "policy.base_url: the host"),
        (request("http://169.254.169.254/v1"), "policy.base_url: "),
    ],
)
def test_what_makes_no_sense_is_a_422_that_names_the_field(
    strict: httpx.Client, body: Any, named: str
) -> None:
    answer = strict.post("/rollout", content=json.dumps(body))
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["reason"] == "invalid_request"
    assert named in error["message"]


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:a9fe:a9fe]", "0xa9fea9fe"])
def test_a_metadata_address_is_refused_though_all_hosts_are_allowed(
    client: httpx.Client, host: str
) -> None:
    answer = client.post("/rollout", json=request(f"http://{host}/v1"))
    assert answer.status_code == 422
    assert "metadata" in answer.json()["error"]["message"]


def test_a_fault_late_in_a_large_request_is_named_by_its_own_index(strict: httpx.Client) -> None:
    tasks = [task(prompt="x" * 2000) for _ in range(300)]
    tasks[299]["promt"] = "y"
    answer = strict.post("/rollout", json=request(URL, *tasks))
    named = "tasks.299.promt: unknown field, did you mean prompt?"
    assert answer.json()["error"]["message"] == named


def test_large_requests_are_parsed_in_slices_to_the_same_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "SLICED_BODY_BYTES", 0)
    whole = request(URL, *[task(f"t\ud800 {number}") for number in range(300)], agent=TOOLS)
    for text in (json.dumps(whole), json.dumps(whole, indent=3)):
        parsed = asyncio.run(bodies.parse_body(wire.RolloutRequest, text.encode()))
        assert parsed == wire.RolloutRequest.model_validate(whole)


def test_no_refusal_shows_the_key(strict: httpx.Client) -> None:
    for fields in ({"api_key": [KEY]}, {"api_key": KEY, "modle": KEY}, {"api_key": f"{KEY}\n"}):
        answer = strict.post("/rollout", json=request(URL, policy=fields))
        assert answer.status_code == 422
        assert KEY not in answer.text


def test_more_trajectories_than_ever_fit_are_a_413() -> None:
    settings = Settings(max_queued=1)
    with (
        constants(max_rollouts=1),
        playing(lambda asked: says(CODE), settings) as (server, _, client),
    ):
        answer = client.post("/rollout", json=request(server.url, trajectories_per_task=3))
        assert (answer.status_code, answer.json()["error"]["reason"]) == (413, "batch_too_large")
        assert "retry-after" not in answer.headers
        assert reasons(ask(client, request(server.url, trajectories_per_task=2))) == ["passed"] * 2


def test_the_route_is_documented(client: httpx.Client) -> None:
    schema = client.get("/openapi.json").json()
    route = schema["paths"]["/rollout"]["post"]
    example = route["requestBody"]["content"]["application/json"]["example"]
    wire.RolloutRequest.model_validate(example)
    answer = route["responses"]["200"]["content"]["application/json"]["example"]
    assert set(answer["trajectories"][0]) <= set(wire.Trajectory.model_fields)
    [trajectory] = wire.RolloutResponse.model_validate(answer).trajectories
    Choice.model_validate(trajectory.messages_and_choices[-1])
    assert "RolloutRequest" in schema["components"]["schemas"]


def test_the_request_in_the_documents_is_one() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "wire.md").read_text()
    example = text.partition("## POST /rollout")[2].partition("```json\n")[2].partition("```")[0]
    wire.RolloutRequest.model_validate(json.loads(example))
