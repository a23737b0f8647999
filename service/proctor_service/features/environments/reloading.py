"""The environments file, read anew while the service runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import ExitStack

from proctor_service.errors import InvalidRequest, StartError
from proctor_service.features.environments.by_name import KnownEnvironments
from proctor_service.features.environments.loading import load_environments
from proctor_service.settings import Settings

_log = logging.getLogger(__name__)

Changed = Callable[[Collection[str]], None]
"""Called with the names of environments that are new, gone or others than before."""


class Reloading:
    """Reads the file anew, and gives the environments to the service.

    `settings`: as they were before the start, without languages of environments. `held`: protects the
    present environments from removal.
    """

    def __init__(
        self, settings: Settings, environments: KnownEnvironments, held: ExitStack
    ) -> None:
        self.changed: Changed = lambda names: None
        self._settings = settings
        self._environments = environments
        self._held = held
        self._alone = asyncio.Lock()

    async def reload(self) -> Collection[str]:
        """Read the file; return the names of changed environments.

        Work in progress goes on in the environments as they were. Raises InvalidRequest for a wrong file, for
        environments still to be built, and for other own languages.
        """
        async with self._alone:
            held = ExitStack()
            try:
                found = await asyncio.to_thread(load_environments, self._settings, held)
                listed = self._environments.listed
                for name in {*found, *listed}:
                    before, now = listed.get(name), found.get(name)
                    languages = [
                        each.definition.own_languages if each else {} for each in (before, now)
                    ]
                    if languages[0] != languages[1]:
                        raise StartError(f"environments.{name}.own_languages: needs a restart")
            except StartError as error:
                held.close()
                raise InvalidRequest(str(error)) from None
            names = self._environments.replace_listed(found)
            self.changed(names)
            self._held.close()
            self._held.push(held.pop_all())
        _log.info("the environments are read anew", extra={"changed": sorted(names)})
        return names

    async def reload_by_signal(self) -> None:
        """Read the file; log a mistake in the file."""
        try:
            await self.reload()
        except InvalidRequest as error:
            _log.error("the environments stay as they were", extra={"why": error.message})
