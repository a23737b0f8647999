"""Questions of the listening process to the reader process of the journal.

The reader process starts a moment after the service, or with the first question, and after a crash with
the next question.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from proctor_service.errors import Busy, JournalDown
from proctor_service.processes.child import Child
from proctor_service.processes.connection import (
    HEARD,
    NOTE,
    REPLY,
    REQUEST,
    Message,
)
from proctor_service.processes.values import error_of

log = logging.getLogger(__name__)

MODULE = ("-m", "proctor_service.features.journal.answering")
START_AFTER_SECONDS = 3.0
"""Until then the service starts, and judges its first submissions."""
MOST_ASKED = 60
"""Running or waiting questions; each ends within the time limit of the database's reader."""
ANSWER_SECONDS = 60.0
"""After this the process is taken for hung. Questions wait for each other."""
TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "completion": "completion_text",
        "source": "source",
        **{name: f"{name}_json" for name in ("grader", "files", "output", "failures", "prompt")},
    }
)
"""Names of the texts of an evaluation in URLs, and their names in a row."""
_ENDED = "the process that reads the journal has ended: ask again"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in pieces. `tag`: digest of the body of a page; empty for others."""

    pieces: Sequence[bytes]
    tag: str = ""


@dataclass(slots=True)
class _Question:
    answer: asyncio.Future[Answer]
    child: Child | None = None
    pieces: list[bytes] = field(default_factory=list)


class Questions:
    """Sender of questions, until `close`.

    `url`: of the database. `query_seconds`: longest time of a question there. `environment`: variables
    of the process.
    """

    def __init__(
        self,
        url: str,
        query_seconds: float,
        environment: Mapping[str, str],
        command: Sequence[str] = (sys.executable, *MODULE),
    ) -> None:
        self._place = (url, query_seconds)
        self._environment = environment
        self._command = command
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Question] = {}
        self._child: Child | None = None
        self._starting = asyncio.Lock()
        self._opening: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start the process in a moment, in the running loop, ahead of the first question."""
        self._opening = asyncio.create_task(self._start_early())

    async def _start_early(self) -> None:
        await asyncio.sleep(START_AFTER_SECONDS)
        with contextlib.suppress(OSError):  # a question will tell
            await self._running()

    async def ask(self, name: str, *values: object) -> Answer:
        """Return the answer to a question of `process.questions`, with plain values.

        Raises Busy, JournalDown and the refusals of that question.
        """
        if len(self._waiting) >= MOST_ASKED:
            raise Busy("the journal has many questions to answer: ask again in a moment")
        number = next(self._numbers)
        question = self._waiting[number] = _Question(asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                question.child = await self._running()
                if question.child.is_lost:
                    raise JournalDown(_ENDED)
                question.child.connection.send(REQUEST, number, name, values)
                return await question.answer
        except TimeoutError:
            log.error("the process that reads the journal does not answer; it is ended")
            await self._end()
            raise JournalDown(_ENDED) from None
        except OSError as error:
            log.error("the process that reads the journal cannot start", extra={"why": str(error)})
            raise JournalDown("the process that reads the journal cannot start") from None
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """End the process; questions without an answer fail."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._end()

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.kill()

    async def _running(self) -> Child:
        """Return the process, started if there is none. Raises OSError."""
        async with self._starting:
            if self._child is not None and self._child.is_lost:
                await self._end()
            if self._child is None:
                child = await Child.start(
                    self._command, self._environment, self._receive, self._fail
                )
                child.connection.send(NOTE, "start", self._place)
                self._child = child
            return self._child

    def _fail(self, child: Child) -> None:
        """Fail the questions of an ended process."""
        for question in self._waiting.values():
            if question.child is child and not question.answer.done():
                question.answer.set_exception(JournalDown(_ENDED))

    def _receive(self, message: Message) -> None:
        kind, number, *rest = message
        question = self._waiting.get(number)
        if question is None or question.answer.done():
            return
        if kind == HEARD:
            question.pieces.extend(rest)
        elif kind == REPLY:
            [tag] = rest
            question.answer.set_result(Answer(question.pieces, tag))
        else:
            question.answer.set_exception(error_of(*rest))
