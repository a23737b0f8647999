"""GET /environments: the environments for submissions, sandboxes and rollouts."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import cache

from fastapi import APIRouter, Request

from proctor_client.wire import DefaultLimits, Environment, EnvironmentList
from proctor_service.errors import Forbidden, InvalidRequest, StartError
from proctor_service.features.environments.fetching import ImageFetches
from proctor_service.features.environments.loading import default_environment
from proctor_service.features.environments.reloading import Reloading
from proctor_service.http.openapi import answers
from proctor_service.rewards.machine import Machine
from proctor_service.sandbox.environments import BuiltEnvironment
from proctor_service.settings.environments import DEFAULT


def environment_routes(
    machine: Machine, fetches: ImageFetches | None, reloading: Reloading | None
) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @cache
    def known_default() -> BuiltEnvironment | None:
        """Return the default environment, if known; blocks."""
        try:
            return default_environment(machine.settings)
        except StartError:  # it is not asked for a second time
            return None

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
        """Return the environments of this service with their packages, and its images by name."""
        default = await asyncio.to_thread(known_default)
        others = [body(name, built) for name, built in machine.environments.items()]
        images = [] if fetches is None else await asyncio.to_thread(fetches.list_images)
        return EnvironmentList(environments=[body(DEFAULT, default), *others], images=images)

    @routes.post("/environments/reload", responses=answers(EnvironmentList, 401, 403, 422))
    async def reload(request: Request) -> EnvironmentList:
        """Read the environments file anew, with an operator's token; return the environments."""
        settings = machine.settings
        tenant: str | None = getattr(request.state, "tenant", None)
        others = len(settings.tokens_by_tenant()) > 1
        if others and tenant not in settings.metrics_tenants:
            raise Forbidden("only tenants of PROCTOR_METRICS_TENANTS may read environments anew")
        if reloading is None:
            raise InvalidRequest("this service has no file of environments: PROCTOR_ENVIRONMENTS")
        await reloading.reload()
        return await environments()

    return routes
