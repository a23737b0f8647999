"""Files of problems for `proctor eval`: MBPP, HumanEval, programs with stdin and stdout.

Each row becomes a Task: the fields to judge a completion, and the reference solution if the row has
one. A file contains JSON lines or one JSON array, plain or `.gz`. An invalid row raises a
DatasetError with file and line, before any completion is judged.
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, cast

from pydantic import ValidationError

from proctor_client import wire
from proctor_service.judge.extract import extract

Format = Literal["mbpp", "humaneval", "stdio", "jsonl"]
Completion = str | list[dict[str, Any]]

_ID_KEYS = ("task_id", "id", "name", "question_id", "problem_id")
_SOLUTION_KEYS = ("solution", "code", "reference", "solutions")
_TESTS_KEYS = ("tests", "test_cases", "input_output", "public_tests")
_COMPLETION_KEYS = ("completion", "solution")


class DatasetError(ValueError):
    """Invalid file or row; the message names the file and line."""


@dataclass(frozen=True, slots=True)
class Task:
    """Problem. `fields`: the fields of a wire.Submission that judge a completion."""

    id: str
    place: str
    fields: Mapping[str, Any]
    reference: Completion | None = None
    stub: Stub | None = None

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
        if re.search(r"^from __future__", code, re.MULTILINE):
            return code
        return re.split(definition, self.prompt, maxsplit=1, flags=re.MULTILINE)[0] + code

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


def load_tasks(path: Path, form: Format) -> list[Task]:
    """Return the problems of a file. Raises DatasetError."""
    make = _MAKERS[form]
    tasks = []
    for place, row in _rows(path):
        try:
            task = make(row, place)
            wire.Submission.model_validate(task.submission(task.reference or ""))
        except ValidationError as error:
            raise DatasetError(f"{place}: {_first(error)}") from None
        except (KeyError, TypeError, ValueError) as error:
            said = f"the field {error} is missing" if isinstance(error, KeyError) else error
            raise DatasetError(f"{place}: {said}") from None
        tasks.append(task)
    if not tasks:
        raise DatasetError(f"{path}: no rows")
    return tasks


def load_completions(path: Path, tasks: list[Task]) -> list[tuple[Task, Completion]]:
    """Return each completion of a file with its task. Raises DatasetError for an unknown task.

    A row is {"task_id" or "id", "completion"}; a task may have several.
    """
    by_id: dict[str, Task] = {}
    for task in tasks:
        if task.id in by_id:
            raise DatasetError(
                f"{task.place}: the id {task.id!r} again; see {by_id[task.id].place}"
            )
        by_id[task.id] = task
    pairs = []
    for place, row in _rows(path):
        found = next((row[key] for key in _COMPLETION_KEYS if key in row), None)
        if not _is_completion(found):
            raise DatasetError(f"{place}: no completion, a text or a list of chat messages")
        name = next((str(row[key]) for key in ("task_id", "id") if key in row), None)
        if name not in by_id:
            raise DatasetError(f"{place}: no task {name!r} in the data")
        pairs.append((by_id[name], cast(Completion, found)))
    if not pairs:
        raise DatasetError(f"{path}: no rows")
    return pairs


# ---------------------------------------------------------------- formats


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


_MAKERS: Mapping[Format, Callable[[Mapping[str, Any], str], Task]] = {
    "mbpp": _mbpp,
    "humaneval": _humaneval,
    "stdio": _stdio,
    "jsonl": _jsonl,
}


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


def _is_completion(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(message, dict) for message in value)
    )


def _said(completion: Completion) -> str:
    """Return the text: for chat messages, the last message of the assistant."""
    if isinstance(completion, str):
        return completion
    texts = [m.get("content") for m in completion if m.get("role") == "assistant"]
    if not texts or not isinstance(texts[-1], str):
        raise ValueError("the completion holds no assistant message with a text")
    return texts[-1]


# ---------------------------------------------------------------- files


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row with its position, `file:line`, or `file:row` in a JSON array.

    Blank lines are skipped. A file that begins with `[` is one JSON array.
    """
    number = 0
    is_first = True
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                is_array = is_first and line.lstrip().startswith("[")
                is_first = False
                rows = json.loads(line + stream.read()) if is_array else [json.loads(line)]
                for place, row in enumerate(rows, 1 if is_array else number):
                    if not isinstance(row, dict):
                        raise DatasetError(f"{path}:{place}: not a JSON object")
                    yield f"{path}:{place}", row
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise DatasetError(f"{path}: the compressed file is damaged or cut off") from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}:{number + 1}: not UTF-8") from None
    except RecursionError:
        raise DatasetError(f"{path}:{number}: nested too deep") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}:{number}: not JSON: {error.msg}") from None


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline="\n"))
    return path.open(encoding="utf-8", newline="\n")


def _compiles(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<completion>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
