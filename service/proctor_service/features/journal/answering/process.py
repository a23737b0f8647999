"""Reader process of the journal, which answers questions of the service (`questions.py`).

Reading the database, and making pages and long JSON, would otherwise block the interpreter of the listening
process, for as long as a submission chooses. The process ends with its connection.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from proctor_service.errors import JournalDown, ProctorServiceError
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.answering.answers import questions
from proctor_service.features.journal.database import TooSlow, short_error
from proctor_service.features.journal.reading import Reader
from proctor_service.http.responses import PIECE_BYTES
from proctor_service.processes.child import set_up
from proctor_service.processes.connection import (
    FAILED,
    HEARD,
    REPLY,
    Message,
    frame_of,
)

log = logging.getLogger(__name__)

THREADS = 3
_TOO_SLOW = "the question took too long: narrow it, for example by a job and a step"
_DOWN = "the journal's database does not answer now"


class Answering:
    """Answers questions, in several threads, to the other end of a connection."""

    def __init__(
        self, questions: Mapping[str, Callable[..., bytes | str]], end: socket.socket
    ) -> None:
        self._questions = questions
        self._end = end
        self._sending = threading.Lock()

    def answer(self, message: Message) -> None:
        """Answer a question."""
        _, number, name, values = message
        try:
            content, tag = self._found(name, values)
        except ProctorServiceError as error:
            self._send(FAILED, number, type(error).__name__, str(error))
        except Exception:
            self._send(FAILED, number, "", traceback.format_exc())
        else:
            # Between the pieces of a long answer the listening process does other things.
            for begin in range(0, len(content), PIECE_BYTES):
                self._send(HEARD, number, content[begin : begin + PIECE_BYTES])
            self._send(REPLY, number, tag)

    def _found(self, name: str, values: Sequence[object]) -> tuple[bytes, str]:
        """Return an answer, and the tag of a page's body."""
        try:
            found = self._questions[name](*values)
        except TooSlow:
            raise JournalDown(_TOO_SLOW) from None
        except (SQLAlchemyError, OSError) as error:
            log.warning("the journal cannot be read: %s", short_error(error))
            raise JournalDown(_DOWN) from None
        if isinstance(found, bytes):
            return found, ""
        content = found.encode()
        return content, hashlib.blake2b(content, digest_size=16).hexdigest()

    def _send(self, *message: object) -> None:
        frame = b"".join(frame_of([message]))
        with self._sending:
            self._end.sendall(frame)


def run(arguments: Sequence[str]) -> None:
    """Run the process to its end. `arguments`: the descriptor of the connection."""
    end, incoming, first = set_up(arguments[0])
    if not first:
        return
    _, _, (url, query_seconds) = first.pop(0)
    answering = Answering(questions(Reader(checked(url), query_seconds)), end)
    threads = ThreadPoolExecutor(THREADS)
    while True:
        for message in first:
            threads.submit(answering.answer, message)
        if not incoming.is_open:
            os._exit(0)  # the questions still running are given up
        first = list(incoming.messages(60.0))
