"""Packages of a script: checks before any slow import, and their warnings."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


class MissingExtra(RuntimeError):
    """Raised for a missing package; the message tells how to install the package."""


def require(extra: str, *modules: str) -> None:
    """Raise MissingExtra, which names the extra, unless all these modules can be imported."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{', '.join(missing)} cannot be imported: pip install 'proctor-trainers[{extra}]'"
        )


def ignore_warnings_of_packages() -> None:
    """Hide deprecation warnings of packages, unless the user set `-W`. For scripts only."""
    if not sys.warnoptions:
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=category)


def release_of(distribution: str) -> tuple[int, ...] | None:
    """Return the installed release, such as (1, 16, 0); None if the distribution is missing."""
    try:
        text = version(distribution)
    except PackageNotFoundError:
        return None
    numbers: list[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:  # 1.15.0rc1, 1.15.0+local
            break
    return tuple(numbers)
