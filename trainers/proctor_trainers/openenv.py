"""A server for OpenEnv: episodes in stateful sandboxes of a Proctor service.

    python -m proctor_trainers.openenv --dataset problems.jsonl --port 8000

    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url="http://localhost:8000").sync() as env:
        env.reset(index=0)
        env.step({"tool": "bash", "arguments": {"command": "ls"}})
        env.step({"tool": "submit_solution", "arguments": {"code": "…"}}).reward

The protocol, over HTTP and WebSocket, is OpenEnv's own server's; a session of a WebSocket is an
environment with a sandbox, which ends with the session. A row of the data set has a `prompt` and its
tests, in columns as in proctor_client.tasks.forms or in a field of
proctor_client.tasks.ground_truth. The submission of a solution ends the episode and gives the reward.

An unjudged state raises NoReward: the client gets OpenEnv's error in place of a reward. Mistakes of
the policy, such as an unknown tool or an endless command, are observations.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import Field, SecretStr

from proctor_client import wire
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.episodes import Episodes, NoReward, Rows, serve
from proctor_trainers.extras import MissingExtra

try:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
except ImportError as error:
    raise MissingExtra(f"{error}: pip install 'proctor-trainers[openenv]'") from None

__all__ = ["NoReward", "ProctorEnvironment", "ToolAction", "ToolObservation", "create_app"]

TAG = "openenv"


class ToolAction(Action):  # type: ignore[misc]
    """A tool call: the name of a tool, and its arguments."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolObservation(Observation):  # type: ignore[misc]
    """The policy's view. The reward is None until the end of the episode."""

    prompt: Any = None
    output: str = ""


class ProctorEnvironment(Environment):  # type: ignore[misc]
    """Successive episodes, for the rows of a data set."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, rows: Rows, episodes: Episodes) -> None:
        super().__init__()
        self._rows = rows
        self._episode = episodes.new()
        self._episode_id: str | None = None

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        **row: Any,
    ) -> ToolObservation:
        """Begin an episode for row `index`, else `seed`, of the data set, or for a row of the call.

        Raises ValueError without a row, MissingColumns without a column for the judging, and
        NoReward for an unusable row.
        """
        if not row:
            if not self._rows:
                raise ValueError("the server has no data set, and the call no row")
            place = next((number for number in (index, seed) if number is not None), 0)
            row = dict(self._rows[place % len(self._rows)])
        self._episode_id = episode_id or str(uuid.uuid4())
        self._episode.begin(row)
        return ToolObservation(prompt=row.get("prompt"))

    def step(self, action: ToolAction, timeout_s: float | None = None, **_: Any) -> ToolObservation:
        """Call a tool. Raises NotBegun, NoReward, and ProctorError for a wrong token or address."""
        turn = self._episode.call(action.tool, action.arguments)
        is_over = turn.reward is not None
        return ToolObservation(output=turn.output, done=is_over, reward=turn.reward)

    @property
    def state(self) -> State:
        """The episode's id, and the number of its tool calls."""
        return State(episode_id=self._episode_id, step_count=self._episode.calls)

    def close(self) -> None:
        """Stop any sandbox."""
        self._episode.close()


def create_app(
    rows: Rows = (),
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = 60.0,
    most_sessions: int = 64,
    session_seconds: float = 600.0,
    most_steps: int = 50,
    task: TaskOf = task_from_row,
    scoring: wire.Scoring = "all",
    environment: str | None = None,
    exec_timeout_seconds: float = 30.0,
) -> Any:
    """Return OpenEnv's FastAPI application with these episodes.

    `most_sessions`: WebSocket sessions at once; further ones are refused. `session_seconds`: a
    longer idle session ends, and so does its sandbox. `most_steps`: tool calls of an
    episode. The other arguments are those of proctor_trainers.episodes.Episodes.at.
    """
    episodes = Episodes.at(
        url,
        TAG,
        token=token,
        retry_seconds=retry_seconds,
        ttl_seconds=session_seconds,
        most_calls=most_steps,
        task=task,
        scoring=scoring,
        environment=environment,
        exec_timeout_seconds=exec_timeout_seconds,
    )
    return create_fastapi_app(
        lambda: ProctorEnvironment(rows, episodes),
        ToolAction,
        ToolObservation,
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=most_sessions, session_timeout=session_seconds
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a data set until a signal. Returns the exit status."""
    return serve(
        "proctor_trainers.openenv",
        lambda rows, arguments: create_app(
            rows,
            arguments.url,
            retry_seconds=arguments.retry_seconds,
            most_sessions=arguments.sessions,
        ),
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
