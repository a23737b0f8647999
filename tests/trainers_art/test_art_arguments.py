"""Defaults of the ART script, which are those of the guides to it, and what it asks of a policy."""

from __future__ import annotations

import pytest
from policy_server import Act, Asked, calls, fails, policy_server
from service_process import ServiceProcess

from proctor_trainers.art.__main__ import run
from proctor_trainers.art.arguments import Job, parser


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ("Qwen/Qwen3-8B", 5, 1e-5, 0, 10, 2)),
        (["--agent", "refine"], ("Qwen/Qwen2.5-3B-Instruct", 10, 2e-5, 100, 0, 2)),
        (
            [
                "--agent",
                "refine",
                "--num-steps",
                "3",
                "--dataset-limit",
                "0",
                "--base-model",
                "own",
            ],
            ("own", 3, 2e-5, 0, 0, 2),
        ),
    ],
)
def test_the_agent_decides_on_what_is_not_given(
    given: list[str], wanted: tuple[str | float, ...]
) -> None:
    args = Job.of(parser().parse_args(given)).args
    names = "base_model num_steps learning_rate dataset_limit num_problems trajectories_per_problem"
    assert tuple(getattr(args, name) for name in names.split()) == wanted


def test_without_limits_all_problems_are_read() -> None:
    given = ["--agent", "refine", "--dataset", "toy", "--dataset-limit", "0"]
    assert len(Job.of(parser().parse_args(given)).problems()) == 8


def test_openai_may_refuse_logprobs(
    service: ServiceProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its reasoning models do, which no ART trains."""

    def answer(asked: Asked) -> Act:
        if "logprobs" in asked.body:
            return fails(400, "'logprobs' is not supported with this model")
        return calls(("submit_solution", {"code": "1"}))

    with policy_server(answer) as policy:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        monkeypatch.setenv("OPENAI_BASE_URL", policy.url)
        status = run(["--dry-run", "--backend", "memory", "--dataset", "toy",
                      "--service-url", service.url, "--use-openai"])  # fmt: skip
    out = capsys.readouterr().out
    assert status == 0, out
    assert "0 tokens with logprobs" in out


def test_in_a_distillation_one_model_plays_and_another_learns(
    service: ServiceProcess, capsys: pytest.CaptureFixture[str], nowhere: str
) -> None:
    given = ["--distill", "--backend", "memory", "--dataset", "toy", "--num-problems", "1",
             "--num-steps", "1", "--base-model", "student", "--model", "teacher",
             "--service-url", service.url]  # fmt: skip
    with policy_server(lambda asked: calls(("submit_solution", {"code": "1"}))) as policy:
        assert run([*given, "--base-url", policy.url]) == 0
        assert {asked.body["model"] for asked in policy.received} == {"teacher"}
    assert "Distillation: the policy plays, student learns" in capsys.readouterr().out
    local = Job.of(parser().parse_args(["--distill", "--base-url", "http://a/v1"]))
    assert local.train_options == {"allow_training_without_logprobs": True}
    given[given.index("memory")] = "tinker"
    assert run([*given, "--base-url", f"{nowhere}/v1"]) == 1
