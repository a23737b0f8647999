"""Graders from ground truths and labels: the tests of a problem in one field, in several forms.

A value, or its JSON text, is one of

    {"kind": "asserts", …}                              a grader of the service
    ["assert f(1) == 2", …]                             Python statements; or one text of them
    {"inputs": […], "outputs": […]}                     programs with stdin and stdout, as in APPS,
                                                        TACO, CodeContests and PRIME's data
    {"inputs": […], "outputs": […], "fn_name": "f"}     calls: arguments and a value, as JSON lines
                                                        or as lists
    {"assert_case": […]}                                Python statements, as for SandboxFusion
    [{"input": …, "output": …}, …]                      cases, as in LiveCodeBench; `testtype`
                                                        "functional" with `metadata.func_name`: calls
    {"tests": …, "setup": …, "entry_point": …}          the columns of proctor_client.tasks.columns;
                                                        `test_list` and `test` as in MBPP, HumanEval

The rules for `fn_name` are those of PRIME's checker: a line of JSON for each argument, a method of
`class Solution` where the completion defines this class, and an expected list with a single item
stands for the list or for the item.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor_client.tasks.columns import GRADER, TESTS, BadTask, Row, task_from_columns
from proctor_client.tasks.fields import cases_of, pairs_of

GROUND_TRUTH = "ground_truth"
COMPLETION = "completion"
MOST_NESTED = 100
TOLERANCE = 1e-6
"""APPS and TACO compare floats by numpy's `allclose`, whose relative tolerance is 1e-5."""
_STATEMENT = re.compile(r"\b(assert|raise|def check|self\.assert\w+|assert_\w+)\b|\braises\(")
_SOLUTION = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_FENCE = re.compile(r"^[ \t>]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
_GROUND_TRUTHS = (GROUND_TRUTH, "label", "input_output", "answer")
_SETUP = ("setup", "prefix", "import_prefix")


def task_from_ground_truth(row: Row) -> Mapping[str, Any]:
    """Return the grader for the row's `ground_truth`; `completion` may show a `class Solution`.

    Raises BadTask.
    """
    return {"grader": grader_of(row.get(GROUND_TRUTH), str(row.get(COMPLETION) or ""))}


def task_from_row(row: Row) -> Mapping[str, Any]:
    """Return the grader for a row: its columns as in proctor_client.tasks.columns, or a ground truth.

    The columns with a ground truth are `ground_truth`, `label`, `input_output` and `answer`. Raises
    BadTask, and MissingColumns if no column defines the judging.
    """
    if not any(row.get(name) is not None for name in (GRADER, *TESTS)):
        for name in _GROUND_TRUTHS:
            if row.get(name) is not None:
                return {"grader": grader_of(row[name], str(row.get(COMPLETION) or ""))}
    return task_from_columns(row)


def grader_of(value: Any, completion: str = "") -> Mapping[str, Any]:
    """Return the grader described by a ground truth or a label. Raises BadTask."""
    value = _decoded(value)
    if isinstance(value, Mapping) and isinstance(value.get("input_output"), str | Mapping):
        value = _decoded(value["input_output"])
    if isinstance(value, str) and value.strip():
        return _asserts([value])
    if isinstance(value, Mapping):
        return _of_object(value, completion)
    if isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return _asserts(value)
        if all(isinstance(each, Mapping) for each in value):
            return _of_cases(value, completion)
    raise BadTask("the ground truth holds neither a grader nor tests")


def _asserts(tests: Sequence[str]) -> Mapping[str, Any]:
    """Return a grader for statements. An answer in words or numbers is no test."""
    if not any(_STATEMENT.search(test) for test in tests):
        raise BadTask("the ground truth is a text without assert statements")
    return {"kind": "asserts", "tests": list(tests)}


def _of_object(value: Mapping[str, Any], completion: str) -> Mapping[str, Any]:
    if "kind" in value:
        return {name: each for name, each in value.items() if each is not None}
    if isinstance(value.get("assert_case"), list):
        setup = "\n".join(str(value[name]) for name in _SETUP if value.get(name))
        return {"kind": "asserts", "tests": value["assert_case"], "setup": setup}
    if "inputs" in value or "outputs" in value:
        inputs, outputs = value.get("inputs"), value.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
            raise BadTask("inputs and outputs: two lists are needed, with a case or more")
        name = value.get("fn_name")
        if name:
            return calls_of(str(name), inputs, outputs, in_class=_in_class(str(name), completion))
        return programs_of(inputs, outputs)
    if any(value.get(name) is not None for name in (GRADER, *TESTS)):
        grader: Mapping[str, Any] = task_from_columns(value)["grader"]
        return grader
    if isinstance(value.get("functional"), str):
        return {"kind": "asserts", "tests": [value["functional"]]}
    raise BadTask(f"the ground truth has no tests: its fields are {', '.join(sorted(value))}")


def _of_cases(cases: Sequence[Mapping[str, Any]], completion: str) -> Mapping[str, Any]:
    inputs = [each.get("stdin", each.get("input", "")) for each in cases]
    outputs = [each.get("stdout", each.get("output")) for each in cases]
    kinds = {str(each.get("testtype") or each.get("type") or "stdin") for each in cases}
    if not kinds & {"functional", "function_call"}:
        return programs_of(inputs, outputs)
    names = {_function_of(each) for each in cases}
    if len(kinds) > 1 or len(names) > 1 or not names - {""}:
        raise BadTask("functional cases need one function's name: metadata.func_name or fn_name")
    name = names.pop()
    return calls_of(name, inputs, outputs, in_class=_in_class(name, completion))


def _function_of(case: Mapping[str, Any]) -> str:
    metadata = _decoded(case.get("metadata"))
    told = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    return str(told or case.get("fn_name") or "")


def programs_of(inputs: Any, outputs: Any) -> Mapping[str, Any]:
    """Return a grader for programs. Decimal fractions need not have all digits; integers are exact."""
    return {"kind": "stdio", "cases": cases_of(inputs, outputs), "tolerance": TOLERANCE}


# ---------------------------------------------------------------- calls


def calls_of(
    name: str, inputs: Sequence[Any], outputs: Sequence[Any], *, in_class: bool
) -> Mapping[str, Any]:
    """Return a grader for calls, as JSON; or as statements where JSON cannot tell what is right.

    `in_class`: call a method of `class Solution`. Raises BadTask.
    """
    if not name.isidentifier():
        raise BadTask(f"fn_name: {name[:100]!r} is no name of a function")
    target = f"Solution().{name}" if in_class else name
    cases = [(_arguments(a), _expected(b)) for a, b in pairs_of(inputs, outputs)]
    is_plain = not in_class  # the grader `calls` takes no methods
    if is_plain and not any(_is_ambiguous(each) or _has_number_keys(args) for args, each in cases):
        calls = [{"args": args, "expected": each} for args, each in cases]
        return {"kind": "calls", "entry_point": target, "cases": calls}
    try:
        json.dumps(cases, allow_nan=False)
    except (ValueError, RecursionError):
        raise BadTask("an input or output of a call is not finite, or nested too deeply") from None
    return {"kind": "asserts", "tests": [_statement(target, args, each) for args, each in cases]}


def _in_class(name: str, completion: str) -> bool:
    """True if the completion has `class Solution`, and no function `name` beside it.

    Of several blocks of code, the last one with either decides: the earlier ones are drafts.
    """
    function = re.compile(rf"^(async\s+)?def\s+{re.escape(name)}\b", re.MULTILINE)
    for code in _blocks(completion):
        if function.search(code):
            return False
        if _SOLUTION.search(code):
            return True
    return False


def _blocks(completion: str) -> Iterator[str]:
    """Yield the blocks of code between fences, the last one first, and then the whole text."""
    for block in reversed(_FENCE.split(completion)[1::2]):
        yield textwrap.dedent(block)
    yield completion


def _arguments(value: Any) -> list[Any]:
    """Return the arguments of a call: a list, or a text with a line of JSON for each."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise BadTask("an input of a call is neither a list nor lines of JSON")
    try:
        return [json.loads(line) for line in value.split("\n")] if value.strip() else []
    except (ValueError, RecursionError):
        raise BadTask("an input of a call is no JSON") from None


def _expected(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # a text that is not written as JSON stands for itself


def _is_ambiguous(expected: Any) -> bool:
    return isinstance(expected, list) and len(expected) == 1


def _has_number_keys(args: Sequence[Any]) -> bool:
    """True if the first argument is an object with numbers as keys, which JSON writes as texts."""
    return bool(args) and _numbered(args[0]) is not args[0]


def _numbered(value: Any) -> Any:
    try:
        return {int(key): each for key, each in value.items()} if value else value
    except (AttributeError, ValueError):
        return value


def _statement(target: str, args: Sequence[Any], expected: Any) -> str:
    given = [_numbered(args[0]), *args[1:]] if args else []
    accepted = [expected, tuple(expected) if isinstance(expected, list) else expected]
    if _is_ambiguous(expected):
        accepted += [expected[0]]
        if isinstance(expected[0], list):
            accepted += [
                tuple(expected[0]),
                [tuple(each) if isinstance(each, list) else each for each in expected[0]],
            ]
    call = f"{target}({', '.join(map(repr, given))})"
    conditions = dict.fromkeys(f"result == {each!r}" for each in accepted)
    return f"result = {call}\nassert {' or '.join(conditions)}"


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return _plain(value)
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _plain(value: Any, depth: int = 0) -> Any:
    """Return Arrow's and numpy's containers as lists and dicts, without the fields that are None."""
    if depth > MOST_NESTED:
        raise BadTask("the ground truth is nested too deeply")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    return value
