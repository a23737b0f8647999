"""A real service, and journals."""

from command_line import no_settings
from journal_store import under
from real_service import client, judge, places, service

__all__ = ["client", "judge", "no_settings", "places", "service", "under"]
