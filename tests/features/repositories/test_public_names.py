"""Names of tests as the public parsers of some projects write them."""

from __future__ import annotations

import pytest

from proctor_client.wire.repositories import NameForm
from proctor_service.features.repositories.names import folded


@pytest.mark.parametrize(
    ("form", "name", "expected"),
    [
        ("short_paths", "t.py::test_get[/a/b/c]", "t.py::test_get[/c]"),
        ("short_paths", "t.py::test_get[/c]", "t.py::test_get[/c]"),
        ("short_paths", "t.py::test_get[//host/a]", "t.py::test_get[//host/a]"),
        ("short_paths", "t.py::test_get[/a/*]", "t.py::test_get[/a/*]"),
        ("short_paths", "t.py::test_get[a/b]", "t.py::test_get[a/b]"),
        ("button_numbers", "t.py::test_a[MouseButton.LEFT-x]", "t.py::test_a[1-x]"),
        ("button_numbers", "t.py::test_a[1-x]", "t.py::test_a[1-x]"),
    ],
)
def test_names_are_folded_as_the_data_sets_write_them(
    form: NameForm, name: str, expected: str
) -> None:
    assert folded(name, [form]) == expected
