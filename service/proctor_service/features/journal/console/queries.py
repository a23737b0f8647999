"""Parameters of the pages."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from proctor_client import wire
from proctor_service.http.body import refused


def query_of(given: Mapping[str, str]) -> wire.EvaluationQuery:
    """Return the query of a list, in which an empty field is none. Raises InvalidRequest."""
    try:
        return wire.EvaluationQuery.model_validate({k: v for k, v in given.items() if v.strip()})
    except ValidationError as error:
        raise refused(error, wire.EvaluationQuery) from None
