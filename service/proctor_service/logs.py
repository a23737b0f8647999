"""Logging: lines for people, or JSON for a collector.

Fields go into `extra`. Above `debug` no line holds a submission's text, and no line ever a token. What
is logged may come from hostile code, or from a client: it never begins a line of its own, never
reaches a terminal as more than the characters one sees, and never looks like another field.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "asctime",
    "color_message",
    "message",
    "taskName",
}
_PLAIN = re.compile(r"[^\s\"'=\\]+")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _visible(text: str) -> str:
    """The text with everything that is not one visible character, or a blank, as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _value(value: object) -> str:
    """A field's value; in quotes where it is a text that could be taken for more than one value."""
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return _visible(json.dumps(value, ensure_ascii=False))
    return _visible(str(value))


class ConsoleFormatter(logging.Formatter):
    """`12:00:00.123 info  proctor_service.app: listening  port=8080`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it, indented, when there is one."""
        moment = _when(record).strftime("%H:%M:%S.%f")[:-3]
        message = _visible(record.getMessage())
        line = f"{moment} {record.levelname.lower():<7} {record.name}: {message}"
        fields = " ".join(f"{key}={_value(value)}" for key, value in _fields(record).items())
        if fields:
            line += f"  {fields}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).splitlines()
            line += "".join(f"\n    {_visible(each)}" for each in trace)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, in ASCII. A lone surrogate, which many parsers refuse, is `?`."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's time, level, logger, message and fields; `traceback` when there is one."""
        line: dict[str, Any] = {
            "time": _when(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(line, default=str, ensure_ascii=False)
        if not text.isascii():
            text = json.dumps(json.loads(_LONE_SURROGATE.sub("?", text)))
        return text.replace("\x7f", "\\u007f")


Fields = Callable[[], Mapping[str, str]]


class _Adding(logging.Filter):
    """Adds the fields of the moment to each line, and drops none."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self._fields = fields

    def filter(self, record: logging.LogRecord) -> bool:
        vars(record).update(self._fields())
        return True


def configure_logging(
    level: str, form: Literal["console", "json"], fields: Fields | None = None
) -> None:
    """Sends every logger's lines to stderr in this form; `fields` are added to each."""
    handler = logging.StreamHandler(sys.stderr)
    if fields is not None:
        handler.addFilter(_Adding(fields))
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # uvicorn says "Uvicorn running on …"; what else it says is ours to say, or noise.
    logging.getLogger("uvicorn.access").disabled = True
    # Client libraries log whole URLs and headers at debug.
    for name in ("httpx", "httpcore", "openai"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
