"""What a script needs beyond this package: found out before anything heavy is imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


class MissingExtra(RuntimeError):
    """A package is not installed; the message says how to get it."""


def require(extra: str, *modules: str) -> None:
    """Raises MissingExtra, which names the extra, unless all these modules can be imported."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{', '.join(missing)} cannot be imported: pip install 'proctor-trainers[{extra}]'"
        )


def release_of(distribution: str) -> tuple[int, ...] | None:
    """The release, such as (1, 16, 0); None when it is not installed."""
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
