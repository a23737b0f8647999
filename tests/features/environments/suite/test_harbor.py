"""Harbor tasks in real sandboxes: reference solutions, empty ones, and verdicts without a reward."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import forget_settings, proctor
from harbor_service import Harbor, harbor, use_buildah_in
from harbor_tasks import NAMES, SHARED
from harness import Service, running_service
from policy_server import Act, Asked, calls, policy_server, says

from proctor_service.settings import Settings

Row = dict[str, Any]
AGENT = {"kind": "tools", "tools": ["bash", "read_file", "write_file"], "exec_timeout_seconds": 90}
WRITES = "echo {} > /logs/verifier/reward.txt"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Harbor:
    return harbor(tmp_path_factory)


@pytest.fixture(scope="module")
def service(built: Harbor) -> Iterator[Service]:
    """With a judge process, which runs the verifiers."""
    environments: Row = {"environments": built.file, "environments_folder": built.store}
    with running_service(Settings(slots=3, workers=1, **environments), judge=None) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as opened:
        yield opened


def left(service: Service) -> int:
    """The stateful sandboxes that are not over."""
    census = service.call(service.parts.core.registry.census)
    return int(census["pending"] + census["running"])


# ---------------------------------------------------------------- six tasks


@pytest.mark.parametrize(("option", "reward"), [(None, 1.0), ("--empty", 0.0)])
def test_eval_of_reference_solutions_and_of_nothing(
    service: Service, built: Harbor, tmp_path: Path, option: str | None, reward: float
) -> None:
    output = tmp_path / "results.jsonl"
    options: list[str | Path] = ["--output", output]
    options += [] if option is None else [option]
    ran = proctor(
        "eval", built.tasks_folder, "--format", "harbor", *options, PROCTOR_URL=service.url
    )
    assert ran.exit_code == (0 if reward else 1), ran.output
    results = [json.loads(line) for line in output.read_text().splitlines()]
    assert {each["task_id"]: (each["reward"], each["error"]) for each in results} == {
        f"proctor-tests/{name}": (reward, None) for name in NAMES
    }
    [separate] = [each for each in results if each["task_id"].endswith("separate")]
    assert separate["message"].startswith('rewards: {"reward": ')
    assert '"seen": 0, "hello": 0.5' in separate["message"]
    assert left(service) == 0


def rollout(service: Service, built: Harbor, script: Any, *names: str) -> dict[str, Row]:
    tasks = [built.tasks[name].rollout_task(name=name).model_dump(mode="json") for name in names]
    with policy_server(script) as server, service.client() as client:
        policy = {"base_url": server.url, "model": "policy"}
        body = {"tasks": tasks, "policy": policy, "agent": AGENT}
        answer = client.post("/rollout", json=body)
    assert answer.status_code == 200, answer.text
    assert left(service) == 0
    return {each["metadata"]["name"]: each for each in answer.json()["trajectories"]}


def test_rollouts_of_a_policy_that_knows_the_solutions(service: Service, built: Harbor) -> None:
    solutions = {
        task.instruction: (task.solution / "solve.sh").read_text().replace("$ANSWER", "yes")
        for task in built.tasks.values()
    }

    def script(asked: Asked) -> Act:
        if asked.turn == 0:
            return calls(("bash", {"command": solutions[asked.task]}))
        return says("It is done.")

    found = rollout(service, built, script, *NAMES)
    seen = {name: (each["reward"], each["verdict"]) for name, each in found.items()}
    assert seen == dict.fromkeys(NAMES, (1.0, "passed")), found


def test_rollouts_of_a_policy_that_does_nothing(service: Service, built: Harbor) -> None:
    found = rollout(service, built, lambda asked: says("It is done."), *NAMES)
    seen = {name: (each["reward"], each["verdict"]) for name, each in found.items()}
    assert seen == dict.fromkeys(NAMES, (0.0, "failed")), found


def test_eval_builds_what_its_own_service_needs(
    built: Harbor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_settings(monkeypatch)
    use_buildah_in(tmp_path / "buildah", monkeypatch)
    monkeypatch.setenv("PROCTOR_ENVIRONMENTS_FOLDER", str(tmp_path / "environments"))
    monkeypatch.setattr("proctor_service.cli.target.DEFAULT_URL", "http://127.0.0.1:9")
    ran = proctor("eval", built.tasks_folder / "files", "--format", "harbor")
    assert ran.exit_code == 0, ran.output
    assert "building its image" in ran.output
    [image] = (tmp_path / "harbor" / "images").iterdir()
    assert image.name.startswith("harbor-files-")


# ---------------------------------------------------------------- verdicts


def graded(client: httpx.Client, agent: str, verifier: str, **fields: Any) -> Row:
    """The result of a verifier after a command of an agent."""
    created = client.post("/sandboxes", json={"environment": SHARED})
    assert created.status_code == 201, created.text
    place = f"/sandboxes/{created.json()['id']}"
    done = client.post(f"{place}/exec", json={"command": ["bash", "-c", agent]}).json()
    assert done["exit_code"] == 0, done
    grader = {"kind": "harbor", "tests": {"test.sh": f"#!/bin/bash\n{verifier}\n"}, **fields}
    answer = client.post(f"{place}/grade", json={"grader": grader})
    client.delete(place)
    assert answer.status_code == 200, answer.text
    result: Row = answer.json()
    return result


@pytest.mark.parametrize(
    ("agent", "verifier", "verdict", "message"),
    [
        ("touch x", "test -e x && exit 3; " + WRITES.format(0), "runtime_error", "code 3"),
        ("touch x", "test -e x && kill -9 $$; " + WRITES.format(0), "runtime_error", "SIGKILL"),
        # A program of the agent that writes a reward and then ends the verifier earns nothing.
        (
            f"echo '{WRITES.format(1)}; kill -9 $PPID' > run",
            "bash run; " + WRITES.format(0),
            "runtime_error",
            "SIGKILL",
        ),
        ("echo 5 > x", "cat x > /logs/verifier/reward.txt || " + WRITES.format(0), "runtime_error",
         "the reward 5 is not from 0 to 1"),
        ("touch x", "test -e x && mkdir /logs/verifier/reward.json; " + WRITES.format(0),
         "runtime_error", "reward.json: "),
        ("touch x", "test -e x && sleep 600; " + WRITES.format(1), "timeout", "test.sh: time limit"),
        ("true", WRITES.format(0.25), "failed", ""),
    ],
)  # fmt: skip
def test_verdicts_without_the_full_reward(
    client: httpx.Client, agent: str, verifier: str, verdict: str, message: str
) -> None:
    result = graded(client, agent, verifier, timeout_seconds=3)
    assert (result["verdict"], result["error"]) == (verdict, None), result
    assert result["reward"] == (0.25 if "0.25" in verifier else 0.0)
    assert message in result["message"]


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ("echo said; exit 3", "test.sh ended with code 3 and wrote no reward"),
        (WRITES.format("nan"), "the reward nan is not from 0 to 1"),
        (WRITES.format("much"), "reward.txt: could not convert"),
        ('echo \'{"a": 1, "b": 1}\' > /logs/verifier/reward.json', "no value is named reward"),
        (
            f"echo '{{\"reward\": 1{'0' * 400}}}' > /logs/verifier/reward.json",
            "'reward' is no finite number",
        ),
    ],
)
def test_a_verifier_that_gives_no_reward_anyway_is_an_error(
    client: httpx.Client, verifier: str, message: str
) -> None:
    result = graded(client, "true", verifier)
    assert (result["reward"], result["verdict"]) == (None, None)
    assert (result["error"]["reason"], result["error"]["retryable"]) == ("invalid_task", False)
    assert message in result["error"]["message"]
    assert "in an untouched sandbox too" in result["error"]["message"]


def test_the_verifier_gets_its_variables_and_binary_files(client: httpx.Client) -> None:
    verifier = 'cmp /tests/data <(printf "$BYTES") && ' + WRITES.format("$REWARD")
    fields = {"env": {"BYTES": "\\377\\0", "REWARD": "1"}, "binary_tests": {"data": "/wA="}}
    result = graded(client, "true", verifier, **fields)
    assert (result["reward"], result["integrity"]) == (1.0, "in_process"), result
    assert result["environment"] == SHARED


def test_a_task_may_keep_changes_of_system_folders(client: httpx.Client) -> None:
    agent = "echo yes > /etc/own; echo yes > /etc/other"
    verifier = "cat /etc/own && ! cat /etc/other && " + WRITES.format(1)
    result = graded(client, agent, verifier, keep=["/etc/own"])
    assert result["reward"] == 1.0, result


# ---------------------------------------------------------------- requests


def test_requests_that_make_no_sense(client: httpx.Client, built: Harbor) -> None:
    grader = built.tasks["long"].grader.model_dump(mode="json")
    policy = {"base_url": "http://127.0.0.1:9/v1", "model": "policy"}
    task = {"id": "t", "prompt": "p", "grader": grader, "environment": SHARED}

    def refused(route: str, **body: Any) -> str:
        answer = client.post(route, json=body)
        assert answer.status_code == 422, answer.text
        return str(answer.json()["error"]["message"])

    asked = {"policy": policy, "agent": AGENT}
    assert "needs an environment with an image" in refused(
        "/rollout", **asked, tasks=[task | {"environment": None}]
    )
    assert "without submit_solution" in refused("/rollout", policy=policy, tasks=[task])
    assert "tasks.0.environment: no 'other' here" in refused(
        "/rollout", **asked, tasks=[task | {"environment": "other"}]
    )
    for tests, words in (
        ({"x": ""}, "there is no test.sh"),
        ({"test.sh": "", "../x": ""}, "leads"),
    ):
        wrong = task | {"grader": grader | {"tests": tests}}
        assert words in refused("/rollout", **asked, tasks=[wrong])
    late = task | {"grader": grader | {"timeout_seconds": 1e6}}
    assert "timeout_seconds" in refused("/rollout", **asked, tasks=[late])
    submissions = [{"completion": "x"}]
    assert "harbor judges the files of a sandbox" in refused(
        "/reward", submissions=submissions, grader=grader, environment=SHARED
    )
