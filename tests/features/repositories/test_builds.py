"""When a task's build runs: for files that are not the image's."""

from __future__ import annotations

from typing import Any

import pytest

from proctor_client.wire import RepositoryGrader
from proctor_service.features.repositories.running import is_built

BUG = "--- a/src/ring.c\n+++ b/src/ring.c\n@@ -1 +1 @@\n-int size = 3;\n+int size = 4;\n"
BUILD: dict[str, Any] = {"build": "make", "build_if": ["*.c", "setup.py"]}


@pytest.mark.parametrize(
    ("changed", "fields", "builds"),
    [
        ("src/ring.c", BUILD, True),
        ("pkg/setup.py", BUILD, True),
        ("ring.py", BUILD, False),
        ("ring.py", {"build": "make"}, True),
        ("src/ring.c", {}, False),
        ("ring.py", BUILD | {"prepare": {"patch": BUG}}, True),
        ("ring.py", BUILD | {"prepare": {"patch": BUG, "reverse": True}}, True),
        ("ring.py", BUILD | {"prepare": {"patch": BUG.replace("ring.c", "ring.py")}}, False),
        ("ring.py", BUILD | {"build_if": ["src/*.c"], "prepare": {"patch": BUG}}, True),
        ("ring.py", BUILD | {"prepare": {"commands": ["true"]}}, False),
    ],
)
def test_a_file_that_is_not_of_the_image_is_built(
    changed: str, fields: dict[str, Any], builds: bool
) -> None:
    grader = RepositoryGrader.model_validate({"kind": "repository", "test": "true", **fields})
    assert is_built(grader, [changed.encode()]) is builds
