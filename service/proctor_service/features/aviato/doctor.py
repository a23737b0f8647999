"""`proctor doctor` for Aviato: requests a sandbox and reports the result."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from proctor_service.errors import StartError
from proctor_service.features.aviato.backend import AviatoBackend
from proctor_service.features.aviato.plan import AviatoPlan
from proctor_service.sandbox.interface import MachineCheck


def examine(plan: AviatoPlan) -> list[MachineCheck]:
    """Return the checks of Aviato's sandboxes, in the time of starting two sandboxes."""
    # A separate instance name, since this command must not stop the service's sandboxes.
    own = replace(plan, instance=f"{plan.instance}-doctor", pool_size=1, allow_degraded=True)
    return asyncio.run(_examine(AviatoBackend(own), plan))


async def _examine(backend: AviatoBackend, plan: AviatoPlan) -> list[MachineCheck]:
    try:
        await backend.start()
    except StartError as error:
        return [MachineCheck("aviato", False, str(error), required=True, guards=True)]
    try:
        found = backend.traits.languages
        languages = [
            MachineCheck(
                f"language {name}",
                name in found,
                f"needs {', '.join(language.needs)}",
                f"an image with {', '.join(language.needs)}",
            )
            for name, language in plan.languages.items()
        ]
        reachable = MachineCheck("aviato", True, f"{plan.base_url} gives sandboxes")
        return [reachable, *backend.checks(), *languages]
    finally:
        await backend.close()
