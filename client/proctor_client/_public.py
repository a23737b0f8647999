"""Public names of the package. Each of them is a name of `proctor_client` itself."""

from proctor_client._calls import AnySubmission, CodeOptions, RewardOptions
from proctor_client._handle import Observer
from proctor_client._journal_calls import EvaluationOptions
from proctor_client._rollout_calls import RolloutOptions
from proctor_client._sandbox_calls import SandboxOptions
from proctor_client.async_client import AsyncClient
from proctor_client.client import Client
from proctor_client.errors import (
    BatchTooLargeError,
    BudgetExceededError,
    BusyError,
    ClientClosedError,
    DrainingError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    JournalDownError,
    JournalOffError,
    NotFoundError,
    NotReplayableError,
    ProctorConnectionError,
    ProctorError,
    ProctorTimeoutError,
    ProtocolError,
    QuotaExceededError,
    SandboxError,
    SandboxFileError,
    SandboxLostError,
    SandboxNotFoundError,
    SandboxStoppedError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    UnauthorizedError,
)
from proctor_client.pending import AsyncPending, Pending
from proctor_client.sandbox import AsyncSandbox, Sandbox
from proctor_client.session import AsyncSession, Session
from proctor_client.stats import ActiveCount, SessionStats
from proctor_client.streams import (
    AsyncExecStream,
    AsyncRewardStream,
    AsyncRolloutStream,
    ExecStream,
    RewardStream,
    RolloutStream,
)
from proctor_client.tags import environment_tags, kubernetes_labels

__all__ = [
    "ActiveCount",
    "AnySubmission",
    "AsyncClient",
    "AsyncExecStream",
    "AsyncPending",
    "AsyncRewardStream",
    "AsyncRolloutStream",
    "AsyncSandbox",
    "AsyncSession",
    "BatchTooLargeError",
    "BudgetExceededError",
    "BusyError",
    "Client",
    "ClientClosedError",
    "CodeOptions",
    "DrainingError",
    "EvaluationOptions",
    "ExecStream",
    "ForbiddenError",
    "InternalError",
    "InvalidRequestError",
    "JournalDownError",
    "JournalOffError",
    "NotFoundError",
    "NotReplayableError",
    "Observer",
    "Pending",
    "ProctorConnectionError",
    "ProctorError",
    "ProctorTimeoutError",
    "ProtocolError",
    "QuotaExceededError",
    "RewardOptions",
    "RewardStream",
    "RolloutOptions",
    "RolloutStream",
    "Sandbox",
    "SandboxError",
    "SandboxFileError",
    "SandboxLostError",
    "SandboxNotFoundError",
    "SandboxOptions",
    "SandboxStoppedError",
    "SandboxTimeoutError",
    "SandboxUnavailableError",
    "Session",
    "SessionStats",
    "UnauthorizedError",
    "environment_tags",
    "kubernetes_labels",
]
