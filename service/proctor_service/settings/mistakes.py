"""The first mistake in a TOML file of settings, in the words of its owner."""

from __future__ import annotations

from pydantic import ValidationError


def first_mistake(error: ValidationError) -> str:
    """Return the path of the first wrong field and what is wrong with it: `math.python: not a path`."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{field}: {message}" if field else message
