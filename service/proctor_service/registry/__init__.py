"""Stateful sandboxes: ownership, lifetime, commands and files.

`Registry` finds sessions by tenant, id and tags, and runs each command under a slot lease. `Kept`
is the session of a single sandbox. The package is independent of HTTP and of concrete backends.
`close` ends every sandbox.
"""

from proctor_service.registry.kept import ExecOutcome, Kept, Order
from proctor_service.registry.registry import Bounds, Execution, Registry

__all__ = ["Bounds", "ExecOutcome", "Execution", "Kept", "Order", "Registry"]
