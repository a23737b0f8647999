"""Streamed responses, for threads and for event loops."""

from proctor_client._async.streams import AsyncExecStream, AsyncRewardStream, AsyncRolloutStream
from proctor_client._sync.streams import ExecStream, RewardStream, RolloutStream

__all__ = [
    "AsyncExecStream",
    "AsyncRewardStream",
    "AsyncRolloutStream",
    "ExecStream",
    "RewardStream",
    "RolloutStream",
]
