"""The local backend: a fresh sandbox costs a fork. Other packages import only these names.

launch ──▶ backend ──▶ slot ──▶ sandbox        in the service
                        │          │
             control    ▼          ▼ channel, stdout, stderr
                    forkserver ─ fork ─▶ the submission
"""

from __future__ import annotations

from proctor_service.sandbox.local.backend import LocalBackend
from proctor_service.sandbox.local.interpreter import shown_paths
from proctor_service.sandbox.local.launch import Plan, make_plan, refuse_without_isolation

__all__ = ["LocalBackend", "Plan", "make_plan", "refuse_without_isolation", "shown_paths"]
