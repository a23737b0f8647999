"""Logging: lines for people, or JSON for a collector.

Fields go into `extra`. Above `debug`, lines are free of submission texts; tokens are never logged. Logged
text may come from hostile code or from a client. So the formatters escape this text: the text cannot
start a new line, send control sequences to a terminal, or imitate another field.
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
    """Return the text with every character escaped except visible characters and the space."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _value(value: object) -> str:
    """Return a field's value, quoted if the text could look like several values."""
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return _visible(json.dumps(value, ensure_ascii=False))
    return _visible(str(value))


class ConsoleFormatter(logging.Formatter):
    """`12:00:00.123 info proctor_service.app: listening port=8080`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a line, followed by an indented traceback of the record's exception, if any."""
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
    """JSON object per line, in ASCII. A lone surrogate, which many parsers refuse, becomes `?`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's time, level, logger, message, fields and `traceback` if present."""
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
    """Filter that adds the current fields to each record and keeps every record."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self._fields = fields

    def filter(self, record: logging.LogRecord) -> bool:
        vars(record).update(self._fields())
        return True


def configure_logging(
    level: str, form: Literal["console", "json"], fields: Fields | None = None
) -> None:
    """Send the lines of all loggers to stderr in this format; `fields` are added to each line."""
    handler = logging.StreamHandler(sys.stderr)
    if fields is not None:
        handler.addFilter(_Adding(fields))
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Keep uvicorn's "Uvicorn running on …", and drop its access log.
    logging.getLogger("uvicorn.access").disabled = True
    # Client libraries log whole URLs and headers at debug.
    for name in ("httpx", "httpcore", "openai"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
