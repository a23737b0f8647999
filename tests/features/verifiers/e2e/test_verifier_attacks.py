"""Attacks on verifiers: none earns anything, none gets an error, and honest programs are right."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Service
from judging import judge
from optional_programs import skip_without
from verifier_attacks import ATTACKS, HONEST, SECRET, SLOW, VERIFIERS

LIMITS = {"cpu_seconds": 0.5, "wall_seconds": 0.5, "memory_mb": 256}
LEAST = -1.0
IN_JAVASCRIPT = """
const lines = require("readline").createInterface({input: process.stdin})[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
(async () => {
    const {params} = await next();
    console.log(JSON.stringify({call: ["f"]}));
    const called = await next();
    console.log(JSON.stringify({run: {stdin: ""}}));
    const ran = await next();
    const printed = (ran.stdout || "").trim();
    console.log(JSON.stringify({score: Number(called.value === params.secret && printed === params.secret)}));
})();
"""


def attacked(service: Service, source: str, names: list[str], **grader: Any) -> None:
    """Judge these attacks, with honest programs among them."""
    items = [{"completion": ATTACKS[name], "id": name} for name in names]
    for place in range(len(items), -1, -10):
        items.insert(place, {"completion": HONEST, "id": "honest"})
    task = {"source": source, "params": {"secret": SECRET}, "min": LEAST, "reveal": True}
    results = judge(
        service,
        *items,
        grader={"kind": "verifier", **task, **grader},
        extract="auto",
        limits=LIMITS,
    )
    for result in results:
        if result["id"] != "honest":
            assert (result["reward"], result["verdict"] == "passed") == (LEAST, False), result
        elif source != VERIFIERS["close numbers"]:
            assert (result["reward"], result["verdict"]) == (1.0, "passed"), result


@pytest.mark.parametrize("name", VERIFIERS)
def test_no_attack_earns_anything(service: Service, name: str) -> None:
    quick = [each for each in ATTACKS if each not in SLOW]
    attacked(service, VERIFIERS[name], list(ATTACKS) if name in ("calls", "runs") else quick)


def test_no_attack_earns_anything_of_a_program(service: Service) -> None:
    skip_without("node")
    quick = [each for each in ATTACKS if each not in SLOW]
    attacked(service, IN_JAVASCRIPT, quick, verifier_language="javascript")


@pytest.mark.parametrize(
    "use",
    ["submission.call('f')", "submission.run()", "submission.fresh().call('f')"],
)
def test_a_slow_submission_gets_a_verdict_before_the_deadline(service: Service, use: str) -> None:
    source = f"""
def verify(submission):
    for _ in range(10_000):
        try:
            {use}
        except SubmissionError as error:
            if error.verdict == "timeout":
                raise
    return 1.0
"""
    [result] = judge(
        service,
        {"completion": "import time\ntime.sleep(2)\ndef f(): time.sleep(2)"},
        grader={"kind": "verifier", "source": source},
        limits={"wall_seconds": 5.0},
        deadline_seconds=7.0,
    )
    assert (result["verdict"], result["reward"]) == ("timeout", 0.0)


LONG = """
def verify(completion, submission):
    return len(completion) > 3_000_000 and submission.call("f", completion) == len(completion)
"""


def test_long_completions_are_no_errors(service: Service) -> None:
    texts = ["def f(x): return len(x)\n" + "#" * size for size in (3_100_000, 20_000_000)]
    grader = {"kind": "verifier", "source": LONG}
    results = [
        judge(service, {"completion": text}, grader=grader, extract="auto")[0] for text in texts
    ]
    assert [result["reward"] for result in results] == [1.0, 0.0], results
    assert [result["verdict"] for result in results] == ["passed", "failed"]
