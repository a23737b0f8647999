"""A server for OpenEnv: episodes in stateful sandboxes of a Proctor service.

    python -m proctor_trainers.openenv --dataset problems.jsonl --port 8000

    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url="http://localhost:8000").sync() as env:
        env.reset(index=0)
        env.step({"tool": "bash", "arguments": {"command": "ls"}})
        env.step({"tool": "submit_solution", "arguments": {"code": "…"}}).reward

The protocol, over HTTP and WebSocket, is OpenEnv's own server's; a session of a WebSocket is an
environment with a sandbox, which ends with the session. A row of the data set has a `prompt` and its
tests, in columns as in proctor_client.datasets.columns or in one of the fields of
proctor_client.datasets.ground_truth. The submission of a solution ends the episode and gives the reward.

A state that could not be judged raises NoReward: the client gets OpenEnv's error, and no reward. What
the policy does wrong, such as an unknown tool or an endless command, is an observation.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import Field, SecretStr

from proctor_client import wire
from proctor_client.datasets.columns import TaskOf
from proctor_client.datasets.ground_truth import task_from_row
from proctor_trainers.addresses import Unreachable, check_service, client_for
from proctor_trainers.extras import MissingExtra
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.factory import HASTY_CONNECT_SECONDS
from proctor_trainers.trl.toolbox import Tool, Toolbox
from proctor_trainers.trl.workplaces import Order, Workplaces

try:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State
except ImportError as error:
    raise MissingExtra(f"{error}: pip install 'proctor-trainers[openenv]'") from None

TAG = "openenv"
TOOLS: tuple[str, ...] = get_args(Tool)


class NoReward(RuntimeError):
    """Raised when the end of an episode could not be judged."""


class ToolAction(Action):  # type: ignore[misc]
    """A tool call: the name of a tool, and its arguments."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ToolObservation(Observation):  # type: ignore[misc]
    """What the policy sees. The reward is None until the episode is over."""

    prompt: Any = None
    output: str = ""


class _Session(Toolbox):
    @property
    def is_submitted(self) -> bool:
        return self._is_submitted

    def stop(self) -> None:
        self._stop()


class ProctorEnvironment(Environment):  # type: ignore[misc]
    """Episodes one after the other, each with a sandbox of its own from the first tool call on.

    `rows`: the data set. `most_steps`: tool calls of an episode; the last one ends it.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        workplaces: Workplaces,
        rules: Rules,
        most_steps: int,
    ) -> None:
        super().__init__()
        self._rows = rows
        self._most_steps = most_steps
        self._session = _Session(workplaces, rules)
        self._state = State()
        self._is_over = True

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        index: int | None = None,
        **row: Any,
    ) -> ToolObservation:
        """Begin an episode for row `index`, else `seed`, of the data set, or for a row of the call.

        Raises ValueError without a row, and MissingColumns if no column defines the judging.
        """
        if not row:
            if not self._rows:
                raise ValueError("the server has no data set, and the call no row")
            row = dict(self._rows[(index or seed or 0) % len(self._rows)])
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        self._session.reset(**row)
        self._is_over = False
        return ToolObservation(prompt=row.get("prompt"))

    def step(self, action: ToolAction, timeout_s: float | None = None, **_: Any) -> ToolObservation:
        """Call a tool. Raises NoReward, and ProctorError for a wrong token or address."""
        if self._is_over:
            raise ValueError("no episode was begun, or it is over: call reset")
        self._state.step_count += 1
        output = self._call(action)
        if not self._session.is_submitted and self._state.step_count < self._most_steps:
            return ToolObservation(output=output)
        self._is_over = True
        reward = self._session.get_reward()
        if reward is None:
            raise NoReward("the end of the episode could not be judged: it has no reward")
        return ToolObservation(output=output, done=True, reward=reward)

    @property
    def state(self) -> State:
        """The episode's id, and the number of its tool calls."""
        return self._state

    def close(self) -> None:
        """Stop the sandbox, if there is one."""
        self._is_over = True
        self._session.stop()

    def _call(self, action: ToolAction) -> str:
        if action.tool not in TOOLS:
            return f"Error: no tool {action.tool!r}, only {', '.join(TOOLS)}"
        try:
            return str(getattr(self._session, action.tool)(**action.arguments))
        except TypeError as error:
            return f"Error: {error}"


def create_app(
    rows: Sequence[Mapping[str, Any]] = (),
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
    session that is idle for longer ends, and so does its sandbox. `environment`: the service's
    environment of the sandboxes. `task` maps a row to the judging fields.
    """
    workplaces = Workplaces(
        client_for(url, token, retry_seconds),
        client_for(url, token, 0.0, connect_timeout_seconds=HASTY_CONNECT_SECONDS),
        Order(tags=(TAG,), ttl_seconds=session_seconds, environment=environment),
    )
    rules = Rules(task=task, scoring=scoring, exec_timeout_seconds=exec_timeout_seconds)
    return create_fastapi_app(
        lambda: ProctorEnvironment(rows, workplaces, rules, most_steps),
        ToolAction,
        ToolObservation,
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=most_sessions, session_timeout=session_seconds
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a data set until a signal. Returns the exit status."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m proctor_trainers.openenv")
    parser.add_argument(
        "--dataset", type=Path, required=True, help="a file with a row of JSON in each line"
    )
    parser.add_argument(
        "--url", help="the service (default: PROCTOR_URL, or http://127.0.0.1:8080)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")
    parser.add_argument("--sessions", type=int, default=64, help="at once; default: %(default)s")
    args = parser.parse_args(arguments)
    try:
        lines = args.dataset.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        check_service(args.url)
    except (OSError, ValueError, Unreachable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    app = create_app(rows, args.url, most_sessions=args.sessions)
    uvicorn.run(app, host=args.host, port=args.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
