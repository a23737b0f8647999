"""Options of sandboxes at Aviato, by environment: the options of its API for a new sandbox.

[environments.science.aviato]
cpu = "4"
gpu = {count = 1, type = "A100"}
runtime_class = "gvisor"
secrets = [{store = "wandb", name = "HF_TOKEN"}]
mounts = [{volume = "vol-123", path = "/data"}]
egress = ["data.example.com", "*.data.example.com"]
pull = {registry = "registry.example", store = "wandb", name = "REGISTRY"}
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator

_CPU = r"[0-9]+m|[0-9]+(\.[0-9]+)?"  # as Kubernetes writes it: 2, 1.5 or 500m
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # "HF_TOKEN"; not "1A"
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # "pypi", "my-host"; not "-host"
_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})+")  # "pypi.org", "*.pypi.org"; not "localhost"
_LONGEST_NAME = 253
_OWN_PLACES = (
    *("bin", "box", "dev", "etc", "lib", "lib64", "opt", "proc", "run"),
    *("sbin", "sys", "tmp", "usr", "var"),
)
_OWN_VARIABLES = re.compile(r"PYTHON.*|LD_.*|LC_.*|HOME|IFS|LANG|LOGNAME|PATH|TMPDIR|TZ|USER")
"""Matches `PYTHONPATH` and `LC_ALL`; not `HOMEPAGE` as a whole."""
Text = Annotated[str, Field(min_length=1, max_length=253)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Model):
    """GPUs of a sandbox, by type (`A100`) or memory."""

    count: PositiveInt = 1
    type: str = ""
    memory_gb: PositiveInt | None = None


class Secret(_Model):
    """Secret of a store at Aviato, in a variable of every program; by default under its name."""

    store: Text
    name: Text
    field: str = ""
    variable: str = ""

    @property
    def shown_as(self) -> str:
        """Name of the variable."""
        return self.variable or self.name

    @field_validator("variable")
    @classmethod
    def _checked(cls, value: str) -> str:
        if value:
            _check_variable(value)
        return value


class Mount(_Model):
    """Registered volume, read-only, as submissions share the volume."""

    volume: Text
    path: Text
    sub_path: str = ""

    @field_validator("path")
    @classmethod
    def _checked(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        if len(parts) < 2 or parts[0] != "/" or ".." in parts or parts[1] in _OWN_PLACES:
            own = ", ".join(f"/{name}" for name in _OWN_PLACES)
            raise ValueError(f"{value!r} is no absolute path of a folder outside of {own}")
        return value


class PullSecret(_Model):
    """Credentials for the registry of the image, in a store at Aviato."""

    registry: Text
    store: Text
    name: Text
    field: str = ""


class AviatoOptions(_Model):
    """Options of an environment's sandboxes. `cpu`: by default as in PROCTOR_AVIATO_OPTIONS, or 1.

    `egress`: names in reach of a submission with `network`, by HTTPS, also `*.example.com`; without
    any, all public addresses.
    """

    cpu: str = Field("", pattern=f"^({_CPU})?$")
    gpu: Gpu | None = None
    runtime_class: str = Field("", max_length=253)
    secrets: tuple[Secret, ...] = ()
    mounts: tuple[Mount, ...] = ()
    egress: tuple[str, ...] = ()
    pull: PullSecret | None = None

    @field_validator("secrets")
    @classmethod
    def _variables(cls, value: tuple[Secret, ...]) -> tuple[Secret, ...]:
        names = [secret.shown_as for secret in value]
        for name in names:
            _check_variable(name)
            if names.count(name) > 1:
                raise ValueError(f"two secrets have the variable {name}")
        return value

    @field_validator("mounts")
    @classmethod
    def _paths(cls, value: tuple[Mount, ...]) -> tuple[Mount, ...]:
        paths = [PurePosixPath(mount.path) for mount in value]
        for path in paths:
            if sum(path.is_relative_to(other) for other in paths) > 1:
                raise ValueError(f"{path} lies in another mount")
        return value

    @field_validator("egress")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
                raise ValueError(f"{name!r} is no name of a host, or `*.` and such a name")
        return value


def _check_variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name) or _OWN_VARIABLES.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a variable, or is set by the sandbox")
