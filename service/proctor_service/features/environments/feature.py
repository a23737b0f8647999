"""The feature `environments`: interpreters, packages and images by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from proctor_service.feature import Command, Feature, FeatureGraders

if TYPE_CHECKING:
    from fastapi import APIRouter

    from proctor_service.feature import Core, Sources
    from proctor_service.features.environments.fetching import ImageFetches
    from proctor_service.features.environments.reloading import Reloading
    from proctor_service.settings.languages import Language


class EnvironmentsFeature(Feature):
    """Environments of a service; they stay built until its end."""

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
        self.fetches: ImageFetches | None = None
        self.reloading: Reloading | None = None

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
            known_environments,
            with_own_languages,
        )

        environments = known_environments(sources.settings, self._in_use)
        settings = with_own_languages(sources.settings, environments)
        before = sources.settings
        sources = replace(sources, settings=settings, environments=environments)
        if settings.environments is None and not settings.images:
            return sources
        from proctor_service.features.environments.by_name import KnownEnvironments

        if not isinstance(environments, KnownEnvironments):  # at Aviato
            return sources
        if settings.environments is not None:
            from proctor_service.features.environments.reloading import Reloading

            self.reloading = Reloading(before, environments, self._in_use)
        if not settings.images:
            return sources
        from proctor_service.features.environments.bound import ImageBound
        from proctor_service.features.environments.fetching import ImageFetches

        bound = ImageBound(environments.folder, int(settings.images_gb * 1e9))
        fetches = ImageFetches(environments, bound, sources.metrics.image_fetched)
        sources.metrics.watch_images(lambda: fetches.size_bytes, fetches.waiting.total)
        self.fetches = fetches
        return replace(sources, hold=fetches.hold)

    def routes(self, core: Core) -> Sequence[APIRouter]:
        """Return the routes of /environments."""
        from proctor_service.features.environments.routes import environment_routes
        from proctor_service.sandbox.environments import TakesEnvironments
        from proctor_service.sandbox.interface import EndsIdle

        machine = core.machine
        backend = machine.backend
        if self.reloading is not None and isinstance(backend, TakesEnvironments):

            def changed(names: Collection[str]) -> None:
                machine.forget()
                backend.environments_changed(names, machine.environments)

            self.reloading.changed = changed
        if self.fetches is not None and isinstance(backend, EndsIdle):
            self.fetches.end_idle = backend.end_idle
        return [environment_routes(machine, self.fetches, self.reloading)]

    async def open(self) -> None:
        """Remove remains of an earlier run of the service, and read the environments file anew at each
        SIGHUP.
        """
        if self.fetches is not None:
            await self.fetches.open()
        if (reloading := self.reloading) is None:
            return
        import asyncio
        import signal

        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(reloading.reload_by_signal())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        with suppress(ValueError, RuntimeError):  # in another thread than the first
            loop.add_signal_handler(signal.SIGHUP, reload)

    async def close(self) -> None:
        """End the fetches, and allow the environments to be removed."""
        if self.fetches is not None:
            await self.fetches.close()
        self._in_use.close()
