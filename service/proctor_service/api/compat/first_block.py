"""Code by the rule of SandboxFusion and SkyPilot: the first fenced block, where Proctor takes the last.

Who moves a training run over is to have the same code judged as before.
"""

from __future__ import annotations

import re
from typing import Literal

from proctor_service.judge.extract import FENCE_NAMES, MAX_SEARCHED_CHARACTERS, extract

Found = Literal["fenced", "incomplete_fenced", "heuristic", "empty"]

_FENCED = re.compile(r"```([^\n`]*)\n(.*?)\n[ \t]*```", re.DOTALL)
_INCOMPLETE = re.compile(r"```([^\n`]*)\n(.*?)(?:```|\Z)", re.DOTALL)


def first_block(completion: str, language: str) -> tuple[str, Found]:
    """The first block of the language, else the first of any; then an unclosed one; then all of it.

    All of it only where it is a program as it stands (`judge/extract.py`); up to a fence where the
    prompt was what opened it.
    """
    text = completion[:MAX_SEARCHED_CHARACTERS]
    names = FENCE_NAMES.get(language, frozenset({language}))
    blocks = _FENCED.findall(text)
    for name, code in blocks:
        if name.strip().lower() in names:
            return code, "fenced"
    if blocks:
        return blocks[0][1], "fenced"
    before, fence, _ = text.partition("```")
    if (match := _INCOMPLETE.search(text)) is not None and (
        match.group(1).strip() or not before.strip() or extract(before, "auto", language) is None
    ):
        return match.group(2), "incomplete_fenced"
    whole = extract(before if fence else text, "auto", language)
    return (whole, "heuristic") if whole is not None else ("", "empty")
