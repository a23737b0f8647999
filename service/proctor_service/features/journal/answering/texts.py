"""Names of the texts of an evaluation that a page may show in part."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "completion": "completion_text",
        "source": "source",
        **{name: f"{name}_json" for name in ("grader", "files", "output", "failures", "prompt")},
    }
)
"""The name of a text in a URL, and where a row has it."""
