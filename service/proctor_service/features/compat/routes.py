"""The compatible routes of all services, and the models of their bodies."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.routing import Route

from proctor_service.errors import StartError
from proctor_service.features.compat.code_judge import Program, ProgramBatch, code_judge_routes
from proctor_service.features.compat.handler import CompatHandler
from proctor_service.features.compat.open_instruct import TestProgram, open_instruct_routes
from proctor_service.features.compat.open_r1 import ExecuteBatch, open_r1_routes
from proctor_service.features.compat.openrlhf import GetReward, openrlhf_routes
from proctor_service.features.compat.sandbox_fusion import (
    RunCode,
    RunJupyter,
    Submit,
    sandbox_fusion_routes,
    submit_routes,
)
from proctor_service.features.compat.skypilot import BatchReward, RewardItem, skypilot_routes
from proctor_service.features.compat.slime import RemoteRm, slime_routes

COMPAT_BODIES: tuple[type[BaseModel], ...] = (
    RunCode,
    RunJupyter,
    Submit,
    ExecuteBatch,
    TestProgram,
    RewardItem,
    BatchReward,
    RemoteRm,
    GetReward,
    Program,
    ProgramBatch,
)


def compat_routes(handler: CompatHandler) -> APIRouter:
    """Return the routes of all services.

    Raises StartError if PROCTOR_COMPAT_ENVIRONMENTS names a path that belongs to none.
    """
    routes = APIRouter()
    paths: list[str] = []
    for service in (
        sandbox_fusion_routes,
        submit_routes,
        open_r1_routes,
        open_instruct_routes,
        skypilot_routes,
        slime_routes,
        openrlhf_routes,
        code_judge_routes,
    ):
        found = service(handler)
        paths += [route.path for route in found.routes if isinstance(route, Route)]
        routes.include_router(found)
    for prefix in handler.machine.settings.compat_environments:
        if not any(path.startswith(prefix) for path in paths):
            raise StartError(
                f"PROCTOR_COMPAT_ENVIRONMENTS {prefix}: no path begins so, as {paths[0]} does"
            )
    return routes
