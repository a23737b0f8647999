"""Composition root of a judge process, started by the service."""

from __future__ import annotations

import sys

from proctor_service.evaluate import Judge
from proctor_service.features.environments.built import Environments
from proctor_service.features.replicas.judge_processes.process import run
from proctor_service.graders import all_graders
from proctor_service.judge.judge import Judge as OwnJudge
from proctor_service.observe.logs import configure_logging
from proctor_service.sandbox.backends import make_backend
from proctor_service.sandbox.interface import Backend
from proctor_service.settings import Settings, Share


def build(settings: Settings, share: Share, environments: Environments) -> tuple[Judge, Backend]:
    """Return the judge and the backend of this process. Raises StartError."""
    worker = str(share.index)
    configure_logging(settings.log_level, settings.log_format, lambda: {"worker": worker})
    judge = OwnJudge(all_graders(settings.languages))
    return judge, make_backend(settings, share, environments)


if __name__ == "__main__":
    run(build, sys.argv[1:])
