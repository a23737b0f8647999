"""Outline of the HTTP contract, and what a newer contract may not do to clients of an older one.

`python tests/support/wire_outline.py` writes the outline of this tree to `tests/core/wire_1.json`.
That file is of the first version of the wire: replace it only with a new version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Outline: TypeAlias = dict[str, Any]
FILE = Path(__file__).resolve().parents[1] / "core" / "wire_1.json"


def outline(openapi: dict[str, Any]) -> Outline:
    """Routes, and for each model its fields, the required ones, and the words that a field may be."""
    return {
        "routes": sorted(
            f"{method.upper()} {path}" for path, item in openapi["paths"].items() for method in item
        ),
        "models": {
            name: {
                "is_request": model.get("additionalProperties") is False,
                "required": sorted(model.get("required", [])),
                "fields": {
                    field: sorted(set(_words(schema)))
                    for field, schema in sorted(model["properties"].items())
                },
            }
            for name, model in sorted(openapi["components"]["schemas"].items())
            if "properties" in model
        },
    }


def breaks(old: Outline, new: Outline) -> Iterator[str]:
    """What breaks a client of the old contract, a line each.

    Clients ignore unknown fields of an answer, but not unknown words in a field that they know.
    The reason of a refusal is read by its HTTP status where it is unknown.
    """
    yield from (f"{route}: gone" for route in set(old["routes"]) - set(new["routes"]))
    for name, model in old["models"].items():
        if name not in new["models"]:
            yield f"{name}: gone"
            continue
        now = new["models"][name]
        before, after = set(model["required"]), set(now["required"])
        if model["is_request"]:
            yield from (f"{name}.{field}: required now" for field in after - before)
        else:
            yield from (f"{name}.{field}: may be missing now" for field in before - after)
        for field, words in model["fields"].items():
            if field not in now["fields"]:
                yield f"{name}.{field}: gone"
                continue
            gone = set(words) - set(now["fields"][field])
            added = set(now["fields"][field]) - set(words)
            if model["is_request"] and gone:
                yield f"{name}.{field}: no longer takes {sorted(gone)}"
            if not model["is_request"] and words and added and (name, field) != _REASON:
                yield f"{name}.{field}: may be {sorted(added)} now"


_REASON = ("Problem", "reason")


def _words(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from (str(word) for word in schema.get("enum", ()))
        if "const" in schema:
            yield str(schema["const"])
        for key, inner in schema.items():
            if key not in ("enum", "const", "default", "examples", "example"):
                yield from _words(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _words(inner)


def main() -> None:
    """Write the outline of this tree."""
    from proctor_service.app import build_app
    from proctor_service.settings import Settings

    FILE.write_text(json.dumps(outline(build_app(Settings()).openapi()), indent=1) + "\n")


if __name__ == "__main__":
    main()
