"""Verifier `exact`: the completion, or its text after a marker, equals an answer.

Both are compared without white space at their ends, with `\\n` as the end of a line, and in Unicode's
normal form C.
"""

from __future__ import annotations

import unicodedata
from typing import Any


class InvalidTask(Exception):
    """The parameters of the task are wrong, whatever the completion."""


def verify(completion: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the score 1.0 for an equal text."""
    answers = params["answer"]
    answers = [answers] if isinstance(answers, str) else answers
    if not answers or not all(isinstance(each, str) for each in answers):
        raise InvalidTask("params.answer: neither a text nor a list of texts")
    marker = params.get("after")
    if marker is not None:
        if not marker:
            raise InvalidTask("params.after: an empty marker")
        _, found, completion = completion.rpartition(marker)
        if not found:
            return {"score": 0.0, "message": f"the completion has no {marker[:100]!r}"}
    ignore_case = params["ignore_case"]
    wanted = {_normal(each, ignore_case) for each in answers}
    if _normal(completion, ignore_case) in wanted:
        return {"score": 1.0}
    return {"score": 0.0, "message": "the text differs from the answer"}


def _normal(text: str, ignore_case: bool) -> str:
    text = text.replace("\r\n", "\n").strip()
    if ignore_case:
        text = unicodedata.normalize("NFC", text).casefold()
    return unicodedata.normalize("NFC", text)
