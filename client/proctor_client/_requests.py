"""Conversion of the caller's arguments: validation by the wire's models, then JSON.

An invalid argument raises InvalidRequestError before anything is sent. The message omits the
values, because they may be whole programs, or a policy's key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from proctor_client import wire
from proctor_client.errors import InvalidRequestError, from_validation
from proctor_client.wire import long_integers

R = TypeVar("R", bound=wire.Request)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def checked(model: type[R], fields: Mapping[str, object]) -> R:
    """Return `fields` as a `model`. Raises InvalidRequestError with the name of the wrong field."""
    try:
        return model.model_validate({name: plain(value) for name, value in fields.items()})
    except ValidationError as error:
        # Without the cause, which would print the values.
        raise from_validation(error, model) from None


def plain(value: object) -> object:
    """Convert a mapping to a dict, as pydantic requires, and any other iterable to a list."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | BaseModel):
        return list(value)
    return value


def strings(name: str, value: Iterable[str]) -> list[str]:
    """Return the strings as a list.

    Raises InvalidRequestError for a single string, whose letters would pass for a list, and for
    other types.
    """
    found = [] if isinstance(value, str) else list(value)
    if isinstance(value, str) or not all(isinstance(each, str) for each in found):
        raise InvalidRequestError(f"{name}: a list of strings is wanted")
    return found


def encode(request: wire.Request) -> bytes:
    """Encode the request as JSON in UTF-8.

    Raises InvalidRequestError for a number outside JSON and for a string outside UTF-8.
    """
    sent = wire.dump(request)
    try:
        # Not pydantic's JSON encoder, which silently turns an infinite expected value into null.
        return long_integers.dumps(sent, _ENCODER).encode()
    except UnicodeEncodeError:
        where = _surrogate(sent) or "request"
        raise InvalidRequestError(f"{where}: a lone surrogate cannot be sent as UTF-8") from None
    except ValueError:
        raise InvalidRequestError("request: a number is infinite or not a number") from None


def _surrogate(value: object, where: str = "") -> str | None:
    """Return the location of the first string with a lone surrogate: `submissions.3.completion`."""
    if isinstance(value, str):
        return None if _is_unicode(value) else where
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for name, each in pairs:
        if not _is_unicode(str(name)):
            return where
        found = _surrogate(each, f"{where}.{name}" if where else str(name))
        if found is not None:
            return found
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
