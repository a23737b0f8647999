"""Tags from the environment, and tags as Kubernetes labels."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client import environment_tags, kubernetes_labels

# The rule of Kubernetes for a label's value, and, not empty, for its key.
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def test_what_is_known_becomes_a_tag() -> None:
    environ = {"WANDB_RUN_ID": "abc123", "SLURM_JOB_ID": "4711", "HOME": "/root"}
    assert environment_tags(model="Qwen/Qwen2.5", env="mbpp", environ=environ) == (
        "wandb-run:abc123",
        "slurm-job:4711",
        "model:Qwen/Qwen2.5",
        "env:mbpp",
    )


@pytest.mark.parametrize("environ", [{}, {"WANDB_RUN_ID": "", "SLURM_JOB_ID": "  "}])
def test_what_is_not_known_becomes_none(environ: dict[str, str]) -> None:
    assert environment_tags(environ=environ) == ()
    assert environment_tags(environ=environ, env=" mbpp\n") == ("env:mbpp",)


def test_the_process_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "from-here")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert environment_tags() == ("wandb-run:from-here",)


@pytest.mark.parametrize(
    ("tag", "key", "value"),
    [
        ("trl-grpo", "trl-grpo", "true"),
        ("slurm-job:4711", "slurm-job", "4711"),
        ("model:Qwen/Qwen2.5-0.5B", "model", "Qwen-Qwen2.5-0.5B"),
        ("a:b:c", "a", "b-c"),
        ("-_.key._-:  value  ", "key", "value"),
        ("empty:", "empty", ""),
        ("name:é", "name", ""),
        ("x" * 63, "x" * 63, "true"),
    ],
)
def test_a_tag_as_a_label(tag: str, key: str, value: str) -> None:
    assert kubernetes_labels([tag]) == {key: value}


def test_what_is_too_long_is_cut_and_stays_distinct() -> None:
    [(key, value)] = kubernetes_labels([f"{'k' * 64}:{'v' * 53}-{'v' * 99}"]).items()
    assert re.fullmatch(r"k{54}-[0-9a-f]{8}", key)
    assert re.fullmatch(r"v{53}-[0-9a-f]{8}", value)
    one, other = (kubernetes_labels([f"run:{'v' * 70}{end}"])["run"] for end in "ab")
    assert one != other


def test_tags_that_would_collide_are_all_kept() -> None:
    labels = kubernetes_labels(["problem:1", "problem:2", "problem:1", "a b", "a/b", "ü", "ö"])
    assert len(labels) == 6
    assert labels["problem"] == "1"
    assert labels["a-b"] == "true"
    assert sorted(labels.values()) == ["1", "2", *["true"] * 4]


def test_labels_are_the_same_in_every_process() -> None:
    assert kubernetes_labels(["p:1", "p:2"]) == {"p": "1", "p-4edd1f56": "2"}


def test_a_tag_that_is_another_ones_label_takes_nothing_from_it() -> None:
    [_, taken] = kubernetes_labels(["p:1", "p:2"])
    labels = kubernetes_labels([taken, "p:1", "p:2"])
    assert len(labels) == 3
    assert labels[taken] == "true"


@given(st.lists(st.text() | st.from_regex(r"[a-c]{1,2}(:[a-c -]{0,2})?", fullmatch=True)))
def test_any_tags_become_valid_labels_and_none_is_lost(tags: list[str]) -> None:
    labels = kubernetes_labels(tags)
    assert len(labels) == len(set(tags))
    for key, value in labels.items():
        assert 1 <= len(key) <= 63
        assert len(value) <= 63
        assert LABEL.fullmatch(key)
        assert LABEL.fullmatch(value)
