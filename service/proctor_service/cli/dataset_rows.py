"""Rows of data sets: each becomes a Task, with the grader of its form.

| form | rows as in | grader |
|---|---|---|
| `mbpp`, `mbppplus` | google-research-datasets/mbpp, evalplus/mbppplus | `asserts` |
| `humaneval`, `humanevalplus` | openai/openai_humaneval, evalplus/humanevalplus | `asserts` |
| `bigcodebench` | bigcode/bigcodebench | `asserts` with test cases of unittest |
| `classeval` | FudanSELab/ClassEval | `asserts` with test cases of unittest |
| `stdio` | programs of APPS, TACO or CodeContests | `stdio` |
| `jsonl` | fields of a wire.Submission | the row's own |
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from proctor_service.judge.extract import extract

Format = Literal[
    "mbpp", "mbppplus", "humaneval", "humanevalplus", "bigcodebench", "classeval", "stdio", "jsonl"
]
Completion = str | list[dict[str, Any]]

_ID_KEYS = ("task_id", "id", "name", "question_id", "problem_id")
_SOLUTION_KEYS = ("solution", "code", "reference", "solutions")
_TESTS_KEYS = ("tests", "test_cases", "input_output", "public_tests")


@dataclass(frozen=True, slots=True)
class Task:
    """Problem. `fields`: the fields of a wire.Submission that judge a completion."""

    id: str
    place: str
    fields: Mapping[str, Any]
    reference: Completion | None = None
    stub: Stub | Imports | None = None

    def submission(self, completion: Completion) -> dict[str, Any]:
        """Return the submission for `completion` in the wire format."""
        text = completion
        if self.stub is not None:
            text = self.stub.complete(_said(completion))
        return {"id": self.id, "group": self.id, **self.fields, "completion": text}


@dataclass(frozen=True, slots=True)
class Stub:
    """HumanEval's prompt: a function that ends after its docstring."""

    prompt: str
    entry_point: str

    def complete(self, completion: str) -> str:
        """Return the program. A completion may be the body of the function or a whole function.

        For a whole function, the part of the prompt before its own function comes first: imports
        and helpers.
        """
        code = extract(completion, "auto") or completion
        definition = rf"^(?:async +)?def +{re.escape(self.entry_point)}\b"
        if not re.search(definition, code, re.MULTILINE):
            return self.prompt + self._indented(code)
        return _behind(re.split(definition, self.prompt, maxsplit=1, flags=re.MULTILINE)[0], code)

    def _indented(self, body: str) -> str:
        """Return `body`, indented if necessary to be the body of the function."""
        if body.startswith((" ", "\t")) or not body.strip():
            return body
        first, *rest = body.splitlines(keepends=True)
        lost_the_first_only = all(line.startswith((" ", "\t")) or not line.strip() for line in rest)
        for start in ("", "    ") if lost_the_first_only else ("    ",):
            text = "    " + first + "".join(start + line if line.strip() else line for line in rest)
            if _compiles(self.prompt + text):
                return text
        return body


@dataclass(frozen=True, slots=True)
class Imports:
    """Import statements of a problem, which come before the program of a completion."""

    statements: tuple[str, ...]

    def complete(self, completion: str) -> str:
        """Return the program."""
        code = extract(completion, "auto") or completion
        return _behind("".join(f"{each}\n" for each in self.statements), code)


def _behind(beginning: str, code: str) -> str:
    """Return a program; code that must be the first of its file, to import features, stays so."""
    return code if re.search(r"^from __future__", code, re.MULTILINE) else beginning + code


def _mbpp(row: Mapping[str, Any], place: str) -> Task:
    setup = [*(row.get("test_imports") or []), row.get("test_setup_code") or ""]
    grader = {
        "kind": "asserts",
        "tests": row["test_list"],
        "setup": "\n".join(part for part in setup if part),
    }
    return Task(str(row["task_id"]), place, {"grader": grader}, row.get("code"))


def _humaneval(row: Mapping[str, Any], place: str) -> Task:
    stub = Stub(_text(row, "prompt"), _text(row, "entry_point"))
    grader = {
        "kind": "asserts",
        "tests": [row["test"]],
        "entry_point": stub.entry_point,
    }
    return Task(str(row["task_id"]), place, {"grader": grader}, row.get("canonical_solution"), stub)


def _mbppplus(row: Mapping[str, Any], place: str) -> Task:
    """MBPP+ of EvalPlus: `test` is one program, `test_list` the few tests of MBPP."""
    return _mbpp({**row, "test_list": [_text(row, "test")]}, place)


