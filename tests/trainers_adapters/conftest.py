"""What the tests of the adapters share: a real service, and completions that are right and wrong.

Each file runs in an environment of its own, with the framework of its name: `make test-adapters`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service_process import ServiceProcess

OTHERS = ("verl", "ray", "torch", "tensordict", "transformers", "omegaconf", "pydantic", "aiohttp")


def pytest_configure(config: pytest.Config) -> None:
    """What a framework's own packages warn of is theirs to mend, at their import as well."""
    # Reward functions keep their connections until the end of the process.
    kinds = ("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
    for line in (*kinds, *(f"ignore:::{name}" for name in OTHERS)):
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with ServiceProcess() as running:
        yield running.url
