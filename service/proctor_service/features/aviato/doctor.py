"""`proctor doctor` for Aviato: requests a sandbox and reports the result."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from proctor_service.errors import StartError
from proctor_service.features.aviato.backend import AviatoBackend
from proctor_service.features.aviato.plan import Plan
from proctor_service.sandbox.interface import Check


def examine(plan: Plan) -> list[Check]:
    """Return the checks of Aviato's sandboxes, in the time of starting two sandboxes."""
    # A separate instance name, since this command must not stop the service's sandboxes.
    own = replace(plan, instance=f"{plan.instance}-doctor", pool_size=1, allow_degraded=True)
    return asyncio.run(_examine(AviatoBackend(own), plan))


async def _examine(backend: AviatoBackend, plan: Plan) -> list[Check]:
    try:
        await backend.start()
    except StartError as error:
        return [Check("aviato", False, str(error), required=True, guards=True)]
    try:
        found = backend.traits.languages
        languages = [
            Check(
                f"language {name}",
                name in found,
                f"needs {', '.join(language.needs)}",
                f"an image with {', '.join(language.needs)}",
            )
            for name, language in plan.languages.items()
        ]
        reachable = Check("aviato", True, f"{plan.base_url} gives sandboxes")
        return [reachable, *backend.checks(), *languages]
    finally:
        await backend.close()
