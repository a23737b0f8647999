"""`AsyncClient`, for event loops, with the methods of `Client`."""

from proctor_client._async.client import AsyncClient

__all__ = ["AsyncClient"]
