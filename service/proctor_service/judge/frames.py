"""Parser for the messages of a submission's interpreter, which are untrusted.

A hostile submission may write anything on the channel. Any line that an honest interpreter would
not send next is forged: the judgement gets the signal `forged_result`, and later lines are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proctor_client.wire import Verdict
from proctor_service.codec.values import Malformed, loads
from proctor_service.judge import verdict as verdicts

FORGED = "forged_result"


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the submission: its verdict, and a text for people and models."""

    verdict: Verdict
    summary: str
    traceback: str = ""


@dataclass(slots=True)
class Said:
    """All messages of a run. `answers`: for each call its encoded value or its exception.

    `reached`: the word that a script sent at its end.
    """

    loaded: bool = False
    reached: str | None = None
    done: bool = False
    forged: bool = False
    stopped: Raised | None = None
    answers: list[bytes | Raised] = field(default_factory=list)


def understand(lines: Iterable[bytes], calls: int = 0) -> Said:
    """Parse the lines of a run with `calls` requested calls.

    Values stay unparsed: the expected value decides how much of a value is parsed.
    """
    said = Said()
    for line in lines:
        if said.done or said.stopped is not None:
            said.forged = True
            break
        expected = b'["value",%d,' % len(said.answers)
        if said.loaded and len(said.answers) < calls and line.startswith(expected):
            said.answers.append(line[len(expected) : -1])
            continue
        try:
            _take(said, loads(line) if len(line) < 65_536 else None, calls)
        except (Malformed, TypeError, ValueError, IndexError, KeyError):
            said.forged = True
        if said.forged:
            break
    return said


def _take(said: Said, frame: Any, calls: int) -> None:
    match frame:
        case ["loaded"] if not said.loaded:
            said.loaded = True
        case ["reached", str(word)] if said.reached is None:
            said.reached = word
        case ["done"] if said.loaded and len(said.answers) == calls:
            said.done = True
        case ["syntax", _] | ["raised" | "exit", "load", *_] if not said.loaded:
            said.stopped = not_loaded(frame)
        case ["raised", int(index), *rest] if said.loaded and index == len(said.answers) < calls:
            said.answers.append(_raised(rest))
        case ["exit", int(index), int(code)] if said.loaded and index == len(said.answers) < calls:
            said.stopped = _left(code)
        case _:
            said.forged = True


def not_loaded(frame: list[Any]) -> Raised:
    """Return the load failure that a message reports. Raises ValueError for another message."""
    match frame:
        case ["syntax", str(message)]:
            return Raised("syntax_error", f"SyntaxError: {message}")
        case ["raised", "load", *rest]:
            return _raised(rest)
        case ["exit", "load", int(code)]:
            return _left(code)
    raise ValueError("not why a submission did not load")


def _raised(rest: list[Any]) -> Raised:
    """Parse [type name, message, traceback, class names]. Raises ValueError for another shape."""
    name, message, traceback, names = rest
    if not all(isinstance(text, str) for text in (name, message, traceback)):
        raise ValueError("not an exception")
    summary = f"{name}: {message}" if message else str(name)
    return Raised(verdicts.of_exception(names), summary[:2000], traceback)


def _left(code: int) -> Raised:
    """Return the result of a SystemExit before the end."""
    return Raised("early_exit", f"the program left with SystemExit({code}) before its end")
