"""Verifier `json_schema`: the JSON of the completion is valid by a JSON schema.

The JSON is the completion as a whole, or else its last fenced block (```), of those with the tag `json`
if there are any. Duplicate keys, NaN,
Infinity and numbers beyond the range of a double are no JSON. Needs the package jsonschema.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import jsonschema
import jsonschema.exceptions
import jsonschema.validators
import jsonschema_specifications
import referencing.exceptions

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*(\w*)[ \t]*\r?\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Matches "```json\\n{}\\n```", also without its end."""


class InvalidTask(Exception):
    """The parameters of the task are wrong, whatever the completion."""


def verify(completion: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the score 1.0 for valid JSON."""
    validator = _validator(params["schema"])
    try:
        value = _json_of(completion)
    except ValueError as error:
        return {"score": 0.0, "message": f"no JSON: {error}"}
    except RecursionError:
        return {"score": 0.0, "message": "the JSON is nested too deeply"}
    try:
        problem = jsonschema.exceptions.best_match(validator.iter_errors(value))
    except (referencing.exceptions.Unresolvable, re.error) as error:
        raise InvalidTask(f"params.schema: {error}") from None
    except RecursionError:
        return {"score": 0.0, "message": "the JSON is nested too deeply"}
    if problem is None:
        return {"score": 1.0}
    return {"score": 0.0, "message": f"{problem.json_path[:200]}: not valid by {problem.validator}"}


def _validator(schema: Any) -> Any:
    """Return the validator of a schema, without access to the network. Raises InvalidTask."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=jsonschema_specifications.REGISTRY)
        validator.is_valid(None)  # a schema that refers to itself alone never ends
    except jsonschema.exceptions.SchemaError as error:
        raise InvalidTask(f"params.schema: {error.json_path}: {error.message}") from None
    except (referencing.exceptions.Unresolvable, RecursionError, re.error) as error:
        raise InvalidTask(f"params.schema: {error}") from None
    return validator


def _json_of(completion: str) -> Any:
    """Return the JSON of a completion. Raises ValueError and RecursionError."""
    try:
        return _parsed(completion)
    except ValueError:
        blocks = [(match[2].lower(), match[3]) for match in _FENCE.finditer(completion)]
        texts = [text for tag, text in blocks if tag == "json"] or [text for _, text in blocks]
        if not texts:
            raise
        return _parsed(texts[-1])


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond the range of a double")
    return number
