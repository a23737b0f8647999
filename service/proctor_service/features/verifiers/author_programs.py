"""Programs of a task's author: compiled once, and each run in a sandbox of its own.

A program's failure before the program has read any output of a submission is an InvalidTask.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from proctor_client.wire import AuthorProgram
from proctor_client.wire import Limits as WireLimits
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.pairs import Pairs
from proctor_service.judge.graders.programs import Languages, Program, prepared
from proctor_service.judge.run import LIMITS, JobTooLong, Run, Unfit, text_of, understand
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import DEFAULT, Limits, Sandboxes
from proctor_service.settings.languages import PYTHON, Language, language_named

_SECONDS = 10.0  # at least, of CPU time and of waiting, where the author names none
_MEMORY_MB = 512
_OUTPUT_KB = 64
_PROCESSES = 64
_DISK_MB = 64
_ROOM_STEP_MB = 64  # few disk sizes, so sandboxes are easier to reuse
_SHOWN_CHARACTERS = 1000
_FREE_SECONDS = 1.0  # a virtual machine has started by then
_TOO_LONG = "its source and files are larger than a sandbox takes"


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run of an author's program."""

    run: Run

    @property
    def exit_code(self) -> int | None:
        """Exit code; None after a limit, a signal or an exception in Python."""
        ended = self.run.ended
        stopped = understand(self.run.lines).stopped
        raised = stopped is not None and stopped.verdict != "early_exit"
        return ended.exit_code if ended.ending == "exited" and not raised else None

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return text_of(self.run.ended.stdout)

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return text_of(self.run.ended.stderr)

    @property
    def lost_seconds(self) -> float:
        """CPU and idle time of a program ended by a limit; of any other program, CPU time beyond a second."""
        usage = self.run.ended.usage
        if self.run.ended.ending in LIMITS:
            return usage.cpu_seconds + usage.idle_seconds
        return max(0.0, usage.cpu_seconds - _FREE_SECONDS)

    def how_it_ended(self) -> str:
        """Describe an unexpected end, with the end of its stderr."""
        ended = self.run.ended
        if ended.ending == "exited":
            how = f"exit code {ended.exit_code}"
        elif ended.ending == "signalled":
            how = f"signal {ended.signal}"
        else:
            how = ended.ending
        stopped = understand(self.run.lines).stopped
        if stopped is not None and stopped.verdict == "syntax_error":
            how = stopped.summary
        stderr = self.stderr.strip()[-_SHOWN_CHARACTERS:]
        return f"{how}: {stderr}" if stderr else how


class AuthorPrograms:
    """Programs of tasks' authors, in the languages of the service.

    `pairs`: leases of two sandboxes for programs running at the same time.
    """

    def __init__(self, languages: Languages, table: Mapping[str, Language]) -> None:
        self.languages = languages
        self.pairs = Pairs()
        self._table = table

    async def prepared(
        self, name: str, author: AuthorProgram, task: Submission, backend: Sandboxes
    ) -> Program:
        """Return a program ready to run. `name`: of the program in messages.

        Raises InvalidTask for a program with compile errors.
        """
        language = language_named(author.language, self._table)
        if language != PYTHON and language not in self._table:
            raise InvalidTask(f"{name}.language: no {author.language[:100]!r} here")
        submission = Submission(
            author.source,
            task.grader,
            author_limits(author.limits, task.limits),
            language=language,
            files=author.files,
            environment=author.environment or DEFAULT,
        )
        try:
            program = await prepared(submission, backend, self.languages)
        except Unfit as unfit:
            raise InvalidTask(f"{name}: {unfit}") from None
        except JobTooLong:
            raise InvalidTask(f"{name}: {_TOO_LONG}") from None
        if isinstance(program, Judgement):
            text = program.message[:_SHOWN_CHARACTERS]
            raise InvalidTask(f"{name} does not compile: {program.verdict}: {text}")
        return program

    async def run(
        self,
        name: str,
        program: Program,
        backend: Sandboxes,
        argv: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        stdin_file: str | None = None,
        keep_stdout_bytes: int = 0,
    ) -> Finished:
        """Run a program once, with these files beside its source. Raises InvalidTask for unfit files."""
        program = _with_room(program, sum(map(len, (files or {}).values())))
        try:
            job, data = program.job_with(argv, files or {}, stdin_file)
            return Finished(await program.run(backend, job, keep_stdout_bytes, data))
        except Unfit as unfit:
            raise InvalidTask(f"{name}: {unfit}") from None
        except JobTooLong:
            raise InvalidTask(f"{name}: {_TOO_LONG}") from None


def _with_room(program: Program, size_bytes: int) -> Program:
    """Return the program with a disk larger by the size of its files, unless the files are small."""
    limits = program.submission.limits
    if size_bytes <= limits.disk_mb << 19:  # half of it
        return program
    more_mb = math.ceil(size_bytes / (_ROOM_STEP_MB << 20)) * _ROOM_STEP_MB
    limits = replace(limits, disk_mb=limits.disk_mb + more_mb)
    return replace(program, submission=replace(program.submission, limits=limits))


def author_limits(wanted: WireLimits | None, task: Limits) -> Limits:
    """Return the limits of an author's program: `wanted`, else those of the task, raised to a minimum."""
    limits = replace(
        task,
        cpu_seconds=max(task.cpu_seconds, _SECONDS),
        wall_seconds=max(task.wall_seconds, _SECONDS),
        memory_mb=max(task.memory_mb, _MEMORY_MB),
        output_kb=max(task.output_kb, _OUTPUT_KB),
        processes=max(task.processes, _PROCESSES),
        disk_mb=max(task.disk_mb, _DISK_MB),
        network=False,
        total_cpu_seconds=None,
        total_wall_seconds=None,
    )
    if wanted is None:
        return limits
    return replace(limits, **wanted.model_dump(exclude_none=True, exclude={"network"}))


def digest_of(*parts: BaseModel | str | bytes | None) -> bytes:
    """Return a digest of models and texts, as a key of stored results."""
    key = hashlib.blake2b(digest_size=20)
    for part in parts:
        if isinstance(part, BaseModel):
            data = _json_of(part)
        elif isinstance(part, str):
            data = part.encode("utf-8", "surrogatepass")
        else:
            data = b"\0none" if part is None else part
        key.update(b"%d:" % len(data) + data)
    return key.digest()


def _json_of(model: BaseModel) -> bytes:
    try:
        return model.model_dump_json().encode()
    except PydanticSerializationError:  # a lone surrogate
        return repr(model).encode()
