"""Compilers of C and C++: the standard that each takes, and the options of a submission.

Each compiler is asked once which standards it takes, in the first sandbox of its environment that needs
to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from proctor_service.errors import InvalidTask
from proctor_service.judge.run import message, run
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Limits, Sandboxes
from proctor_service.settings.languages import Language

_PROCESSES = 64  # at once, at least
_SECONDS = 30.0  # at least, of CPU time and of waiting
_MEMORY_MB = 512  # at least


def compiler_limits(limits: Limits) -> Limits:
    """Return the limits of a compiler: those meant for a program would refuse right programs."""
    return replace(
        limits,
        processes=max(limits.processes, _PROCESSES),
        cpu_seconds=max(limits.cpu_seconds, _SECONDS),
        wall_seconds=max(limits.wall_seconds, _SECONDS),
        total_cpu_seconds=None,
        total_wall_seconds=None,
        memory_mb=max(limits.memory_mb, _MEMORY_MB),
    )


class Compilers:
    """The languages with their commands for a submission."""

    def __init__(self, languages: Mapping[str, Language]) -> None:
        self.languages = languages
        self._asking = asyncio.Lock()
        self._takes: dict[tuple[str, str, str], bool] = {}

    async def language_of(self, submission: Submission, backend: Sandboxes) -> Language:
        """Return the language of a submission, with its options in the command of the compiler.

        Raises InvalidTask if the compiler does not take the standard that the task asks for.
        """
        language = self.languages[submission.language].within(submission.limits.memory_mb)
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
        language = self.languages[submission.language]
        key = (submission.environment, submission.language, standard)
        if language.compile is None or key in self._takes:
            return self._takes.get(key, False)
        async with self._asking:
            if key not in self._takes:
                program = language.compile[0]
                asked = (program, f"-std={standard}", "-E", language.source)
                job = message("command", argv=asked, files={language.source: ""})
                limits = compiler_limits(submission.limits)
                finished = await run(backend, job, limits, submission.environment, says_began=False)
                self._takes[key] = finished.ended.exit_code == 0
            return self._takes[key]
