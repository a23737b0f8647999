"""The feature `environments`: interpreters, packages and images by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Command, Feature, FeatureGraders

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core, Sources
    from proctor_service.settings.languages import Language


class EnvironmentsFeature(Feature):
    """Environments of one service, which stay built until its end."""

    name = "environments"
    commands: ClassVar[Mapping[str, Command]] = MappingProxyType(
        {
            "env": Command(
                "features.environments.cli.environments",
                "environments",
                "Build and check environments: an interpreter with packages, by name.",
                is_group=True,
            ),
            "eval harbor": Command(
                "features.environments.cli.harbor_tasks",
                "HarborTasks",
                "Reference solutions of Harbor tasks, or nothing, and the reward.",
            ),
        }
    )

    def __init__(self) -> None:
        self._in_use = ExitStack()

    @classmethod
    def graders(cls, languages: Mapping[str, Language]) -> FeatureGraders:
        """Return the grader `harbor`."""
        from proctor_service.features.environments import harbor

        return FeatureGraders(lambda _: (harbor.RULES,))

    def backend(self, sources: Sources) -> Sources:
        """Return the sources with the environments of the settings, and their languages.

        Raises StartError.
        """
        from proctor_service.features.environments.loading import (
            load_environments,
            with_own_languages,
        )

        environments = load_environments(sources.settings, self._in_use)
        settings = with_own_languages(sources.settings, environments)
        return replace(sources, settings=settings, environments=environments)

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the route GET /environments."""
        from proctor_service.features.environments.routes import environment_routes

        return [environment_routes(core.machine)]

    async def close(self) -> None:
        """Allow the environments to be removed."""
        self._in_use.close()
