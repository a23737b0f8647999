"""`proctor doctor` for Aviato: asks it for a sandbox, and says what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from proctor_service.errors import StartError
from proctor_service.sandbox.backends.aviato.backend import AviatoBackend
from proctor_service.sandbox.backends.aviato.plan import Plan
from proctor_service.sandbox.interface import Check


def examine(plan: Plan) -> list[Check]:
    """What the sandboxes hold and what they lack. Takes as long as two of them take to come up."""
    # Under a name of its own: the service's sandboxes are not this command's to stop.
    own = replace(plan, instance=f"{plan.instance}-doctor", pool_size=1, allow_degraded=True)
    return asyncio.run(_examine(AviatoBackend(own), plan))


async def _examine(backend: AviatoBackend, plan: Plan) -> list[Check]:
    try:
        await backend.open()
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
