"""A service with its default settings and real sandboxes, and its client."""

from command_line import no_settings
from real_service import client, judge, places, service

__all__ = ["client", "judge", "no_settings", "places", "service"]
