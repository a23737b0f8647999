"""A service with real sandboxes, its client, and a judge in real sandboxes."""

from real_service import client, judge, places, service

__all__ = ["client", "judge", "places", "service"]
