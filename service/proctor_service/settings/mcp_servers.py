"""MCP servers of rollouts: `PROCTOR_MCP_SERVERS`, the only way to name one.

A JSON object from a name to `{"url": …, "headers": {…}}`. The headers may hold credentials, so
error messages name the server and never quote the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from proctor_service.errors import StartError

WHERE = "PROCTOR_MCP_SERVERS"
_NAME = re.compile(r"[A-Za-z0-9-]{1,32}")  # "web-search"; not "a_b"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # "X-Api-Key"; not "a b"


@dataclass(frozen=True, slots=True)
class McpServer:
    """Address of an MCP server with streamable HTTP, and headers for every request."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


NO_SERVERS: Mapping[str, McpServer] = MappingProxyType({})


def parse_mcp_servers(text: str) -> dict[str, McpServer]:
    """Return the servers by name, {} for an empty text. Raises StartError without any
    secret."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise StartError(f"{WHERE}: not JSON: {error.msg} at {at}") from None
    except RecursionError:
        raise StartError(f"{WHERE}: nested too deeply") from None
    if not isinstance(found, dict):
        raise StartError(f"{WHERE}: not a JSON object from name to url and headers")
    return {name: _server(name, definition) for name, definition in found.items()}


def _server(name: str, definition: Any) -> McpServer:
    at = f"{WHERE}: {name[:100]!r}"
    if not _NAME.fullmatch(name):
        raise StartError(f"{at}: a name has 1 to 32 letters, digits and hyphens")
    if not isinstance(definition, dict) or not definition.keys() <= {"url", "headers"}:
        raise StartError(f"{at}: not an object with url and headers")
    url, headers = definition.get("url"), definition.get("headers", {})
    if not isinstance(url, str) or not _is_http(url):
        raise StartError(f"{at}: url: not an http or https URL without a user")
    if not isinstance(headers, dict) or not all(map(_is_header, headers, headers.values())):
        raise StartError(f"{at}: headers: not an object from header name to printable text")
    return McpServer(url, headers)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _is_header(name: str, value: Any) -> bool:
    printable = isinstance(value, str) and value.isascii() and value.isprintable()
    return printable and value == value.strip() and bool(_HEADER_NAME.fullmatch(name))
