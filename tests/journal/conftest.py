"""A real service, and journals."""

from journal_store import under
from real_service import client, judge, places, service

__all__ = ["client", "judge", "places", "service", "under"]
