"""A grader with other expected values, by the kind of the grader and the language of its tests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from proctor_client.wire import AssertsGrader, CommandGrader, ExecGrader, Grader, PytestGrader
from proctor_service.features.languages import grammar_suites
from proctor_service.features.languages.grammar_suites import Text, Written
from proctor_service.features.languages.grammar_tables import GRAMMARS
from proctor_service.features.languages.runner_tools import RUNNER_LANGUAGES
from proctor_service.guest.same_process.pytest_reporter import SETTINGS, files_to_collect
from proctor_service.judge.analysis.suite import parse_suite
from proctor_service.judge.control.expectations import Dialect, Draw, Expectation, changed, clear
from proctor_service.judge.control.python_literals import PYTHON
from proctor_service.judge.control.python_suites import Module, Suite, expectations, words_of
from proctor_service.judge.submission import Submission
from proctor_service.judge.syntax import syntax_tree

MOST_CHARACTERS = 1 << 16
"""Of tests that have a control; longer ones have none."""


def is_controlled(grader: Grader) -> bool:
    """Tell whether graders of this kind have tests in a text whose expectations can be changed."""
    match grader:
        case ExecGrader(tests=tests):
            return bool(tests)
        case CommandGrader(runner=runner):
            return runner is not None
    return isinstance(grader, AssertsGrader | PytestGrader)


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
    """Tell whether JSON has all texts of a grader: it takes no lone surrogates."""
    try:
        repr(grader).encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Tests:
    """Texts of a grader's tests, their clear expectations, and how other texts make a grader.

    `made`: returns None for texts that do not compile.
    """

    texts: Mapping[str, str]
    expectations: Sequence[Expectation]
    dialects: Mapping[str, Dialect]
    made: Callable[[dict[str, str]], Grader | None]


def changed_grader(submission: Submission, number: int) -> Grader | None:
    """Return the grader with other expected values; None without a clear expectation.

    `number`: of the draw. The grader's tests have passed, so they parse.
    """
    try:
        tests = _tests(submission.grader, submission.source, submission.language)
        if tests is None:
            return None
        seed = seed_of(submission, number)
        found = changed(tests.texts, tests.expectations, seed, tests.dialects)
        return None if found is None else tests.made(found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def clear_expectations(grader: Grader, source: str, language: str) -> int:
    """Return how many expected values of a grader's tests a negative control can change.

    `source`, `language`: of the submission.
    """
    try:
        tests = _tests(grader, source, language)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    if tests is None:
        return 0
    return len(clear(tests.texts, tests.expectations, tests.dialects, Draw(b"")))


def _tests(grader: Grader, source: str, language: str) -> Tests | None:
    match grader:
        case AssertsGrader():
            return _asserts(grader, source)
        case ExecGrader() if language == "python":
            return _exec(grader, source)
        case PytestGrader(files=files) | CommandGrader(runner="pytest", files=files):
            return _pytest(grader, files)
        case ExecGrader():
            own = {"tests": grader.tests}
            return _by_grammar(grader, own, [grader.setup], language, None)
        case CommandGrader(runner=str() as runner, files=files):
            return _by_grammar(grader, files, (), RUNNER_LANGUAGES[runner], runner)
    return None


def _asserts(grader: AssertsGrader, source: str) -> Tests | None:
    texts = {f"tests.{index}": text for index, text in enumerate(grader.tests)}
    if _are_long([*texts.values(), grader.setup]):
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
        # The level of the second run is that of the first one, whatever the other values are.
        return grader.model_copy(
            update={"tests": [found[part] for part in texts], "integrity": "in_process"}
        )

    return _of_python(texts, suite, made)


def _exec(grader: ExecGrader, source: str) -> Tests | None:
    if _are_long([grader.setup, grader.tests]):
        return None
    module = Module("tests", grader.tests, syntax_tree(grader.tests), is_main=True)
    suite = Suite((module,), (syntax_tree(grader.setup),), words_of(source))
    own = {"tests": grader.tests}
    return _of_python(own, suite, lambda found: grader.model_copy(update=found))


def _pytest(grader: PytestGrader | CommandGrader, files: Mapping[str, str]) -> Tests | None:
    if _are_long(files.values()) or any(path.rpartition("/")[2] in SETTINGS for path in files):
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


def _by_grammar(
    grader: ExecGrader | CommandGrader,
    files: Mapping[str, str],
    beside: Sequence[str],
    language: str,
    runner: str | None,
) -> Tests | None:
    """Return the tests in a language that tree-sitter parses."""
    if not grammar_suites.is_known(language) or _are_long([*files.values(), *beside]):
        return None
    if not all(_TEST_FILES[runner].fullmatch(part) for part in files):
        return None
    texts = [Text.of(part, text, language) for part, text in files.items()]
    others = [Text.of("", text, language) for text in beside if text]
    known = [each for each in (*texts, *others) if each is not None]
    if len(known) < len(texts) + len(others):
        return None
    found = grammar_suites.expectations(known[: len(texts)], known[len(texts) :], language, runner)
    grammar = GRAMMARS[language]

    def made(other: dict[str, str]) -> Grader | None:
        if not all(grammar_suites.parses(text, language) for text in other.values()):
            return None
        return grader.model_copy(update=other if runner is None else {"files": other})

    return Tests(files, found, {part: Written(text, grammar) for part, text in files.items()}, made)


_TEST_FILES: Mapping[str | None, re.Pattern[str]] = MappingProxyType(
    {
        None: re.compile(r"tests"),
        "go_test": re.compile(r"[^/]+_test\.go"),  # "f_test.go"
        "cargo_test": re.compile(r"tests/[^/]+\.rs"),  # "tests/it.rs"
        "jest": re.compile(r".+\.(?:test|spec)\.js"),  # "solution.test.js"
        "junit": re.compile(r".+\.java"),  # "SolTest.java"
    }
)
"""Files of each runner whose tests are certain to run; a grader with other files, too, has no control."""


def _are_long(texts: Iterable[str]) -> bool:
    return sum(map(len, texts)) > MOST_CHARACTERS