def _bigcodebench(row: Mapping[str, Any], place: str) -> Task:
    """BigCodeBench: test cases of unittest for a function that `code_prompt` begins."""
    stub = Stub(_text(row, "code_prompt"), _text(row, "entry_point"))
    grader = {"kind": "asserts", "tests": [_text(row, "test")]}
    return Task(str(row["task_id"]), place, {"grader": grader}, row.get("canonical_solution"), stub)


def _classeval(row: Mapping[str, Any], place: str) -> Task:
    """ClassEval: test cases of unittest for a class."""
    told = row.get("import_statement") or []
    imports = Imports(tuple([told] if isinstance(told, str) else map(str, told)))
    grader = {"kind": "asserts", "tests": [_text(row, "test")]}
    return Task(str(row["task_id"]), place, {"grader": grader}, row.get("solution_code"), imports)


def _stdio(row: Mapping[str, Any], place: str) -> Task:
    grader = {
        "kind": "stdio",
        "cases": _cases(row),
        "compare": row.get("compare", "tokens"),
        "tolerance": row.get("tolerance", 0.0),
    }
    fields: dict[str, Any] = {"grader": grader}
    fields |= {key: row[key] for key in ("limits", "language") if key in row}
    name = next((str(row[key]) for key in _ID_KEYS if key in row), place.rpartition(":")[2])
    return Task(name, place, fields, _solution(row))


def _jsonl(row: Mapping[str, Any], place: str) -> Task:
    name = row.get("id") or place.rpartition(":")[2]
    fields = {key: value for key, value in row.items() if key not in ("id", "completion")}
    if "grader" not in fields:
        raise ValueError("no grader: every row needs one here")
    return Task(str(name), place, fields, row.get("completion"))


MAKERS: Mapping[Format, Callable[[Mapping[str, Any], str], Task]] = {
    "mbpp": _mbpp,
    "mbppplus": _mbppplus,
    "humaneval": _humaneval,
    "humanevalplus": _humaneval,
    "bigcodebench": _bigcodebench,
    "classeval": _classeval,
    "stdio": _stdio,
    "jsonl": _jsonl,
}
"""Makers of a Task from a row and its place, `file:line`. They raise KeyError, TypeError, ValueError."""


def _cases(row: Mapping[str, Any]) -> list[dict[str, str]]:
    tests: Any = next((row[key] for key in _TESTS_KEYS if row.get(key)), row)
    if isinstance(tests, str):  # some sets hold the tests as JSON in a string
        tests = json.loads(tests)
    if isinstance(tests, Mapping):
        if tests.get("fn_name"):
            raise ValueError("tests of a function (fn_name): the format stdio is for programs")
        inputs, outputs = _column(tests, "input"), _column(tests, "output")
        if len(inputs) != len(outputs):
            raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs")
        tests = [{"stdin": a, "stdout": b} for a, b in zip(inputs, outputs, strict=True)]
    if not isinstance(tests, list) or not all(isinstance(test, Mapping) for test in tests):
        raise ValueError("no tests: a list of {stdin, stdout}, or {inputs, outputs}")
    return [{"stdin": _stream(test, "in"), "stdout": _stream(test, "out")} for test in tests]


def _column(tests: Mapping[str, Any], name: str) -> list[Any]:
    column = tests.get(f"{name}s", tests.get(name))
    if not isinstance(column, list):
        raise ValueError(f"no tests: a list of {{stdin, stdout}}, or lists; {name}s is missing")
    return column


def _stream(test: Mapping[str, Any], name: str) -> str:
    text = test.get(f"std{name}", test.get(f"{name}put"))
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        return "\n".join(text)
    if isinstance(text, str):
        return text
    raise ValueError(f"a test without std{name} or {name}put")


def _solution(row: Mapping[str, Any]) -> str | None:
    found = next((row[key] for key in _SOLUTION_KEYS if row.get(key)), None)
    if isinstance(found, list):
        found = found[0]
    if found is None or isinstance(found, str):
        return found
    raise ValueError("the solution is no text")


def _text(row: Mapping[str, Any], name: str) -> str:
    if not isinstance(row[name], str):
        raise ValueError(f"{name}: no text")
    return cast(str, row[name])


def _said(completion: Completion) -> str:
    """Return the text: for chat messages, the last message of the assistant."""
    if isinstance(completion, str):
        return completion
    texts = [m.get("content") for m in completion if m.get("role") == "assistant"]
    if not texts or not isinstance(texts[-1], str):
        raise ValueError("the completion holds no assistant message with a text")
    return texts[-1]


def _compiles(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<completion>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
