"""The verifier `math` says what math-verify says by itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

math_verify = pytest.importorskip("math_verify", reason="math-verify is not installed")
from proctor_service.features.verifiers.shipped import math as verifier  # noqa: E402

ANSWERS = Path(__file__).parent / "math_answers.toml"
_TEXTS = ("\\boxed", "####", "\n")
"""In a right answer that is a text around an answer; others are LaTeX alone."""
# completion, right answer, form, score: where the final answer is looked for
FORMS = (
    (r"\boxed{1} and \boxed{2}", "2", "any", 1.0),
    (r"\boxed{1} and \boxed{2}", "1", "any", 0.0),
    (r"\boxed{\boxed{5}}", "5", "any", 1.0),
    (r"\boxed {\frac{1}{2}}", "0.5", "any", 1.0),
    (r"\fbox{7}", "7", "any", 1.0),
    (r"$\{x : \boxed{3} \}$ and then \boxed{4", "3", "any", 1.0),
    ("#### 5\n", "5", "hashes", 1.0),
    ("#### 5\nso it is 6", "5", "hashes", 0.0),
    (r"#### 5" + "\n" + r"\boxed{6}", "5", "hashes", 0.0),
    (r"\boxed{6}" + "\n#### 5", "5", "hashes", 1.0),
    ("the answer is 5", "5", "boxed", 0.0),
    ("the answer is 5", "5", "any", 1.0),
    ("#### Step 1\n2 + 3\n\nThe answer is 5.", "5", "any", 1.0),
    ("", "5", "any", 0.0),
    ("no number", "5", "any", 0.0),
)


@pytest.mark.slow
def test_it_says_what_the_library_says() -> None:
    differing, count = [], 0
    for row in tomllib.loads(ANSWERS.read_text())["answers"]:
        right = row["right"]
        is_text = any(each in right for each in _TEXTS)
        gold = math_verify.parse(right if is_text else f"${right}$")
        for completion in row["completions"]:
            theirs = float(math_verify.verify(gold, math_verify.parse(completion)))
            ours = verifier.verify(completion, {"answer": right, "form": "any"})["score"]
            count += 1
            if ours != theirs:
                differing.append((right, completion, ours, theirs))
    assert differing == []
    assert count >= 200


def test_the_final_answer_is_the_last_box_or_behind_hashes_in_the_last_line() -> None:
    found = [
        verifier.verify(completion, {"answer": answer, "form": form})["score"]
        for completion, answer, form, _ in FORMS
    ]
    assert found == [score for *_, score in FORMS]


def test_one_of_several_right_answers_is_enough() -> None:
    params = {"answer": ["1", r"\frac{3}{2}"], "form": "any"}
    scores = [verifier.verify(text, params)["score"] for text in ("1.5", r"\boxed{1}", "2")]
    assert scores == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("answer", ["", [], [3]])
def test_an_unreadable_right_answer_is_the_fault_of_the_task(answer: object) -> None:
    with pytest.raises(verifier.InvalidTask):
        verifier.verify("5", {"answer": answer, "form": "any"})


def test_many_open_boxes_take_no_long_time() -> None:
    text = r"\boxed{" * 100_000 + "5}"
    assert verifier.final_answer(text) == r"\boxed{5}"
