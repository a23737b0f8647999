"""A service with environments at the stand-in of Aviato."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import Service, running_service

from aviato_gateway.stand_in import StandIn


@contextmanager
def service_with_environments(
    gateway: StandIn, folder: Path, defined: str, **settings: Any
) -> Iterator[Service]:
    """Runs a service, without judge processes, whose file of environments has this text."""
    file = folder / "environments.toml"
    file.write_text(defined)
    all_settings = gateway.settings(pool_size=2, workers=0, environments=file, **settings)
    with running_service(all_settings, judge=None) as service:
        yield service
