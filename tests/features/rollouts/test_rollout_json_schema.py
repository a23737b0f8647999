"""Arguments of custom tools against their JSON schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proctor_service.features.rollouts.json_schema import (
    MOST_LEVELS,
    TooLarge,
    schema_problem,
    violation,
)

QUERY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 9, "description": "Words."},
        "limit": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
        "order": {"enum": ["up", "down", 1]},
        "where": {"type": "array", "items": {"type": ["string", "null"]}, "maxItems": 2},
        "more": {"anyOf": [{"type": "boolean"}, {"const": 0}]},
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"query": "x", "limit": 3.0, "order": 1, "where": ["a", None], "more": 0}, None),
        ([], "arguments must be of type object"),
        ({}, "arguments needs 'query'"),
        ({"query": 1}, "arguments.query must be of type string"),
        ({"query": ""}, "arguments.query must have at least 1 characters"),
        ({"query": "x" * 10}, "arguments.query must have at most 9 characters"),
        ({"query": "x", "limit": 0}, "arguments.limit must be at least 1"),
        ({"query": "x", "limit": 10}, "arguments.limit must be less than 10"),
        ({"query": "x", "limit": True}, "arguments.limit must be of type integer"),
        ({"query": "x", "limit": 1.5}, "arguments.limit must be of type integer"),
        ({"query": "x", "order": "left"}, "arguments.order must be one of ['up', 'down', 1]"),
        ({"query": "x", "order": True}, "arguments.order must be one of"),
        ({"query": "x", "where": ["a", 2]}, "arguments.where[1] must be of type string or null"),
        ({"query": "x", "where": [None] * 3}, "arguments.where must have at most 2 items"),
        ({"query": "x", "more": False}, None),
        ({"query": "x", "more": "yes"}, "arguments.more fits none of the alternatives"),
        ({"query": "x", "other": 1}, "arguments.other is not allowed"),
    ],
)
def test_the_first_violation_is_named(value: Any, said: str | None) -> None:
    assert schema_problem(QUERY, "parameters") is None
    found = violation(value, QUERY)
    assert found is None if said is None else found is not None and found.startswith(said)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "bc", 1.5, 2.0]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])
SCHEMAS = st.recursive(
    st.booleans()
    | st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=2),
            "enum": st.lists(st.none() | st.booleans() | st.integers(-2, 2), min_size=1),
            "const": st.booleans() | st.sampled_from([0, 1, "a"]),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "minProperties": st.integers(0, 2),
            "required": st.lists(st.sampled_from("ab"), unique=True),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)


@given(SCHEMAS, VALUES)
def test_values_are_judged_as_by_a_full_validator(schema: Any, value: Any) -> None:
    assert schema_problem(schema, "s") is None
    assert (violation(value, schema) is None) == Draft202012Validator(schema).is_valid(value)


@given(st.dictionaries(st.sampled_from(["type", "required", "enum", "items", "anyOf"]), VALUES))
def test_a_schema_is_refused_or_can_be_checked(schema: Any) -> None:
    if schema_problem(schema, "s") is None:
        violation({"a": [1]}, schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"pattern": "(a+)+$"}, "s.pattern: this keyword is not supported"),
        ({"$ref": "http://169.254.169.254/"}, "s.$ref: this keyword"),
        ({"properties": {"a": {"$ref": "#"}}}, "s.properties.a.$ref: this keyword"),
        ({"anyOf": [{"type": "text"}]}, "s.anyOf.0.type: a type is one of"),
        ({"type": []}, "s.type: "),
        ({"items": [{}]}, "s.items: a schema is an object"),
        ({"maxLength": -1}, "s.maxLength: must be a whole number"),
        ({"minimum": True}, "s.minimum: must be a number"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: Any, said: str) -> None:
    problem = schema_problem(schema, "s")
    assert problem is not None
    assert problem.startswith(said)


def test_a_schema_with_too_many_levels_is_refused() -> None:
    schema: Any = json.loads('{"items": ' * (MOST_LEVELS + 1) + "{}" + "}" * (MOST_LEVELS + 1))
    assert "levels" in str(schema_problem(schema, "s"))


def test_a_check_is_bounded() -> None:
    slow = {"items": {"anyOf": [{"type": "null"}] * 1000}}
    with pytest.raises(TooLarge):
        violation([None] * 10_000, slow)
