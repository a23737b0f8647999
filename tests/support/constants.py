"""Constants of the service that a test makes smaller, so that it meets a bound or waits less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from proctor_service.http.task_store import TaskStore
from proctor_service.sandboxes.registry import Bounds

PLACES = {
    "aviato_creations": ("features.aviato.plan._CREATIONS",),
    "aviato_python": ("features.aviato.plan._PYTHON",),
    "aviato_start_seconds": ("features.aviato.plan.START_SECONDS",),
    "bounds": ("app.Bounds",),
    "compiler_flags": ("rewards.machine.COMPILER_FLAGS",),
    "environment_idle_seconds": (
        "features.aviato.plan.ENVIRONMENT_IDLE_SECONDS",
        "sandbox.local.launch.ENVIRONMENT_IDLE_SECONDS",
    ),
    "max_cpu_seconds": ("settings.Settings.max_cpu_seconds",),
    "max_rollouts": ("features.rollouts.routes.MAX_ROLLOUTS",),
    "max_wall_seconds": ("settings.Settings.max_wall_seconds",),
    "orphan_seconds": ("rewards.routes.ORPHAN_SECONDS",),
    "pending_bytes": ("features.compat.handler.TaskStore",),
    "policy_attempts": ("features.rollouts.policy.ATTEMPTS",),
    "prepared_folder": ("settings.prepared_folder.FOLDER",),
    "saved_task_bytes": ("rewards.saved_tasks.MOST_UNPACKED_BYTES",),
    "worker_memory_mb": ("features.replicas.judge_processes.worker.MEMORY_MB",),
}


@contextmanager
def constants(**values: Any) -> Iterator[None]:
    """Change constants until the block ends. `bounds`: of stateful sandboxes, a mapping."""
    if "bounds" in values:
        values["bounds"] = partial(Bounds, **values["bounds"])
    if "pending_bytes" in values:
        values["pending_bytes"] = partial(TaskStore, max_bytes=values["pending_bytes"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            for place in PLACES[name]:
                patch.setattr(f"proctor_service.{place}", value)
        yield
