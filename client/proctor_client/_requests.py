"""What the caller's arguments become on the wire: checked by the wire's models, then JSON.

Whatever they refuse is an InvalidRequestError here, before anything is sent. Values stay out of its
message: they may be whole programs, or a policy's key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from proctor_client import wire
from proctor_client.errors import InvalidRequestError, from_validation

R = TypeVar("R", bound=wire.Request)


def checked(model: type[R], fields: Mapping[str, object]) -> R:
    """`fields` as a `model`. Raises InvalidRequestError that names the field."""
    try:
        return model.model_validate({name: plain(value) for name, value in fields.items()})
    except ValidationError as error:
        # The cause would print the values themselves.
        raise from_validation(error) from None


def plain(value: object) -> object:
    """Mappings as dict, which pydantic wants; and what is iterable but no list, as a list."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | BaseModel):
        return list(value)
    return value


def strings(name: str, value: Iterable[str]) -> list[str]:
    """The strings. Raises InvalidRequestError for a lone one, which would pass for its letters."""
    found = [] if isinstance(value, str) else list(value)
    if isinstance(value, str) or not all(isinstance(each, str) for each in found):
        raise InvalidRequestError(f"{name}: a list of strings is wanted")
    return found


def encode(request: wire.Request) -> bytes:
    """The request as JSON in UTF-8. Raises InvalidRequestError for what neither of them has."""
    sent = wire.dump(request)
    try:
        # Not pydantic's own JSON: it turns an infinite expected value into null without a word.
        return json.dumps(sent, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        where = _surrogate(sent) or "request"
        raise InvalidRequestError(f"{where}: a lone surrogate cannot be sent as UTF-8") from None
    except ValueError:
        raise InvalidRequestError("request: a number is infinite or not a number") from None


def _surrogate(value: object, where: str = "") -> str | None:
    """Where the first string is that is no Unicode: `submissions.3.completion`."""
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
