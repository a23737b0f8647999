"""What compiling costs is part of what a submission used."""

from __future__ import annotations

import pytest
from harness import running_service

# Nothing at all to run, and a while to compile: each name stands for two of the one before.
SLOW_TO_COMPILE = (
    "#define A0 x += x * 3 + 1;\n"
    + "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 13))
    + "int main(void) { volatile unsigned x = 1; A12 return 0; }\n"
)


@pytest.mark.parametrize(
    "grader", [{"kind": "exec"}, {"kind": "stdio", "cases": [{"stdin": "", "stdout": ""}]}]
)
def test_usage_has_the_time_of_the_compiler(grader: dict[str, object]) -> None:
    with running_service(judge=None) as service, service.client() as client:
        if "c" not in service.parts.core.machine.backend.traits.languages:
            pytest.skip("no C compiler is installed")
        submission = {"completion": SLOW_TO_COMPILE, "language": "c", "grader": grader}
        limits = {"cpu_seconds": 60, "wall_seconds": 60}
        body = {"submissions": [submission], "limits": limits, "extract": "none", "cache": False}
        [result] = client.post("/reward", json=body).json()["results"]
    assert result["verdict"] == "passed", result
    # The program alone takes less than a hundredth of what its compiler does.
    assert result["usage"]["cpu_seconds"] > 0.05
    assert 0.05 < result["usage"]["compile_seconds"] < result["usage"]["cpu_seconds"]
    assert result["usage"]["peak_memory_mb"] > 10
