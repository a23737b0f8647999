"""SandboxFusion's /submit with real sandboxes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from compat_requests import post


def submit(completion: str, *cases: tuple[str, str], **config: Any) -> dict[str, Any]:
    test = [{"input": {"stdin": i}, "output": {"stdout": o}} for i, o in cases]
    data = {"id": 7, "content": "", "labels": {}, "test": test}
    fields = {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": data}
    return {"dataset": "any", "id": 7, "completion": completion, "config": fields | config}


def test_submit_judges_case_by_case(client: httpx.Client) -> None:
    cases = (("1", "2"), ("2", "4"), ("5", "10"))
    right = post(client, "submit", submit("```python\nprint(2 * int(input()))\n```", *cases))
    assert (right["id"], right["accepted"]) == (7, True)
    assert set(right) == {
        "id", "accepted", "extracted_code", "full_code", "test_code", "tests", "extracted_type",
        "extra",
    }  # fmt: skip
    assert all(set(test) == {"passed", "exec_info", "test_info"} for test in right["tests"])
    assert right["extracted_code"] == "print(2 * int(input()))"
    assert [test["passed"] for test in right["tests"]] == [True] * 3
    assert right["tests"][2]["exec_info"]["run_result"]["stdout"] == "10\n"
    wrong = submit("```python\nprint(int(input()) ** 2 or 1)\n```", *cases)
    said = post(client, "submit", wrong)
    assert said["accepted"] is False
    assert [test["passed"] for test in said["tests"]] == [False]
    said = post(client, "submit", submit("No idea.", *cases))
    assert (said["accepted"], said["tests"], said["extracted_type"]) == (False, [], "empty")
    late = submit("```python\nwhile 1: pass\n```", *cases, run_timeout=0.5)
    [test] = post(client, "submit", late)["tests"]
    assert test["exec_info"]["run_result"]["status"] == "TimeLimitExceeded"
    assert test["exec_info"]["run_result"]["return_code"] is None


def test_submit_compiles(client: httpx.Client) -> None:
    broken = submit("```cpp\nint main() { return x; }\n```", ("1", "2"), language="cpp")
    [test] = post(client, "submit", broken)["tests"]
    assert test["exec_info"]["run_result"] is None
    assert test["exec_info"]["compile_result"]["return_code"] == 1


@pytest.mark.parametrize(
    "code",
    ["import os\nos._exit(0)", "raise SystemExit(0)", "print(open('/proc/self/cmdline').read())"],
)
def test_submit_rewards_nobody_for_leaving(client: httpx.Client, code: str) -> None:
    assert not post(client, "submit", submit(f"```python\n{code}\n```", ("1", "2")))["accepted"]


def test_a_large_integer_that_is_almost_right_is_wrong(client: httpx.Client) -> None:
    def accepted(printed: str, expected: str) -> bool:
        code = f"```python\nprint({printed!r})\n```"
        answer: dict[str, Any] = post(client, "submit", submit(code, ("", expected)))
        return bool(answer["accepted"])

    assert not accepted("123456789012", "123456789013")
    assert not accepted("0.5 1000000008", "0.5 1000000007")
    assert accepted("0.33333333 1000000007", "0.333333 1000000007")


SAME = [
    ("Yes\nNO", "YES\nno"),
    ("\n  1 2 \n\n3", "1 2\n3\n"),
    ("0.33333333", "0.333333"),
    ("1.000009e5", "1e5"),
    ("1000000007.5", "1000000007"),
    ("3.0", "3"),
    ("0.0", "0.00"),
    ("inf", "INF"),
]
DIFFERENT = [
    ("1\n2", "1 2"),
    ("1 2 3", "1 2"),
    ("0.0000001", "0.0000004"),
    ("0.00001", "0.0"),
    ("1.00002e5", "1e5"),
    ("a  b", "a b"),
    ("nan", "1"),
]


def test_outputs_are_compared_as_in_sandbox_fusion(client: httpx.Client) -> None:
    pairs = SAME + DIFFERENT
    tests = [(str(index), expected) for index, (_, expected) in enumerate(pairs)]
    code = f"PRINTED = {[printed for printed, _ in pairs]!r}\nprint(PRINTED[int(input())])"
    asked = submit(f"```python\n{code}\n```", *tests, extra={"run_all_cases": True})
    answer = post(client, "submit", asked)
    found = dict(zip(pairs, (test["passed"] for test in answer["tests"]), strict=True))
    assert found == {pair: pair in SAME for pair in pairs}


@pytest.mark.parametrize(
    "completion",
    [
        "print(2 * int(input()))",
        "```python\nprint(2 * int(input()))\n```\nRun it:\n```\n$ echo 1 | python a.py\n2\n```",
        "```python\nprint(1)\n```\nNo, better:\n```python\nprint(2 * int(input()))\n```",
        "<answer>\nprint(2 * int(input()))\n</answer>",
    ],
)
def test_code_is_taken_out_as_reward_does(client: httpx.Client, completion: str) -> None:
    assert post(client, "submit", submit(completion, ("4", "8")))["accepted"] is True
    label = json.dumps([{"input": "4", "output": "8"}])
    asked = {"prompt": "", "response": completion, "label": label}
    assert post(client, "remote_rm", asked) == 1.0
    tests = ["assert callable(print)"]
    one = post(client, "reward", {"prompt": "", "response": completion, "tests": tests})
    assert one["extracted_code"] == "print(2 * int(input()))"


def test_what_is_no_code_is_none_on_every_route(client: httpx.Client) -> None:
    prose = "Sorry, I cannot."
    assert post(client, "submit", submit(prose, ("", "")))["accepted"] is False
    label = json.dumps([{"input": "", "output": ""}])
    assert post(client, "remote_rm", {"response": prose, "label": label}) == 0.0
    assert post(client, "reward", {"response": prose, "tests": ["assert True"]})["reward"] == 0.0
