"""Handles of stateful sandboxes, for threads and for event loops."""

from proctor_client._async.sandbox import AsyncSandbox
from proctor_client._sync.sandbox import Sandbox

__all__ = ["AsyncSandbox", "Sandbox"]
