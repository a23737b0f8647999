"""The version that commands print and record."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def service_version() -> str:
    """Return the version of the installed service."""
    try:
        return version("proctor-service")
    except PackageNotFoundError:  # run from the sources
        return "0"
