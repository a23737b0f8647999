"""Responses in whole queries: some trainers send a prompt and its response as a single text.

The text is the decoded tokens, with special tokens such as `<|im_end|>`. The prompt must not be
judged: prompts may contain code, even the solution.
"""

from __future__ import annotations

import re

TAIL_CHARACTERS = 200
# The special tokens at the end, read backwards: from the front, the time would be quadratic in the
# length of white space, which the policy chooses.
_REVERSED_END = re.compile(
    r"\s*+(?:(?:>\|[^<>|\s]{1,40}+\|<|>｜[^<>｜\s]{1,40}+｜<|>s/<|>soe<|>dap<|>knu<|>nrut_fo_dne<|\]DAP\[)\s*+)++"
)
"""Special tokens at the end, such as `<|im_end|>`, `</s>` and `[PAD]`, as `>|dne_mi|<`, `>s/<`, `]DAP[`."""


def response_of(query: str, prompt: str) -> str:
    """Return the response: the query without the prompt and without the special tokens at its end.

    A query may begin with special tokens before the prompt, and with the end of a prompt that the
    trainer cut off at its front. Raises ValueError if the query does not contain the prompt's end.
    """
    return without_special_tokens(_without_prompt(query, prompt))


def without_special_tokens(text: str) -> str:
    """Return the text without the special tokens at its end, and the white space around them."""
    tokens = _REVERSED_END.match(text[::-1])
    return text if tokens is None else text[: len(text) - tokens.end()]


def _without_prompt(query: str, prompt: str) -> str:
    if query.startswith(prompt):
        return query[len(prompt) :]
    for part in (prompt, prompt.rstrip(), prompt[-TAIL_CHARACTERS:]):
        place = query.find(part) if part.strip() else -1
        if place >= 0:
            return query[place + len(part) :]
    raise ValueError("the query does not contain its prompt")
