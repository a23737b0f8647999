"""Stateful sandboxes: ownership, lifetime, commands and files.

`Registry` finds sessions by tenant, id and tags, and runs each command under a slot lease.
`Session` is a single sandbox with its owner. The package is independent of HTTP and of concrete
backends. `close` ends every sandbox.
"""

from proctor_service.sandboxes.registry import Bounds, Execution, Registry
from proctor_service.sandboxes.session import ExecOutcome, Order, Session

__all__ = ["Bounds", "ExecOutcome", "Execution", "Order", "Registry", "Session"]
