"""The number of files that this process may have open."""

from __future__ import annotations

import contextlib
import resource

UNLIMITED = 1 << 30


def allowed_open_files() -> int:
    """The hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if most == resource.RLIM_INFINITY else most


def raise_open_files() -> None:
    """Raises the soft limit to the hard one: what is usual without asking is enough for 30 sandboxes.

    A sandbox sets limits of its own (`forkserver`).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
