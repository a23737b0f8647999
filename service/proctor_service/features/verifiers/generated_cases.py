"""Generated cases: a generator of the task's author prints the inputs, and a reference the answers.

Each case is made once for a task, and stored. The submissions of a task make the missing cases together,
each submission a single case at a time in place of a run of its own, so that cases take no sandbox from
other tasks. A failure of either program is an InvalidTask naming the seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proctor_client.wire import AuthorProgram, GeneratedCases, StdioCase
from proctor_service.errors import InvalidTask
from proctor_service.features.verifiers.author_programs import AuthorPrograms, digest_of
from proctor_service.judge.graders.programs import Program
from proctor_service.judge.stored_results import StoredResults
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Sandboxes
from proctor_service.scheduling.pacer import Pacer

GENERATOR, REFERENCE = "cases.generator", "cases.reference"
MAX_TEXT_BYTES = 8 << 20
"""Most bytes of an input, and of an answer."""
MAX_TASK_BYTES = 64 << 20
"""Most bytes of all inputs and answers of a task."""
_MOST_CASES = 100_000
_MOST_BYTES = 4 * MAX_TASK_BYTES
_ENTRY_BYTES = 500
_SHORT_BYTES = 32_768  # decoded in the event loop
_INPUT = "case/input"
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class _Made:
    """A case and its size, or the problem of its seed."""

    case: StdioCase | None
    size_bytes: int
    problem: str = ""


class CaseMaker:
    """Maker of generated cases, and store of the finished cases."""

    def __init__(self, programs: AuthorPrograms) -> None:
        self._programs = programs
        self._made: StoredResults[_Made] = StoredResults(
            _MOST_CASES, _MOST_BYTES, lambda made: _ENTRY_BYTES + made.size_bytes
        )

    async def cases(
        self,
        generated: GeneratedCases,
        digest: bytes,
        task: Submission,
        backend: Sandboxes,
    ) -> Sequence[StdioCase]:
        """Return the cases in the order of their seeds. `digest`: of their grader.

        Raises InvalidTask, and SandboxLost.
        """
        task_programs = _TaskPrograms(self._programs, generated, task, backend)
        limits = repr(task.limits)
        keys = [digest_of(digest, limits, repr(seed)) for seed in generated.seeds]
        makers = [partial(task_programs.made, seed) for seed in generated.seeds]
        pacer = Pacer()
        for key, make in zip(keys, makers, strict=True):
            if not self._made.is_being_made(key):
                _case_of(await self._made.once(key, make))
            await pacer.pause()
        cases, size_bytes = [], 0
        for key, make in zip(keys, makers, strict=True):
            made = await self._made.once(key, make)
            cases.append(_case_of(made))
            size_bytes += made.size_bytes
            if size_bytes > MAX_TASK_BYTES:
                raise InvalidTask(f"cases: they are larger than {MAX_TASK_BYTES >> 20} MB together")
            await pacer.pause()
        return cases


def _case_of(made: _Made) -> StdioCase:
    if made.case is None:
        raise InvalidTask(made.problem)
    return made.case


class _TaskPrograms:
    """Generator and reference of a task, each prepared before its first run."""

    def __init__(
        self,
        programs: AuthorPrograms,
        generated: GeneratedCases,
        task: Submission,
        backend: Sandboxes,
    ) -> None:
        self._programs = programs
        self._generated = generated
        self._task = task
        self._backend = backend
        self._prepared: dict[str, Program] = {}

    async def made(self, seed: int | str) -> _Made:
        """Return the case of a seed, or its problem. Raises InvalidTask for unfit programs."""
        generator, reference = self._generated.generator, self._generated.reference
        stdin = await self._printed(GENERATOR, generator, seed, str(seed).split())
        if isinstance(stdin, str):
            return _Made(None, 0, stdin)
        text = await _text(stdin)
        if text is None:
            return _Made(None, 0, _problem(GENERATOR, seed, "prints no UTF-8"))
        if reference is None:
            return _Made(StdioCase.model_construct(stdin=text), len(stdin))
        stdout = await self._printed(REFERENCE, reference, seed, stdin=stdin)
        if isinstance(stdout, str):
            return _Made(None, 0, stdout)
        answer = await _text(stdout)
        if answer is None:
            return _Made(None, 0, _problem(REFERENCE, seed, "prints no UTF-8"))
        case = StdioCase.model_construct(stdin=text, stdout=answer)
        return _Made(case, len(stdin) + len(stdout))

    async def _printed(
        self,
        name: str,
        author: AuthorProgram,
        seed: int | str,
        argv: Sequence[str] = (),
        stdin: bytes | None = None,
    ) -> bytes | str:
        """Return the output of a program for a seed, or its problem.

        Raises InvalidTask, and SandboxLost if the problem may be the machine's.
        """
        program = self._prepared.get(name)
        if program is None:
            program = await self._programs.prepared(name, author, self._task, self._backend)
            self._prepared[name] = program
        files = {} if stdin is None else {_INPUT: stdin}
        finished = await self._programs.run(
            name,
            program,
            self._backend,
            argv,
            files,
            None if stdin is None else _INPUT,
            MAX_TEXT_BYTES + 1,
        )
        output = finished.run.ended.stdout
        if finished.exit_code == 0 and 0 < len(output) <= MAX_TEXT_BYTES:
            return output
        finished.run.check_blame()
        if finished.exit_code != 0:
            return _problem(name, seed, finished.how_it_ended())
        if not output:
            return _problem(name, seed, "prints nothing")
        return _problem(name, seed, f"prints more than {MAX_TEXT_BYTES >> 20} MB")


def _problem(name: str, seed: int | str, text: str) -> str:
    return f"{name}: seed {repr(seed)[:_SHOWN_CHARACTERS]}: {text}"


async def _text(data: bytes) -> str | None:
    """Return the text of an output; None for invalid UTF-8."""
    try:
        if len(data) <= _SHORT_BYTES:
            return data.decode()
        return await asyncio.to_thread(data.decode)
    except UnicodeDecodeError:
        return None
