"""`Client`, for threads, with the methods of `AsyncClient`."""

from proctor_client._sync.client import Client

__all__ = ["Client"]
