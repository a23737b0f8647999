"""Responses are cut out of queries: no prompt, and no special tokens at the end."""

from __future__ import annotations

import pytest

from proctor_client.queries import response_of

PROMPT = (
    "<|im_start|>user\nWrite f. Like:\n```python\nsolution\n```<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    "end",
    ["", "<|im_end|>", "<|im_end|>\n<|endoftext|>", "</s><pad><pad>", "<｜end▁of▁sentence｜>"],
)
@pytest.mark.parametrize("begin", ["", "<s>", "<|begin_of_text|>"])
def test_only_the_response_is_left(begin: str, end: str) -> None:
    assert response_of(f"{begin}{PROMPT}The answer.{end}", PROMPT) == "The answer."


def test_a_prompt_that_was_cut_off_at_its_front() -> None:
    prompt = "x" * 500 + PROMPT
    assert response_of(f"{prompt[300:]}yes", prompt) == "yes"


def test_a_prompt_whose_last_white_space_was_lost() -> None:
    assert response_of("Write f.yes", "Write f.\n") == "yes"


def test_what_the_policy_repeats_is_its_own() -> None:
    assert response_of(f"{PROMPT}a{PROMPT}b", PROMPT) == f"a{PROMPT}b"
    assert response_of("Write f.if x</s>y</s>", "Write f.") == "if x</s>y"
    assert response_of("anything", "") == "anything"
    assert response_of("x <|a|> y <|b|> </s>\n<pad>[PAD]\n", "x") == " <|a|> y"


def test_a_query_without_its_prompt_is_an_error() -> None:
    for prompt in ("Write g.", "\n"):
        with pytest.raises(ValueError, match="does not contain its prompt"):
            response_of("```python\nf\n```", prompt)


def test_the_length_of_a_response_costs_no_more_than_reading_it() -> None:
    for middle in ("\n" * 300_000, "<|a|>" * 300_000, "<|" * 300_000):
        assert response_of(f"p{middle}y</s>", "p") == f"{middle}y"
    assert response_of("p" + "<|a|>\n" * 300_000, "p") == ""
