"""Environments as the service uses them: definitions with their interpreters and packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from proctor_service.settings.environments import Environment


@dataclass(frozen=True, slots=True)
class BuiltEnvironment:
    """An environment that sandboxes can have.

    `python`: its interpreter, perhaps of a virtual environment. `version`: of Python. `packages`:
    version of each installed distribution, where the environment has requirements. `digest`: hash
    of everything in it that a verdict may depend on.
    """

    name: str
    definition: Environment
    python: Path
    version: str
    packages: Mapping[str, str]
    digest: str


Environments = Mapping[str, BuiltEnvironment]
"""Environments of a service by name, without the default one."""

NO_ENVIRONMENTS: Environments = MappingProxyType({})
