"""The verifiers `exact`, `regex` and `json_schema`: which completions are right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor_service.features.verifiers.shipped import exact, json_schema, regex

# completion, answer, further parameters, score
EXACT: tuple[tuple[str, Any, dict[str, Any], float], ...] = (
    ("yes", "yes", {}, 1.0),
    (" yes\n", "yes", {}, 1.0),
    ("yes", " yes ", {}, 1.0),
    ("Yes", "yes", {}, 0.0),
    ("Yes", "yes", {"ignore_case": True}, 1.0),
    ("STRASSE", "straße", {"ignore_case": True}, 1.0),
    ("e\u0301", "\u00e9", {}, 1.0),
    ("a\r\nb", "a\nb", {}, 1.0),
    ("a  b", "a b", {}, 0.0),
    ("yes or no", "yes", {}, 0.0),
    ("yes no", "yes", {}, 0.0),
    ("", "yes", {}, 0.0),
    ("no", ["yes", "no"], {}, 1.0),
    ("yes\nno", ["yes", "no"], {}, 0.0),
    ("I think.\nAnswer: yes", "yes", {"after": "Answer:"}, 1.0),
    ("Answer: yes\nAnswer: no", "yes", {"after": "Answer:"}, 0.0),
    ("Answer: no\nAnswer: yes", "yes", {"after": "Answer:"}, 1.0),
    ("yes", "yes", {"after": "Answer:"}, 0.0),
    ("Answer: 1 or 2 or 3", "2", {"after": "Answer:"}, 0.0),
    ("yes\0", "yes", {}, 0.0),
    ("\u200byes", "yes", {}, 0.0),
)
REGEX: tuple[tuple[str, str, dict[str, Any], float], ...] = (
    ("2024-01-31", r"\d{4}-\d\d-\d\d", {}, 1.0),
    (" 2024-01-31\n", r"\d{4}-\d\d-\d\d", {}, 1.0),
    ("on 2024-01-31", r"\d{4}-\d\d-\d\d", {}, 0.0),
    ("2024-01-31 or 2024-02-01", r"\d{4}-\d\d-\d\d", {}, 0.0),
    ("yes\nno", "yes", {}, 0.0),
    ("yes\nno", "yes.*", {}, 0.0),
    ("yes\nno", "(?s)yes.*", {}, 1.0),
    ("b", "a|b", {}, 1.0),
    ("ab", "a|b", {}, 0.0),
    ("YES", "yes", {"ignore_case": True}, 1.0),
    ("so: #### 42", r"4\d", {"after": "####"}, 1.0),
    ("so: 42", r"4\d", {"after": "####"}, 0.0),
    ("#### 42 #### 7", r"4\d", {"after": "####"}, 0.0),
    ("", "yes", {}, 0.0),
)
POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "name": {"enum": ["secret word", None]}},
    "required": ["x"],
    "additionalProperties": False,
}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
JSON: tuple[tuple[str, Any, float], ...] = (
    ('{"x": 1}', POINT, 1.0),
    ('```json\n{"x": 1}\n```', POINT, 1.0),
    ('Here:\n```\n{"x": 1}\n```\nDone.', POINT, 1.0),
    ('```json\n{"x": 1}', POINT, 1.0),
    ('```json\n{"x": "no"}\n```\n```json\n{"x": 1}\n```', POINT, 1.0),
    ('```json\n{"x": 1}\n```\n```json\n{"x": "no"}\n```', POINT, 0.0),
    ('```json\n{"x": 1}\n```\n```python\nf()\n```', POINT, 1.0),
    ('The answer is {"x": 1}', POINT, 0.0),
    ('{"x": 1, "x": 2}', POINT, 0.0),
    ('{"x": "no", "x": 1}', POINT, 0.0),
    ('{"x": NaN}', {}, 0.0),
    ("[Infinity]", {}, 0.0),
    ("1e999", {"type": "number"}, 0.0),
    ("9" * 5000, {"type": "integer"}, 0.0),
    ("1.0", {"type": "integer"}, 1.0),
    ("true", {"type": "integer"}, 0.0),
    ("[" * 100_000, {}, 0.0),
    ("[" * 90_000 + "]" * 90_000, {}, 0.0),
    ('{"x": 1} {"x": 1}', POINT, 0.0),
    ('{"x": 1,}', POINT, 0.0),
    ("{'x': 1}", POINT, 0.0),
    ('{"x": 1} // note', POINT, 0.0),
    ('{"x": 1, "name": "other"}', POINT, 0.0),
    ('{"$ref": "#", "x": 1}', POINT, 0.0),
    ("{}", POINT, 0.0),
    ("", POINT, 0.0),
    ("null", {}, 1.0),
    ("1", False, 0.0),
    ('"a"', {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1.0),
    ("{}", {"$ref": "https://json-schema.org/draft/2020-12/schema"}, 1.0),
    ('["a", 1]', {"$schema": DRAFT_7, "items": [{}, {"type": "null"}]}, 0.0),
)
WRONG_SCHEMAS: tuple[Any, ...] = (
    {"type": "strin"},
    {"required": "x"},
    {"$ref": "#"},
    {"$ref": "https://example.com/schema.json"},
    {"$ref": "file:///etc/hostname"},
    {"properties": {"x": {"$ref": "#/$defs/missing"}}},
    {"properties": {"x": {"pattern": "("}}},
)


def test_exact_texts() -> None:
    found = [
        exact.verify(completion, {"answer": answer, "ignore_case": False, **more})["score"]
        for completion, answer, more, _ in EXACT
    ]
    assert found == [score for *_, score in EXACT]


def test_whole_matches() -> None:
    found = [
        regex.verify(completion, {"pattern": pattern, "ignore_case": False, **more})["score"]
        for completion, pattern, more, _ in REGEX
    ]
    assert found == [score for *_, score in REGEX]


def test_json_by_a_schema() -> None:
    found = [json_schema.verify(text, {"schema": schema})["score"] for text, schema, _ in JSON]
    assert found == [score for *_, score in JSON]


def test_a_message_does_not_say_what_the_schema_expects() -> None:
    said = json_schema.verify('{"x": 1, "name": "other"}', {"schema": POINT})
    assert said["message"] == "$.name: not valid by enum"


@pytest.mark.parametrize("schema", WRONG_SCHEMAS, ids=json.dumps)
def test_a_wrong_schema_is_the_fault_of_the_task(schema: Any) -> None:
    with pytest.raises(json_schema.InvalidTask):
        json_schema.verify('{"x": "a"}', {"schema": schema})


@pytest.mark.parametrize("pattern", ["(", "*", "a{99999999999}", "(?<=a+)b"])
def test_a_wrong_pattern_is_the_fault_of_the_task(pattern: str) -> None:
    with pytest.raises(regex.InvalidTask):
        regex.verify("a", {"pattern": pattern, "ignore_case": False})


@pytest.mark.parametrize("params", [{"answer": []}, {"answer": [1]}, {"answer": "a", "after": ""}])
def test_wrong_answers_are_the_fault_of_the_task(params: dict[str, Any]) -> None:
    with pytest.raises(exact.InvalidTask):
        exact.verify("a", {"ignore_case": False, **params})
