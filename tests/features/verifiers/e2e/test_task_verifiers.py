"""Verifiers of tasks' authors: right and wrong completions, scores, and what goes between the sandboxes."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service
from judging import judge
from optional_programs import skip_without
from verifier_problems import PROBLEMS, Problem


def grader_of(problem: Problem) -> dict[str, Any]:
    """The grader of a problem."""
    return {"kind": "verifier", "source": problem.verifier, **problem.grader}


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(service: Service, name: str) -> None:
    problem = PROBLEMS[name]
    skip_without(*problem.needs)
    grader = grader_of(problem)
    wanted = dict.fromkeys(problem.right, ("passed", 1.0)) | dict(problem.wrong)
    items = [{"completion": text, **problem.submission} for text in wanted]
    prompt = {"prompt": problem.submission["prompt"]} if "prompt" in problem.submission else {}
    results = judge(service, *items, grader=grader, extract="auto", **prompt)
    least, most = grader.get("min", 0.0), grader.get("max", 1.0)
    for (text, (verdict, score)), result in zip(wanted.items(), results, strict=True):
        assert result["verdict"] == verdict, (text, result)
        assert result["reward"] == pytest.approx(least + score * (most - least)), (text, result)
        assert result["integrity"] == "separated"
