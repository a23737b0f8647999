"""Tasks from ground truths and labels: the tests of a problem in a single field, in several forms.

Forms of a value, or of its JSON text:

    {"kind": "asserts", …}                              a grader of the service
    {"grader": {"kind": "asserts", …}, "prelude": …}    the fields of a task
    ["assert f(1) == 2", …]                             Python statements; or one text of them
    {"inputs": […], "outputs": […]}                     programs with stdin and stdout, as in APPS,
                                                        TACO, CodeContests and PRIME's data
    {"inputs": […], "outputs": […], "fn_name": "f"}     calls: arguments and a value, as JSON lines
                                                        or as lists
    {"language": "python", "test_cases": […]}           `verification_info`: cases as below
    {"assert_case": […]}                                Python statements, as for SandboxFusion
    [{"input": …, "output": …}, …]                      cases, as in LiveCodeBench; calls with the
                                                        `testtype` "functional" and `metadata.func_name`,
                                                        or the `type` "function_call" and `fn_name`
    [{"stdin": …, "stdout": …}, …]                      cases of the grader `stdio`, with its comparison
    {"inputs": […], "outputs": […], "checker": {…}}     any form of programs with a checker, or an
                                                        interactor, of the task's author
    {"verifier": "math", "params": {…}}                 a verifier: its name, its source or its fields
    {"tests": …, "setup": …, "entry_point": …}          the columns of proctor_client.tasks.forms;
                                                        `test_list` and `test` as in MBPP, HumanEval

The rules for `fn_name` follow PRIME's checker: a line of JSON for each argument, a function or a
method of `class Solution`, and an expected list with a single item stands for the list or for the item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from proctor_client.tasks.author_programs import (
    VERIFIER,
    needs_outputs,
    refuse_typos_of_programs,
    with_programs,
)
from proctor_client.tasks.contests import contest, task_of_cases
from proctor_client.tasks.fields import decoded_value, set_fields
from proctor_client.tasks.statements import (
    GRADER,
    READ,
    TESTS,
    grader_of,
    task_from_tests,
    task_of_verifier,
)
from proctor_client.tasks.task import SUBMISSION_FIELDS, BadTask, Task, refuse_typos

_STATEMENT = re.compile(r"\b(assert|raise|def check|self\.assert\w+|assert_\w+)\b|\braises\(")
"""What a Python test has, such as `assert f(1) == 2`; not `the answer is 7`."""
_WRAPPED = ("input_output", "ground_truth")
"""Fields of an object that hold the tests, such as verl's `reward_model`."""
_SETUP = ("setup", "prefix", "import_prefix")


def task_of(value: Any) -> Task:
    """Return the task of a ground truth or a label. Raises BadTask."""
    value = decoded_value(value)
    if isinstance(value, Mapping):
        for name in _WRAPPED:
            if isinstance(value.get(name), str | Mapping | list):
                return task_of(value[name])
    if isinstance(value, str) and value.strip():
        return _asserts([value])
    if isinstance(value, Mapping):
        return _of_object(value)
    if isinstance(value, list) and value:
        if all(isinstance(each, str) for each in value):
            return _asserts(value)
        if all(isinstance(each, Mapping) for each in value):
            return task_of_cases(value)
    raise BadTask("the ground truth holds neither a grader nor tests")


def _asserts(tests: Sequence[str]) -> Task:
    """Return a task of statements. An answer in words or numbers fails as a test."""
    if not any(_STATEMENT.search(test) for test in tests):
        raise BadTask("the ground truth is a text without assert statements")
    return Task(grader={"kind": "asserts", "tests": list(tests)})


def _of_object(value: Mapping[str, Any]) -> Task:
    if "kind" in value:
        return Task(grader=grader_of(value))
    if value.get(GRADER) is not None:
        refuse_typos(value, SUBMISSION_FIELDS)
        fields = {name: set_fields(value[name]) for name in SUBMISSION_FIELDS if name in value}
        return Task.of({**fields, GRADER: grader_of(value[GRADER])})
    refuse_typos_of_programs(value)
    if value.get(VERIFIER) is not None:
        return task_of_verifier(value)
    return with_programs(_of_tests(value), value)


def _of_tests(value: Mapping[str, Any]) -> Task:
    if isinstance(value.get("assert_case"), list):
        setup = "\n".join(str(value[name]) for name in _SETUP if value.get(name))
        return Task(grader={"kind": "asserts", "tests": value["assert_case"], "setup": setup})
    if value.get("test_cases"):
        return _of_test_cases(value)
    if any(name in value for name in ("inputs", "outputs", "input", "output")):
        inputs, outputs = (value.get(f"{name}s", value.get(name)) for name in ("input", "output"))
        if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
            raise BadTask("inputs and outputs: two lists are needed, with a case or more")
        name = str(value["fn_name"]) if value.get("fn_name") else None
        return contest(inputs, outputs, name)
    if isinstance(value.get("functional"), str):
        return Task(grader={"kind": "asserts", "tests": [value["functional"]]})
    if any(value.get(name) is not None for name in TESTS):
        refuse_typos(value, READ)
        return task_from_tests(value)
    raise BadTask(f"the ground truth has no tests: its fields are {', '.join(sorted(value))}")


def _of_test_cases(value: Mapping[str, Any]) -> Task:
    """Return the task of `verification_info`, or of another object with a list of test cases."""
    cases = decoded_value(value["test_cases"])
    if isinstance(cases, Mapping):  # {"inputs": …, "outputs": …}
        return _of_object(cases)
    language = str(value.get("language") or "python")
    if isinstance(cases, list) and all(isinstance(each, str) for each in cases):
        return _asserts(cases)
    if not isinstance(cases, list) or not all(isinstance(each, Mapping) for each in cases):
        raise BadTask("test_cases: neither statements nor objects with input and output")
    named = [{"fn_name": value.get("fn_name"), **each} for each in cases]
    return task_of_cases(named, language, needs_outputs=needs_outputs(value))
