"""Verifier `regex`: the completion, or its text after a marker, matches a pattern as a whole.

White space at both ends of the text is ignored. The limit of CPU time of the verifier bounds a match
that backtracks without end.
"""

from __future__ import annotations

import re
from typing import Any


class InvalidTask(Exception):
    """The parameters of the task are wrong, whatever the completion."""


def verify(completion: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the score 1.0 for a match of the whole text."""
    try:
        pattern = re.compile(params["pattern"], re.IGNORECASE if params["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidTask(f"params.pattern: {error}") from None
    marker = params.get("after")
    if marker is not None:
        if not marker:
            raise InvalidTask("params.after: an empty marker")
        _, found, completion = completion.rpartition(marker)
        if not found:
            return {"score": 0.0, "message": f"the completion has no {marker[:100]!r}"}
    if pattern.fullmatch(completion.strip()):
        return {"score": 1.0}
    return {"score": 0.0, "message": "the text does not match the pattern"}
