"""Services under attack, and a sandbox in them."""

from hostile.fixtures import room, service

__all__ = ["room", "service"]
