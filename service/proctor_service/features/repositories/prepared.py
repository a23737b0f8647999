"""The state of an image that the policy meets: one layer for a task, made once, and kept by its content.

The layer has what `prepare` makes, and the one commit. The agent's layer, over it, lacks what the task hides.
Only files stay: neither processes nor sockets. Environments without layers are prepared in each sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from proctor_client.wire import RepositoryGrader
from proctor_service.errors import FileRefused, InvalidTask, NotLayered
from proctor_service.features.repositories import enclosing
from proctor_service.features.repositories.facts import Facts
from proctor_service.features.repositories.trees import SOURCE, private_folder, remove_folder
from proctor_service.features.repositories.workspace import hide_files, prepare_repository
from proctor_service.guest.session import layer, streams
from proctor_service.judge.stored_results import StoredResults
from proctor_service.sandbox.interface import (
    CHARGE,
    Limits,
    Operation,
    Sandboxes,
    StatefulSandbox,
    charge_nobody,
    derived_environment,
)

_FORMAT = 2
_MOST_FACTS, _MOST_FACTS_BYTES = 256, 64 << 20
_FILE_BYTES = 100
_LAYER = (
    Path(streams.__file__).read_text()
    + Path(layer.__file__)
    .read_text()
    .replace("from __future__ import annotations", "")
    .replace("from .retained import Rule\n", "Rule = Any\n")
    .replace("from .streams import WholeFile, write_all\n", "")
    + "\n\ndef main():\n    save(1 << 50)\n"
)


class PreparedStates:
    """Opens sandboxes in the state that the policy of a task meets."""

    def __init__(self) -> None:
        self._facts: StoredResults[Facts] = StoredResults(
            _MOST_FACTS, _MOST_FACTS_BYTES, _size_bytes
        )
        code = (str(_FORMAT), SOURCE, enclosing.guest_source(), _LAYER)
        self._code = hashlib.blake2b("".join(code).encode(), digest_size=20).hexdigest()

    @asynccontextmanager
    async def opened(
        self,
        grader: RepositoryGrader,
        sandboxes: Sandboxes,
        limits: Limits,
        environment: str,
        files: Mapping[str, str],
        *,
        for_agent: bool = False,
        tags: Sequence[str] = (),
    ) -> AsyncIterator[tuple[StatefulSandbox, Facts, str]]:
        """Open a sandbox; its facts, and a folder for files that cross, belong to it.

        `files`: of the task, by path, which are there before all. `for_agent`: without what `hide` names.
        Raises InvalidTask, and the errors of `Sandboxes.open`.
        """
        async with _folder() as folder:
            try:
                name, facts = await self._layered(
                    grader, sandboxes, limits, environment, files, for_agent
                )
            except NotLayered:
                async with sandboxes.open(limits, environment, tags) as sandbox:
                    facts = await _prepared(sandbox, grader, files, folder)
                    del files
                    if for_agent and grader.hide:
                        await hide_files(sandbox, grader, facts, folder)
                    yield sandbox, facts, folder
                return
            del files  # they may be large
            async with sandboxes.open(limits, name, tags) as sandbox:
                yield sandbox, facts, folder

    async def _layered(
        self,
        grader: RepositoryGrader,
        sandboxes: Sandboxes,
        limits: Limits,
        environment: str,
        files: Mapping[str, str],
        for_agent: bool,
    ) -> tuple[str, Facts]:
        """Return the environment with the state, and its facts. Raises NotLayered."""

        async def make(archive: Path) -> bytes:
            with _uncharged():
                async with _folder() as folder, sandboxes.open(limits, environment) as sandbox:
                    facts = await _prepared(sandbox, grader, files, folder)
                    await _save(sandbox, archive)
            return await asyncio.to_thread(facts.encoded)

        fields = [grader.directory, grader.activate, grader.env, dict(files)]
        tasks = [each and each.model_dump() for each in (grader.prepare, grader.files_from)]
        derived = await derived_environment(
            sandboxes, environment, self._key("prepared", fields, tasks), make
        )
        notes = derived.notes
        facts = await self._facts.once(
            hashlib.blake2b(notes, digest_size=20).digest(),
            lambda: asyncio.to_thread(Facts.decoded, notes),
        )
        if not (for_agent and grader.hide):
            return derived.name, facts

        async def make_hidden(archive: Path) -> bytes:
            with _uncharged():
                async with _folder() as folder, sandboxes.open(limits, derived.name) as sandbox:
                    await hide_files(sandbox, grader, facts, folder)
                    await _save(sandbox, archive)
            return b""

        key = self._key("hidden", grader.directory, grader.hide)
        return (await derived_environment(sandboxes, derived.name, key, make_hidden)).name, facts

    def _key(self, *parts: object) -> str:
        """Return a name of a state among those of its image."""
        text = json.dumps([self._code, *parts], sort_keys=True)
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _size_bytes(facts: Facts) -> int:
    files = sum(len(path) + _FILE_BYTES for path in facts.sizes)
    return files + sum(len(state.content) for state in facts.from_commit.values())


async def _prepared(
    sandbox: StatefulSandbox, grader: RepositoryGrader, files: Mapping[str, str], folder: str
) -> Facts:
    for path, text in files.items():
        await sandbox.write_file(path, text.encode("utf-8", "surrogatepass"))
    return await prepare_repository(sandbox, grader, folder)


async def _save(sandbox: StatefulSandbox, archive: Path) -> None:
    """Write the changes of a sandbox to a file, as a layer."""
    await asyncio.to_thread(archive.touch, 0o600)
    try:
        await sandbox.operate(Operation(_LAYER, stdout=str(archive), freezes=True))
    except FileRefused as refused:
        raise InvalidTask(f"what prepare makes cannot be kept: {refused.message}"[:1000]) from None


@contextmanager
def _uncharged() -> Iterator[None]:
    """Charge nobody for what many tasks share."""
    token = CHARGE.set(charge_nobody)
    try:
        yield
    finally:
        CHARGE.reset(token)


@asynccontextmanager
async def _folder() -> AsyncIterator[str]:
    folder = await asyncio.to_thread(private_folder)
    try:
        yield folder
    finally:
        await asyncio.shield(asyncio.to_thread(remove_folder, folder))
