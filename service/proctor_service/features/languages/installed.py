"""All languages but Python, as the core's graders use them (`judge/graders/programs.py`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from types import MappingProxyType

from proctor_client.wire import CommandGrader, ExecGrader, Grader
from proctor_service.errors import InvalidTask
from proctor_service.features.languages import grammar_suites
from proctor_service.features.languages.compilers import Compilers, compiler_limits
from proctor_service.features.languages.grammar_suites import Text, Written
from proctor_service.features.languages.grammar_tables import GRAMMARS
from proctor_service.features.languages.jvm_names import named
from proctor_service.features.languages.prepared_files import PreparedFiles
from proctor_service.features.languages.runners import judge_runner
from proctor_service.features.languages.separate_tests import (
    Arranged,
    arranged,
    check_launchers,
    launcher_name,
)
from proctor_service.judge.control.expectations import Tests
from proctor_service.judge.control.graders import are_long
from proctor_service.judge.graders.programs import Parts, Program
from proctor_service.judge.run import message, run, with_files
from proctor_service.judge.submission import SOLUTION, Judgement, Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.settings.languages import RUNNER_LANGUAGES, Language
from proctor_service.settings.prepared_folder import prepared_folder

_TEST_FILES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "go_test": re.compile(r"[^/]+_test\.go"),  # "f_test.go"
        "cargo_test": re.compile(r"tests/[^/]+\.rs"),  # "tests/it.rs"
        "jest": re.compile(r".+\.(?:test|spec)\.js"),  # "solution.test.js"
        "junit": re.compile(r".+\.java"),  # "SolTest.java"
    }
)
"""Files of each runner with tests certain to run; other files rule out the control."""


class OtherLanguages:
    """All languages but Python, by name. Raises StartError for a missing launcher.

    The standards of each compiler of C and C++ are found once, in the first sandbox of its environment.
    """

    def __init__(self, rows: Mapping[str, Language]) -> None:
        check_launchers(rows)
        self._rows = rows
        self._compilers = Compilers(PreparedFiles(prepared_folder()))
        self._asking = asyncio.Lock()
        self._takes: dict[tuple[str, str, str], bool] = {}

    async def prepared(
        self, submission: Submission, backend: Sandboxes, parts: Parts | None
    ) -> Program | Judgement:
        """Return a runnable program, or the judgement of a failed compilation.

        `parts`: the sources of a program with tests apart.
        """
        language = await self._language_of(submission, backend)
        if parts is not None:
            found = arranged(language, parts, launcher_name(submission, parts))
            files = {**submission.files, **found.files}
        else:
            language = named(language, submission.source)
            files = with_files(submission, language.source, language.whole(submission.source))
            found = Arranged(language.compile, language.run, files)
        if found.compile is None:
            return Program(submission, found.run, files, has_launcher=parts is not None)
        beside = {**submission.files, **found.beside}
        return await self._compilers.compiled(
            submission,
            backend,
            found.compile,
            files,
            Program(submission, found.run, beside, has_launcher=parts is not None),
        )

    def file_of(self, submission: Submission) -> tuple[str, str]:
        """Return name and text of the file with a submission's source; in Python, too."""
        language = self._rows.get(submission.language)
        if language is None:
            return SOLUTION, submission.source
        return named(language, submission.source).source, language.whole(submission.source)

    async def judge_runner(
        self, submission: Submission, grader: CommandGrader, backend: Sandboxes
    ) -> Judgement:
        """Judge by a tool's tests. Raises JudgeFailed without the tool, and InvalidTask without tests."""
        return await judge_runner(submission, grader, backend, self._rows)

    def tests(self, grader: ExecGrader | CommandGrader, language: str) -> Tests | None:
        """Return the tests in a language with a tree-sitter grammar, for a negative control."""
        if isinstance(grader, CommandGrader):
            assert grader.runner is not None
            runner, files, setup = grader.runner, grader.files, ""
            language = RUNNER_LANGUAGES[runner]
        else:
            runner, files, setup = None, {"tests": grader.tests}, grader.setup
        if not grammar_suites.is_known(language) or are_long([*files.values(), setup]):
            return None
        if runner is not None and not all(map(_TEST_FILES[runner].fullmatch, files)):
            return None
        texts = [Text.of(part, text, language) for part, text in files.items()]
        others = [Text.of("", text, language) for text in [setup] if text]
        trees = [each for each in (*texts, *others) if each is not None]
        if len(trees) < len(texts) + len(others):
            return None
        found = grammar_suites.expectations(
            trees[: len(texts)], trees[len(texts) :], language, runner
        )
        grammar = GRAMMARS[language]

        def made(other: dict[str, str]) -> Grader | None:
            if not all(grammar_suites.parses(text, language) for text in other.values()):
                return None
            return grader.model_copy(update=other if runner is None else {"files": other})

        return Tests(
            files, found, {part: Written(text, grammar) for part, text in files.items()}, made
        )

    async def _language_of(self, submission: Submission, backend: Sandboxes) -> Language:
        """Return the language of a submission, with its options in the command of the compiler.

        Raises InvalidTask if the compiler lacks the task's standard.
        """
        language = self._rows[submission.language].within(submission.limits.memory_mb)
        options = submission.compiler
        standard = None if options is None else options.standard
        if standard is not None:
            if not await self._takes_standard(submission, backend, standard):
                raise InvalidTask(f"compiler.standard: the compiler here does not take {standard}")
        elif language.newest_standard is not None:
            newest = language.newest_standard
            standard = newest if await self._takes_standard(submission, backend, newest) else None
        words = [] if standard is None else [f"-std={standard}"]
        if options is not None:
            words += [f"-D{each}" for each in options.defines] + options.flags
        return language.with_compiler_words(words)

    async def _takes_standard(
        self, submission: Submission, backend: Sandboxes, standard: str
    ) -> bool:
        language = self._rows[submission.language]
        key = (submission.environment, submission.language, standard)
        if language.compile is None or key in self._takes:
            return self._takes.get(key, False)
        async with self._asking:
            if key not in self._takes:
                program = language.compile[0]
                argv = (program, f"-std={standard}", "-E", language.source)
                job = message("command", argv=argv, files={language.source: ""})
                limits = compiler_limits(submission.limits)
                finished = await run(backend, job, limits, submission.environment)
                self._takes[key] = finished.ended.exit_code == 0
            return self._takes[key]
