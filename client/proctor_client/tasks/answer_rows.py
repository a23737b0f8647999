"""Rows with answers as completions, judged by verifiers of the service: mathematics, and queries in SQL."""

from __future__ import annotations

import re

from proctor_client.tasks.fields import optional_text, origin_of, text_of
from proctor_client.tasks.task import BadTask, Row, Task

_OF_GSM8K = re.compile(r"####[ \t]*(\S[^\n]*?)\s*\Z")
"""The last line of an answer of GSM8K: `#### 1,234`."""
_BOXED = re.compile(r"\\(?:boxed|fbox)\b")
"""A box such as `\\boxed{42}`."""
_NO_ANSWERS = frozenset({"", "proof", "notfound"})
"""Answers of NuminaMath and OpenR1-Math to problems without one."""


def gsm8k(row: Row, place: str) -> Task:
    """GSM8K: the answer ends with `####` and a number."""
    answer = text_of(row, "answer")
    found = _OF_GSM8K.search(answer)
    if found is None:
        raise BadTask("answer: no line with ####")
    return _math(row, place, found[1].replace(",", ""), answer)


def math(row: Row, place: str) -> Task:
    """MATH, AIME, OpenR1-Math: an `answer`, or a `solution` with a boxed answer."""
    solution = optional_text(row, "solution")
    boxed = solution is not None and _BOXED.search(solution) is not None
    answer = solution if row.get("answer") is None and boxed else row.get("answer")
    if answer is None or str(answer).strip().casefold() in _NO_ANSWERS:
        raise BadTask("neither an answer nor a solution with a \\boxed one")
    return _math(row, place, str(answer), solution if boxed else f"\\boxed{{{answer}}}")


def spider(row: Row, place: str) -> Task:
    """Spider: a question to a database, and the right query."""
    return _sql(row, place, text_of(row, "query"), "spider")


def bird(row: Row, place: str) -> Task:
    """BIRD: a question to a database, and the right query."""
    return _sql(row, place, text_of(row, "SQL"), "bird")


def is_gsm8k(row: Row) -> bool:
    """Return True for an answer in the form of GSM8K."""
    return bool(_OF_GSM8K.search(str(row.get("answer"))))


def is_math(row: Row) -> bool:
    """Tell whether a row with a problem has an answer, as a text or a number, or a box in its solution."""
    answer = row.get("answer")
    if isinstance(answer, str | int | float):
        return True
    return answer is None and bool(_BOXED.search(str(row.get("solution"))))


def _math(row: Row, place: str, answer: str, reference: str | None) -> Task:
    grader = {"kind": "verifier", "name": "math", "params": {"answer": answer}}
    text = optional_text(row, "problem", "question")
    return Task(grader=grader).with_fields(origin_of(row, place, reference, text))


def _sql(row: Row, place: str, query: str, compare: str) -> Task:
    name = text_of(row, "db_id")
    params = {"gold": query, "database": f"{name}/{name}.sqlite", "compare": compare}
    grader = {"kind": "verifier", "name": "sql", "params": params}
    parts = [optional_text(row, each) for each in ("question", "evidence")]
    text = "\n\n".join(part for part in parts if part)
    return Task(grader=grader).with_fields(origin_of(row, place, query, text or None))
