"""Limits on the number of open files of this process."""

from __future__ import annotations

import contextlib
import logging
import resource

from proctor_service.settings import Settings

log = logging.getLogger(__name__)

UNLIMITED = 1 << 30


def allowed_open_files() -> int:
    """Return the hard limit on open files, or `UNLIMITED`."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if most == resource.RLIM_INFINITY else most


def raise_open_files() -> None:
    """Raise the soft limit on open files to the hard limit.

    The usual default is enough for 30 sandboxes only. Each sandbox sets its own limits
    (`forkserver`).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def fitted(settings: Settings) -> Settings:
    """Raise the soft limit, and return the settings, with fewer sandboxes if the hard limit is low.

    Raises StartError.
    """
    raise_open_files()
    fewer = settings.fitted(allowed_open_files())
    if fewer is not settings:
        most = {"sandboxes": fewer.max_sandboxes, "slots": fewer.slots}
        log.warning("few open files are allowed: fewer sandboxes", extra=most)
    return fewer
