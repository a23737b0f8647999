"""Answer of GET /environments."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue

from proctor_client.wire.base import Request, Response

_DEFAULT: dict[str, JsonValue] = {
    "name": "default",
    "python": "3.11.7",
    "packages": {"numpy": "2.2.1"},
    "languages": ["python", "bash", "cpp"],
    "limits": {
        "cpu_seconds": 10.0,
        "wall_seconds": 60.0,
        "memory_mb": 512,
        "output_kb": 64,
        "processes": 64,
        "disk_mb": 64,
        "network": False,
    },
}


class ImageByName(Request):
    """Container image of a registry, in place of the name of an environment."""

    image: str = Field(
        max_length=1000,
        description="Reference such as `docker.io/library/debian:12`, where the service allows it.",
    )


EnvironmentChoice: TypeAlias = str | ImageByName
"""Name of an environment of the service, or an image by name."""


def environment_name(choice: EnvironmentChoice | None) -> str | None:
    """Return the name of an environment as in results, without a default registry."""
    return choice.image if isinstance(choice, ImageByName) else choice


class DefaultLimits(Response):
    """Limits of submissions without their own."""

    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    output_kb: int
    processes: int
    disk_mb: int
    network: bool = False


class Environment(Response):
    """Environment for submissions, sandboxes and rollouts, by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DEFAULT]})

    name: str
    python: str | None = Field(
        None, description="Version; null for an image, and where the service does not know."
    )
    packages: dict[str, str] | None = Field(
        None, description="Distribution to version; null where the service does not know."
    )
    languages: list[str] = Field([])
    limits: DefaultLimits | None = None
    image: str | None = Field(None, description="Digest of its container image, if it has one.")


class FetchedImage(Response):
    """Image by name in the service's store, or in fetching.

    `bytes`: so far; `total_bytes`: bytes to fetch, once known.
    """

    image: str
    state: Literal["fetching", "unpacking", "ready"]
    bytes: int = 0
    total_bytes: int | None = None
    waiting: int = Field(0, description="Submissions and sandboxes that wait for it.")


class EnvironmentList(Response):
    """Answer of GET /environments; the default environment is the first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"environments": [_DEFAULT]}]})

    environments: list[Environment]
    images: list[FetchedImage] = Field([], description="Images by name, those in use last first.")
