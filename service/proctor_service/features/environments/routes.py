"""GET /environments: the environments for submissions, sandboxes and rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from functools import cache

from fastapi import APIRouter

from proctor_client.wire import DefaultLimits, Environment, EnvironmentList
from proctor_service.rewards.examples import answers
from proctor_service.rewards.items import Machine
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.settings.environments import DEFAULT


def environment_routes(
    machine: Machine, ask_default: Callable[[], BuiltEnvironment | None]
) -> APIRouter:
    """Return the route. `ask_default`: returns the default environment, if it is known; blocks."""
    routes = APIRouter()
    known_default = cache(ask_default)

    def body(name: str, built: BuiltEnvironment | None) -> Environment:
        return Environment(
            name=name,
            python=None if built is None else built.version,
            packages=None if built is None else dict(built.packages),
            languages=list(machine.languages(name)),
            image=built.image.digest if built and built.image else None,
            limits=DefaultLimits(**asdict(machine.limits(None, "limits", environment=name))),
        )

    @routes.get("/environments", responses=answers(EnvironmentList, 401))
    async def environments() -> EnvironmentList:
        """Return the environments of this service, with their packages."""
        default = await asyncio.to_thread(known_default)
        others = [body(name, built) for name, built in machine.environments.items()]
        return EnvironmentList(environments=[body(DEFAULT, default), *others])

    return routes
