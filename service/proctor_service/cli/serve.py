"""`proctor serve`."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Annotated

import typer

from proctor_service.cli.failures import Trouble, friendly, settings_from
from proctor_service.cli.imports import paused_collector

PR_SET_PDEATHSIG = 1


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [PROCTOR_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. [PROCTOR_PORT]")] = None,
    slots: Annotated[
        int | None, typer.Option(help="Evaluations at once; 0: by the cores. [PROCTOR_SLOTS]")
    ] = None,
    allow_degraded: Annotated[
        bool | None,
        typer.Option(
            "--allow-degraded",
            help="Start although isolation is incomplete. [PROCTOR_ALLOW_DEGRADED]",
        ),
    ] = None,
    end_with_parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the service until Ctrl-C or SIGTERM; running work may finish within the grace period."""
    with friendly(), paused_collector():  # the service turns it on when it is set up
        if end_with_parent is not None:
            end_with(end_with_parent)
        settings = settings_from(
            host=host,
            port=port,
            slots=slots,
            allow_degraded=allow_degraded,
        )
        from proctor_service.app import serve as run

        run(settings)


def end_with(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when the parent dies for any reason."""
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) or os.getppid() != parent:
        raise Trouble("the command that wanted this service is gone")
