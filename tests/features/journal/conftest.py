"""A journal whose folder is not there yet."""

from journal_store import under

__all__ = ["under"]
