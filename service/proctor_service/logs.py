"""Logging: lines for people, or JSON for a collector.

Fields go into `extra`. Above `debug` no line holds a submission's text, and no line ever a token.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "asctime",
    "color_message",
    "message",
    "taskName",
}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class ConsoleFormatter(logging.Formatter):
    """`12:00:00.123 info  proctor_service.app: listening  port=8080`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it when there is one."""
        moment = _when(record).strftime("%H:%M:%S.%f")[:-3]
        line = f"{moment} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        fields = " ".join(f"{key}={value}" for key, value in _fields(record).items())
        if fields:
            line += f"  {fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

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
        return json.dumps(line, default=str)


def configure_logging(level: str, form: Literal["console", "json"]) -> None:
    """Sends every logger's lines to stderr in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # uvicorn says "Uvicorn running on …"; what else it says is ours to say, or noise.
    logging.getLogger("uvicorn.access").disabled = True
    # Client libraries log whole URLs and headers at debug.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
