"""Stateful sandboxes: whose they are, how long they live, and what is done in them.

`Registry` finds them by tenant, name and tags, and takes a turn in the queue for each command.
`Kept` is one of them. Nothing here knows HTTP or a concrete backend, and nothing outlives `close`.
"""

from proctor_service.registry.kept import ExecOutcome, Kept, Order
from proctor_service.registry.registry import Bounds, Execution, Registry

__all__ = ["Bounds", "ExecOutcome", "Execution", "Kept", "Order", "Registry"]
