"""Fields of a row for several converters. Errors name the field; a BadTask is a ValueError."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, cast

from proctor_client.tasks.task import BadTask, Row
from proctor_client.wire import long_integers

MOST_NESTED = 100
_NAMES = (
    *("task_id", "id", "name", "question_id", "problem_id"),
    *("pid", "unique_id", "uuid"),
)
CASE_FIELDS = ("input", "output", "type", "testtype", "fn_name", "metadata")
"""Fields of a case in the form of LiveCodeBench or PRIME; a row may have others."""
_FUNCTIONAL = frozenset({"functional", "function_call"})
_STDIN = frozenset({"stdin", "stdin_stdout", "stdio", "standard_input"})


def text_of(row: Row, name: str) -> str:
    """Return a required text field. Raises KeyError and ValueError."""
    if not isinstance(row[name], str):
        raise ValueError(f"{name}: no text")
    return cast(str, row[name])


def optional_text(row: Row, *names: str) -> str | None:
    """Return the first non-empty text among these fields, or None."""
    return next((row[each] for each in names if isinstance(row.get(each), str) and row[each]), None)


def origin_of(row: Row, place: str, reference: Any, text: str | None) -> dict[str, Any]:
    """Return where a task comes from; a row without a name has the number of its line."""
    name = next((str(row[key]) for key in _NAMES if row.get(key) is not None), None)
    name = place.rpartition(":")[2] if name is None else name
    return {"id": name, "place": place, "reference": reference, "text": text}


def decoded(row: Row, name: str) -> Any:
    """Return a field; a text is read as JSON, since some sets hold lists so. Raises ValueError."""
    value = decoded_value(row[name])
    if isinstance(value, str):
        raise ValueError(f"{name}: no JSON")
    return value


def decoded_value(value: Any) -> Any:
    """Return a value; a text is read as a list or an object, in JSON or as Python prints it.

    JSON may be in JSON again. Other texts are returned as they are.
    """
    if not isinstance(value, str):
        return plain(value)
    while isinstance(value, str):
        inner = _inner(value)
        if not isinstance(inner, str | list | dict):
            return value
        value = inner
    return value


def _inner(text: str) -> Any:
    try:
        return long_integers.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] not in ("[", "{"):
            return None
    try:
        return plain(ast.literal_eval(text.strip()))  # a column of lists in CSV
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def set_fields(value: Any) -> Any:
    """Return a value without fields that are None: Arrow gives every object the fields of all."""
    if isinstance(value, Mapping):
        return {name: set_fields(each) for name, each in value.items() if each is not None}
    return [set_fields(each) for each in value] if isinstance(value, list) else value


def plain(value: Any, depth: int = 0) -> Any:
    """Return Arrow's and numpy's containers as lists and dicts. Raises BadTask for deep nesting."""
    if depth > MOST_NESTED:
        raise BadTask("the tests are nested too deeply")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    return value


def cases_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[dict[str, str]]:
    """Return the cases of the grader `stdio`; a list holds the lines of a text. Raises BadTask."""
    pairs = pairs_of(inputs, outputs)
    return [{"stdin": stream(a, "in"), "stdout": stream(b, "out")} for a, b in pairs]


def pairs_of(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each input with its output. Raises BadTask for another number of outputs."""
    if len(inputs) != len(outputs):
        raise BadTask(f"{len(inputs)} inputs and {len(outputs)} outputs")
    return list(zip(inputs, outputs, strict=True))


def stream(text: Any, name: str) -> str:
    """Return the standard input or output of a program, a text or its lines. Raises BadTask."""
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if isinstance(text, str):
        return text
    raise BadTask(f"a test without std{name} or {name}put")


def function_of(cases: Sequence[Row]) -> str | None:
    """Return the function that cases call; None for cases of programs with stdin and stdout.

    A case's `type` or `testtype` tells its kind. Raises BadTask for another kind, for both kinds
    together, and for functions without a name or with several.
    """
    kinds = {str(each.get("testtype") or each.get("type") or "stdin") for each in cases}
    unknown = kinds - _FUNCTIONAL - _STDIN
    if unknown:
        raise BadTask(f"type: {min(unknown)[:100]!r} is no kind of test case that is known")
    names = {_function_name(each) for each in cases}
    if not kinds & _FUNCTIONAL and names == {""}:
        return None
    if (kinds & _FUNCTIONAL and kinds & _STDIN) or len(names) > 1 or names == {""}:
        raise BadTask("functional cases need one function's name: metadata.func_name or fn_name")
    return names.pop()


def _function_name(case: Row) -> str:
    metadata = case.get("metadata")
    if isinstance(metadata, str) and metadata:
        metadata = decoded(case, "metadata")
    function = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return str(function or case.get("fn_name") or "")
