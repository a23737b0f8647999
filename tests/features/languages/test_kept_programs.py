"""Programs that a compiler makes once: by content, for one tenant, and never from a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from harness import NoBackend
from scripted_sandboxes import ROOMY, ended

from proctor_client.wire import ExecGrader
from proctor_service.codec.values import dumps
from proctor_service.errors import SandboxLost
from proctor_service.features.languages.compilers import Compilers
from proctor_service.features.languages.prepared_files import PreparedFiles, Scripts
from proctor_service.features.languages.recipes import default_names, recipe_name
from proctor_service.features.languages.separate_tests import launcher_name
from proctor_service.guest.channel import BEGAN
from proctor_service.judge.graders.programs import Parts, Program
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import (
    DEFAULT,
    PAYER,
    Ended,
    GuestMessage,
    Limits,
    Sandbox,
    Traits,
)
from proctor_service.settings.languages import LANGUAGES

COMPILED = dumps(["compiled", 0, [["solution", 4]], False])
REFUSED = dumps(["compiled", 1, [], False])
MADE, WRONG = ended(out=b"\x7fELF"), ended(code=1, err=b"solution.c:1:1: error")


class CompilerSandbox:
    """A sandbox whose compiler ends as its backend says."""

    id = "sb_1"

    def __init__(self, backend: CompilerBackend) -> None:
        self._backend = backend
        self._lines: list[bytes] = []

    def begin(self, message: GuestMessage) -> None:
        self._backend.compilations += 1

    def send(self, line: bytes) -> None:
        """Of the snapshot and the job behind it, nothing counts here."""

    async def ended(self) -> Ended:
        await self._backend.gate.wait()
        end = next(self._backend.ends)
        if isinstance(end, Exception):
            raise end
        self._lines = [BEGAN, {MADE: COMPILED, WRONG: REFUSED}.get(end, b"")]
        return end

    async def receive(self) -> bytes | None:
        lines = [line for line in self._lines if line]
        self._lines = lines[1:]
        return lines[0] if lines else None


class CompilerBackend(NoBackend):
    """A backend with a scripted end for each compilation, behind a gate."""

    def __init__(self, *ends: Ended | Exception) -> None:
        super().__init__(Traits("local"))
        self.ends: Iterator[Ended | Exception] = iter(ends)
        self.compilations = 0
        self.gate = asyncio.Event()

    @asynccontextmanager
    async def lease(
        self, limits: Limits, environment: str = DEFAULT, hash_seed: int = 0
    ) -> AsyncIterator[Sandbox]:
        yield CompilerSandbox(self)  # type: ignore[misc]


GRADER = ExecGrader(kind="exec")
SUBMISSION = Submission("int main(void) { return 0; }", GRADER, ROOMY, language="c")
ARGV = ("gcc", "solution.c")


async def compiled(
    compilers: Compilers,
    backend: CompilerBackend,
    submission: Submission = SUBMISSION,
    argv: tuple[str, ...] = ARGV,
) -> Program | Judgement:
    program = Program(submission, ("./solution",), {})
    return await compilers.compiled(
        submission, backend, argv, {"solution.c": submission.source}, program
    )


def seconds(result: Program | Judgement) -> float:
    return (result.compiling if isinstance(result, Program) else result.usage).compile_seconds


async def begun(backend: CompilerBackend, compilations: int) -> None:
    async with asyncio.timeout(10):
        while backend.compilations < compilations:  # noqa: ASYNC110  the sandbox has no event
            await asyncio.sleep(0)


def without_files() -> Compilers:
    return Compilers(PreparedFiles(Path("/nonexistent")))


@pytest.mark.parametrize("end", [MADE, WRONG])
def test_equal_programs_are_compiled_once(end: Ended) -> None:
    async def main() -> None:
        compilers, backend = without_files(), CompilerBackend(end)
        tasks = [asyncio.create_task(compiled(compilers, backend)) for _ in range(8)]
        await begun(backend, 1)
        backend.gate.set()
        results = [*await asyncio.gather(*tasks), await compiled(compilers, backend)]
        assert backend.compilations == 1
        assert [seconds(each) > 0 for each in results] == [True] + [False] * 8
        for each in results:
            if isinstance(each, Program):
                assert (each.made.sizes, each.made.data) == ((("solution", 4),), b"\x7fELF")
            else:
                assert (each.verdict, each.message) == ("syntax_error", "solution.c:1:1: error")

    asyncio.run(main())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_next_one_compiles_after_a_failure_of_the_first(is_cancelled: bool) -> None:
    async def main() -> None:
        lost = [] if is_cancelled else [SandboxLost("gone")]
        compilers, backend = without_files(), CompilerBackend(*lost, MADE)
        tasks = [asyncio.create_task(compiled(compilers, backend)) for _ in range(3)]
        await begun(backend, 1)
        if is_cancelled:
            tasks[0].cancel()
            await begun(backend, 2)
        backend.gate.set()
        first, *others = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, asyncio.CancelledError if is_cancelled else SandboxLost)
        assert all(isinstance(each, Program) for each in others)
        assert backend.compilations == 2

    asyncio.run(main())


def test_only_equal_programs_of_a_tenant_share_a_compilation() -> None:
    async def main() -> None:
        compilers, backend = without_files(), CompilerBackend(*[MADE] * 20)
        backend.gate.set()
        others = [
            (replace(SUBMISSION, source="int main(void) { return 1; }"), ARGV),
            (replace(SUBMISSION, environment="other"), ARGV),
            (replace(SUBMISSION, limits=replace(ROOMY, memory_mb=4096)), ARGV),
            (SUBMISSION, (*ARGV, "-O3")),
        ]
        for submission, argv in [(SUBMISSION, ARGV), *others] * 2:
            await compiled(compilers, backend, submission, argv)
        assert backend.compilations == 1 + len(others)
        PAYER.set(("another tenant", ""))
        await compiled(compilers, backend)
        assert backend.compilations == 2 + len(others)
        for _ in range(2):  # an agent's files are beside it
            await compiled(compilers, backend, replace(SUBMISSION, state=b"archive"))
        assert backend.compilations == 4 + len(others)

    asyncio.run(main())


def test_a_limit_that_ended_a_compiler_is_not_kept() -> None:
    async def main() -> None:
        compilers, backend = without_files(), CompilerBackend(ended("cpu_limit", None), MADE)
        backend.gate.set()
        first, second = await compiled(compilers, backend), await compiled(compilers, backend)
        assert isinstance(first, Judgement)
        assert first.verdict == "timeout"
        assert isinstance(second, Program)

    asyncio.run(main())


def test_an_identifier_belongs_to_one_content() -> None:
    parts = Parts("setup", "completion", "tests")
    name = launcher_name(SUBMISSION, parts)
    assert launcher_name(SUBMISSION, parts) == name
    knowing = replace(parts, completion=f"completion {name}")
    with_files = replace(SUBMISSION, files={"names.h": name})
    with_state = replace(SUBMISSION, state=b"archive")
    names = {
        launcher_name(SUBMISSION, knowing),
        launcher_name(with_files, parts),
        launcher_name(with_state, parts),
        launcher_name(with_state, parts),
    }
    assert len(names - {name}) == 4


def test_each_command_has_the_prepared_files_that_fit_it() -> None:
    cpp = LANGUAGES["cpp"]
    rows = {
        ("cpp", ()): "cpp-O2-std=gnu++17",
        ("cpp", ("-std=gnu++20",)): "cpp-O2-std=gnu++20",
        ("cpp", ("-std=c++11", "-DN=5", "-O0", "-g", "-Wall")): "cpp-O0-g-std=c++11",
        ("c", ()): None,
        ("java", ()): "java",
        ("kotlin", ()): "kotlin",
        ("scala", ()): "scala",
        ("typescript", ()): "typescript",
        ("go", ()): "go",
        ("rust", ()): None,
    }
    for (language, words), name in rows.items():
        command = LANGUAGES[language].with_compiler_words(words).compile
        assert command is not None
        assert recipe_name(command) == name, language
    assert recipe_name(("node", "-e", "1", "solution.ts")) is None
    assert default_names()[0] == f"cpp-O2-std={cpp.newest_standard}"


def test_a_run_script_takes_the_plain_command() -> None:
    plain = ("java", "Main")
    assert Scripts("/x", runs=True).run(plain) == ("/x/run", *plain)
    assert Scripts("/x", runs=False).run(plain) == plain
