"""The Aviato backend: sandboxes at CoreWeave, through the SDK `cwsandbox`.

plan ──▶ backend ──▶ pool ──▶ gateway ──▶ the SDK          in the service
            │
            ├──▶ sandbox, stateful ──▶ execution
            │                             │ frames over the stdin and stdout of a command
            ▼                             ▼
         bundle ── a file ──▶ inside/: the supervisor ── fork ──▶ the submission
"""

from __future__ import annotations

from proctor_service.features.aviato.backend import AviatoBackend
from proctor_service.features.aviato.doctor import examine
from proctor_service.features.aviato.plan import make_plan

__all__ = ["AviatoBackend", "examine", "make_plan"]
