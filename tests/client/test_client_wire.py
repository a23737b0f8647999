"""The wire's models: each documented body carries an example, and the example is one."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from proctor_client import wire

DOCUMENTED = [
    model
    for model in (getattr(wire, name) for name in wire.__all__)
    if isinstance(model, type)
    and issubclass(model, BaseModel)
    and "json_schema_extra" in model.model_config
]


@pytest.mark.parametrize("model", DOCUMENTED)
def test_the_example_of_a_model_is_valid(model: type[BaseModel]) -> None:
    example = wire.example_of(model)
    found = model.model_validate(example)
    assert found.model_fields_set == set(example)
    assert model.model_json_schema()["examples"] == [example]


def test_the_bodies_of_requests_have_examples() -> None:
    bodies = {wire.RewardRequest, wire.SandboxRequest, wire.ExecRequest, wire.GradeRequest}
    assert bodies | {wire.RolloutRequest} <= set(DOCUMENTED)
