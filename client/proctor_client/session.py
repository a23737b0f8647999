"""Sessions, for threads and for event loops."""

from proctor_client._async.session import AsyncSession
from proctor_client._sync.session import Session

__all__ = ["AsyncSession", "Session"]
