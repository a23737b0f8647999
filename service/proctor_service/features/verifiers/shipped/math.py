"""Verifier `math`: the final answer equals the right one, by math-verify.

The final answer of a completion is the last complete `\\boxed{}`, or else the text behind `####` in its
last line, as in GSM8K, or else as math-verify finds it. Needs the package math-verify. Its own timers
measure the time of the clock, on which a busy machine has an influence; here the verifier's limit of
CPU time takes their place.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import math_verify

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
"""Matches the beginning of `\\boxed{5}` and of `\\fbox {5}`."""
_BRACES = re.compile(r"\\[{}\\]|[{}]")
"""Matches braces, and escaped ones together with their backslash: `{`, `\\}`."""
_HASHES = re.compile(r"####[ \t]*([^\n]+)\s*\Z")
"""Matches "#### 72" at the end of a text; not "#### Step 2" above other lines."""
_MARKED = re.compile(r"(?<!\\)\$|\\\(|\\\[")
"""Matches LaTeX inside a text: `$x$`, `\\(x\\)`, `\\[x\\]`; not `\\$5`."""


class InvalidTask(Exception):
    """The parameters of the task are wrong, whatever the completion."""


def verify(completion: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the score 1.0 for an equal answer."""
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    answers = params["answer"]
    answers = [answers] if isinstance(answers, str) else answers
    if not answers or not all(isinstance(each, str) for each in answers):
        raise InvalidTask("params.answer: neither a text nor a list of texts")
    right = [_right(each) for each in answers]
    text = final_answer(completion, params["form"])
    if text is None:
        return {"score": 0.0, "message": f"no final answer of the form {params['form']}"}
    found = _parsed(text)
    if not found:
        return {"score": 0.0, "message": "math-verify finds no answer"}
    if any(math_verify.verify(each, found, timeout_seconds=None) for each in right):
        return {"score": 1.0}
    return {"score": 0.0, "message": "another answer"}


def final_answer(text: str, form: str = "any") -> str | None:
    """Return the part of a text that math-verify reads; None if the form is missing."""
    if form != "hashes" and (boxed := _last_boxed(text)) is not None:
        return f"\\boxed{{{boxed}}}"
    if form != "boxed" and (found := _HASHES.search(text)) is not None:
        return found[1].strip()
    return text if form == "any" else None


def _right(answer: str) -> list[Any]:
    """Return a right answer as math-verify reads it. Raises InvalidTask."""
    text = final_answer(answer) or ""
    found: list[Any] = []
    if text == answer and not _MARKED.search(answer):
        found = _parsed(f"\\boxed{{{answer}}}")
    found = found or _parsed(text)
    if not found:
        raise InvalidTask("params.answer: math-verify reads no answer in it")
    return found


def _parsed(text: str) -> list[Any]:
    found: list[Any] = math_verify.parse(text, parsing_timeout=None)
    return found


def _last_boxed(text: str) -> str | None:
    """Return the content of the complete `\\boxed{}` that begins last."""
    boxes = {match.end() for match in _BOXED.finditer(text)}
    opened: list[int] = []
    last, content = -1, None
    for token in _BRACES.finditer(text):
        if token[0] == "{":
            opened.append(token.end())
        elif token[0] == "}" and opened:
            start = opened.pop()
            if start in boxes and start > last:
                last, content = start, text[start : token.start()]
    return content
