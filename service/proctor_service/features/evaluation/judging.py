"""Attempts at problems, judged by a service; also answers by expressions, such as CRUXEval's."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proctor_client import Client, InvalidRequestError, RewardOptions, wire
from proctor_client.tasks.task import Answer, Completion, Task
from proctor_service.cli import judging
from proctor_service.cli.judging import Attempt
from proctor_service.judge.extract import extract as extracted

_MARKED = re.compile(r"\[ANSWER\](.*?)(?:\[/ANSWER\]|\Z)", re.DOTALL)
"""An answer between its marks, as in `[ANSWER]7[/ANSWER]`; the second mark may be missing."""


def attempts(pairs: Sequence[tuple[Task, Completion]]) -> list[Attempt]:
    """Return an attempt for each pair, with the completions of each task numbered."""
    counts: Counter[str] = Counter()
    found = []
    for task, completion in pairs:
        found.append(Attempt(task, completion, counts[task.id]))
        counts[task.id] += 1
    return found


def judged(
    client: Client,
    items: Sequence[Attempt],
    *,
    extract: wire.Extract,
    job: str,
    cache: bool = True,
) -> Iterator[tuple[Attempt, wire.Result]]:
    """Yield each attempt with its result in order of completion; a refused item has its own error.

    Raises ProctorError.
    """
    options: RewardOptions = {"extract": extract, "job": job, "cache": cache}
    submissions = ((item, submission_of(item)) for item in items)
    for item, result in judging.judged(client, submissions, options):
        yield item, _refused(result) if isinstance(result, InvalidRequestError) else result


def submission_of(item: Attempt) -> dict[str, Any]:
    """Return the submission of an attempt."""
    task = item.task
    fields = {"id": task.id, "group": task.id, **task.fields, "completion": item.completion}
    if task.answer is not None:
        fields |= {"completion": program_of(task.answer, item.completion), "extract": "none"}
    return fields


def _refused(error: InvalidRequestError) -> wire.Result:
    problem = wire.ItemError(reason="invalid_task", message=error.message, retryable=False)
    return wire.Result(
        index=0, evaluation_id="", error=problem, integrity="separated", cache="miss"
    )


def program_of(answer: Answer, completion: Completion) -> str:
    """Return a program with the function `answer`, or an empty text without an answer.

    An answer may stand between [ANSWER] and [/ANSWER], in a fence, or behind or before the `==` of
    an assert statement.
    """
    text = _text_of(completion)
    marked = _MARKED.search(text)
    text = (marked[1] if marked else extracted(text, "auto") or text).strip()
    found = _expression(text.removeprefix("assert").strip())
    if isinstance(found, ast.Compare) and isinstance(found.ops[0], ast.Eq):
        found = found.left if answer.of_arguments else found.comparators[0]
    if found is None:
        return ""
    if not answer.of_arguments:
        # Only a literal is a prediction: an expression could call the function.
        return f"def answer():\n    return {ast.unparse(found)}\n" if _is_literal(found) else ""
    call = found
    if not (isinstance(found, ast.Call) and ast.unparse(found.func) == answer.function):
        call = _expression(f"{answer.function}({text})") or found
    if not isinstance(call, ast.Call):
        return ""
    call.func = ast.Name("_arguments", ast.Load())
    return (
        f"{answer.code}\n\ndef _arguments(*args, **kwargs):\n    return args, kwargs\n\n"
        f"def answer():\n    return {ast.unparse(ast.fix_missing_locations(call))}\n"
    )


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _is_literal(found: ast.expr) -> bool:
    try:
        ast.literal_eval(found)
    except (ValueError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _text_of(completion: Completion) -> str:
    """Return the text: for chat messages, the last message of the assistant."""
    if isinstance(completion, str):
        return completion
    texts = [m.get("content") for m in completion if m.get("role") == "assistant"]
    if not texts or not isinstance(texts[-1], str):
        raise ValueError("the completion holds no assistant message with a text")
    return texts[-1]
