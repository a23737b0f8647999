"""A service with its default settings and real sandboxes, its client, and a judge in real sandboxes."""

from command_line import no_settings
from real_service import client, judge, places, service

__all__ = ["client", "judge", "no_settings", "places", "service"]
