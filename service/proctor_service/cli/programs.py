"""Submissions from completions: the program of a completion, as its data set's own harness makes it."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, assert_never

from proctor_client.tasks.language_rows import go_file
from proctor_client.tasks.task import (
    Answer,
    Beginning,
    Completion,
    Imports,
    Method,
    Stub,
    Task,
)
from proctor_service.judge.extract import extract

_MARKED = re.compile(r"\[ANSWER\](.*?)(?:\[/ANSWER\]|\Z)", re.DOTALL)


def submission_of(task: Task, completion: Completion) -> dict[str, Any]:
    """Return the submission for `completion` in the wire format."""
    text = completion
    if task.stub is not None:
        language = str(task.fields.get("language", "python"))
        text = program_of(task.stub, said_in(completion), language)
    return {"id": task.id, "group": task.id, **task.fields, "completion": text}


def program_of(
    stub: Stub | Imports | Method | Answer | Beginning, completion: str, language: str = "python"
) -> str:
    """Return the program of a completion. A completion may be a part of a program, or all of it."""
    if isinstance(stub, Answer):
        return _answer(stub, completion)
    code = extract(completion, "auto", language) or completion
    match stub:
        case Stub():
            return _continued(stub, code)
        case Imports():
            return _behind(_lines(stub.statements), code)
        case Method():
            return _behind(_lines(stub.imports), code + _other_way(stub, code))
        case Beginning():
            return _begun(stub, code, language)
        case _:
            assert_never(stub)


def said_in(completion: Completion) -> str:
    """Return the text: for chat messages, the last message of the assistant."""
    if isinstance(completion, str):
        return completion
    texts = [m.get("content") for m in completion if m.get("role") == "assistant"]
    if not texts or not isinstance(texts[-1], str):
        raise ValueError("the completion holds no assistant message with a text")
    return texts[-1]


# ---------------------------------------------------------------- Python


def _continued(stub: Stub, code: str) -> str:
    """Return the program of a function's body or of a whole function.

    For a whole function, the part of the prompt before its own function comes first: imports and
    helpers.
    """
    definition = rf"^(?:async +)?def +{re.escape(stub.entry_point)}\b"
    if not re.search(definition, code, re.MULTILINE):
        return stub.prompt + _indented(stub.prompt, code)
    return _behind(re.split(definition, stub.prompt, maxsplit=1, flags=re.MULTILINE)[0], code)


def _indented(prompt: str, body: str) -> str:
    """Return `body`, indented if necessary to be the body of the function."""
    if body.startswith((" ", "\t")) or not body.strip():
        return body
    last = prompt.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())] or "    "
    first, *rest = body.splitlines(keepends=True)
    lost_the_first_only = all(line.startswith((" ", "\t")) or not line.strip() for line in rest)
    for start in ("", indent) if lost_the_first_only else (indent,):
        text = indent + first + "".join(start + line if line.strip() else line for line in rest)
        if _compiles(prompt + text):
            return text
    return body


def _lines(statements: tuple[str, ...]) -> str:
    return "".join(f"{each}\n" for each in statements)


def _behind(beginning: str, code: str) -> str:
    """Return a program; code that must be the first of its file, to import features, stays so."""
    return code if re.search(r"^from __future__", code, re.MULTILINE) else beginning + code


def _other_way(stub: Method, code: str) -> str:
    """Return what calls the function in the way of the tests, if the code has it the other way."""
    defined = re.search(rf"^(?:async +)?def +{re.escape(stub.name)}\b", code, re.MULTILINE)
    in_class = re.search(r"^class +Solution\b", code, re.MULTILINE)
    if stub.in_class and defined and not in_class:
        return f"\n\nclass Solution:\n    {stub.name} = staticmethod({stub.name})\n"
    if not stub.in_class and in_class and not defined:
        return f"\n\ndef {stub.name}(*args):\n    return Solution().{stub.name}(*args)\n"
    return ""


def _answer(stub: Answer, completion: str) -> str:
    """Return a program with the function `answer`, or an empty text without an answer.

    An answer may stand between [ANSWER] and [/ANSWER], in a fence, or behind or before the `==` of
    an assert statement.
    """
    marked = _MARKED.search(completion)
    text = (marked[1] if marked else extract(completion, "auto") or completion).strip()
    found = _expression(text.removeprefix("assert").strip())
    if isinstance(found, ast.Compare) and isinstance(found.ops[0], ast.Eq):
        found = found.left if stub.of_arguments else found.comparators[0]
    if found is None:
        return ""
    if not stub.of_arguments:
        # Only a literal is a prediction: an expression could call the function.
        return f"def answer():\n    return {ast.unparse(found)}\n" if _is_literal(found) else ""
    call = found
    if not (isinstance(found, ast.Call) and ast.unparse(found.func) == stub.function):
        call = _expression(f"{stub.function}({text})") or found
    if not isinstance(call, ast.Call):
        return ""
    call.func = ast.Name("_arguments", ast.Load())
    return (
        f"{stub.code}\n\ndef _arguments(*args, **kwargs):\n    return args, kwargs\n\n"
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


def _compiles(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<completion>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


# ---------------------------------------------------------------- other languages


def _begun(stub: Beginning, code: str, language: str) -> str:
    """Return the program of a function's body, of a whole function, or of a whole class."""
    is_whole = stub.definition.search(code) is not None
    if not is_whole:
        code = f"{stub.prompt}{code}{stub.ending}"
    if language == "go":
        return code if re.search(r"^package\s", code, re.MULTILINE) else go_file(code, stub.imports)
    if not is_whole:
        return code
    if language == "scala":
        code = re.sub(r"object\s+Main(?:\s+extends\s+App)?\s*\{", stub.enclosing, code)
    if stub.enclosing and not re.search(re.escape(_class_of(stub.enclosing)) + r"\b", code):
        code = f"{stub.enclosing}\n{code}\n}}\n"
    missing = [each for each in stub.imports if each not in code]
    return "".join(f"{each}\n" for each in missing) + code


def _class_of(enclosing: str) -> str:
    """Return `class Name` or `object Name`, of the line that opens it."""
    return " ".join(enclosing.removeprefix("public ").rstrip("{ ").split()[:2])
