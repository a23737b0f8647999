"""A grader with other expected values: tests in Python, by the kind of the grader."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from proctor_client.wire import AssertsGrader, CommandGrader, ExecGrader, Grader, PytestGrader
from proctor_service.guest.same_process.pytest_reporter import SETTINGS, files_to_collect
from proctor_service.judge.analysis.suite import parse_suite
from proctor_service.judge.control.expectations import Draw, Tests, changed, clear
from proctor_service.judge.control.python_literals import PYTHON
from proctor_service.judge.control.python_suites import Module, Suite, expectations, words_of
from proctor_service.judge.python_source import syntax_tree
from proctor_service.judge.submission import Control, Submission

_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)
MOST_CHARACTERS = 1 << 16
"""Longest tests with a control."""


def seed_of(submission: Submission, number: int) -> bytes:
    """Return the seed of a draw: equal in each attempt, replica and replay."""
    grader = submission.grader
    parts = (
        grader.model_dump_json() if _is_plain(grader) else repr(grader),
        submission.source,
        repr(sorted(submission.files.items())),
        hashlib.blake2b(submission.state or b"").hexdigest(),
        str(number),
    )
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _is_plain(grader: Grader) -> bool:
    """Tell whether JSON has all texts of a grader: without lone surrogates."""
    try:
        repr(grader).encode()
    except UnicodeEncodeError:
        return False
    return True


def changed_grader(control: Control, submission: Submission, number: int) -> Grader | None:
    """Return the grader with other expected values; None without a clear expectation.

    `number`: of the draw. The grader's tests have passed, so they parse.
    """
    try:
        tests = control(submission.source, submission.language)
        if tests is None:
            return None
        seed = seed_of(submission, number)
        found = changed(tests.texts, tests.expectations, seed, tests.dialects)
        return None if found is None else tests.made(found)
    except _BROKEN:
        return None


def clear_expectations(control: Control | None, source: str, language: str) -> int:
    """Return how many expected values of a grader's tests a negative control can change.

    `source`, `language`: of the submission.
    """
    try:
        tests = None if control is None else control(source, language)
    except _BROKEN:
        return 0
    if tests is None:
        return 0
    return len(clear(tests.texts, tests.expectations, tests.dialects, Draw(b"")))


def of_asserts(grader: AssertsGrader, source: str, language: str) -> Tests | None:
    """Return the tests of `asserts`; None for long ones."""
    texts = {f"tests.{index}": text for index, text in enumerate(grader.tests)}
    if are_long([*texts.values(), grader.setup]):
        return None
    modules = []
    for (part, text), test in zip(texts.items(), parse_suite(grader).tests, strict=True):
        functions = [step[1] for step in test.run if step[0] in ("check", "function")]
        cases = [name for step in test.run if step[0] == "cases" for name in step[1]]
        modules.append(
            Module(part, text, test.tree, frozenset(functions), frozenset(cases), awaits=True)
        )
    suite = Suite(tuple(modules), (syntax_tree(grader.setup),), words_of(source))

    def made(found: dict[str, str]) -> Grader:
        # The second run has the level of the first, with any values.
        return grader.model_copy(
            update={"tests": [found[part] for part in texts], "integrity": "in_process"}
        )

    return _of_python(texts, suite, made)


def of_exec(grader: ExecGrader, source: str) -> Tests | None:
    """Return the tests of `exec` in Python; None for long ones."""
    if are_long([grader.setup, grader.tests]):
        return None
    module = Module("tests", grader.tests, syntax_tree(grader.tests), is_main=True)
    suite = Suite((module,), (syntax_tree(grader.setup),), words_of(source))
    own = {"tests": grader.tests}
    return _of_python(own, suite, lambda found: grader.model_copy(update=found))


def of_pytest(grader: PytestGrader | CommandGrader, source: str, language: str) -> Tests | None:
    """Return the tests in the files of a grader; None for long ones, and beside settings of pytest."""
    files = grader.files
    if are_long(files.values()) or any(path.rpartition("/")[2] in SETTINGS for path in files):
        return None
    collected = {path.removeprefix("./") for path in files_to_collect(dict(files))}
    modules = []
    for path, text in files.items():
        if path.endswith(".py"):
            has_tests = path in collected
            modules.append(
                Module(path, text, syntax_tree(text), by_pytest=True, has_tests=has_tests)
            )
    suite = Suite(tuple(modules))
    return _of_python(files, suite, lambda found: grader.model_copy(update={"files": found}))


def _of_python(
    texts: Mapping[str, str], suite: Suite, made: Callable[[dict[str, str]], Grader]
) -> Tests:
    def made_of_compiling(found: dict[str, str]) -> Grader:
        for module in suite.modules:
            syntax_tree(found[module.part])
        return made(found)

    return Tests(texts, expectations(suite), dict.fromkeys(texts, PYTHON), made_of_compiling)


def are_long(texts: Iterable[str]) -> bool:
    """Tell whether tests are too long for a control."""
    return sum(map(len, texts)) > MOST_CHARACTERS
