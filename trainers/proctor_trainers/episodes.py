"""Episodes of a policy in a stateful sandbox, for servers of other frameworks' environments.

An episode is a task: tool calls in a sandbox, until a solution is submitted or the calls are used up.
The reward judges the sandbox's final state. An unjudgeable episode raises NoReward, at the
earliest call; the policy's own mistakes become the output of its call.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from pydantic import SecretStr

from proctor_client import wire
from proctor_client.tasks.files import rows_of_file
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.addresses import Unreachable, check_service, client_for
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.factory import HASTY_CONNECT_SECONDS
from proctor_trainers.trl.toolbox import Tool, Toolbox
from proctor_trainers.trl.workplaces import Order, Workplaces

TOOLS: tuple[Tool, ...] = get_args(Tool)

Rows: TypeAlias = Sequence[Mapping[str, Any]]


class NoReward(RuntimeError):
    """Raised for an episode without a verdict, and so without a reward."""


class NotBegun(ValueError):
    """Raised for a call before an episode or after its end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Output of a tool call. The reward is None until the end of the episode."""

    output: str
    reward: float | None = None


class Episode(Toolbox):
    """Successive episodes, each with a sandbox of its own from the first tool call on.

    Calls from several threads wait for each other.
    """

    def __init__(self, workplaces: Workplaces, rules: Rules, most_calls: int) -> None:
        super().__init__(workplaces, rules)
        self.calls = 0
        self._most_calls = most_calls
        self._is_over = True
        self._lock = threading.Lock()

    def begin(self, row: Mapping[str, Any]) -> None:
        """Begin an episode for a row of the data set.

        Raises NoReward for an unusable row, and MissingColumns.
        """
        with self._lock:
            self._is_over, self.calls = True, 0
            self.reset(**row)
            if self._failure:
                raise NoReward(self._failure)
            self._is_over = False

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Turn:
        """Call a tool.

        Raises NotBegun, NoReward, and ProctorError for a fatal error, such as a wrong token.
        """
        with self._lock:
            if self._is_over:
                raise NotBegun("no episode was begun, or it is over")
            self.calls += 1
            output = self._output(tool, arguments)
            if not (self._failure or self._is_submitted or self.calls >= self._most_calls):
                return Turn(output)
            self._is_over = True
            reward = self.get_reward()
            if reward is None:
                why = self._failure or "the sandbox's final state has no verdict"
                raise NoReward(f"the episode could not be judged: {why}")
            return Turn(output, reward)

    def close(self) -> None:
        """Stop any sandbox after the present call."""
        with self._lock:
            self._is_over = True
            self._stop()

    def _output(self, tool: str, arguments: Mapping[str, Any]) -> str:
        if tool not in TOOLS:
            return f"Error: no tool {tool!r}, only {', '.join(TOOLS)}"
        try:
            return str(getattr(self, tool)(**arguments))
        except TypeError as error:
            return f"Error: {error}"


@dataclass(frozen=True)
class Episodes:
    """Shared settings of a server's episodes. `most_calls`: the last call ends an episode."""

    workplaces: Workplaces
    rules: Rules
    most_calls: int = 50

    @classmethod
    def at(
        cls,
        url: str | None,
        tag: str,
        *,
        token: str | SecretStr | None = None,
        retry_seconds: float = 60.0,
        ttl_seconds: float = 3600.0,
        most_calls: int = 50,
        task: TaskOf = task_from_row,
        scoring: wire.Scoring = "all",
        environment: str | None = None,
        exec_timeout_seconds: float = 30.0,
    ) -> Episodes:
        """Return episodes with sandboxes of the service at `url`, which have this tag.

        `ttl_seconds` bounds the time of a sandbox without a call. `environment`: the service's
        environment of the sandboxes. `task` maps a row to its task. Raises ValueError for an invalid
        URL, token or environment.
        """
        order = Order(tags=(tag,), ttl_seconds=ttl_seconds, environment=environment)
        workplaces = Workplaces(
            client_for(url, token, retry_seconds),
            client_for(url, token, 0.0, connect_timeout_seconds=HASTY_CONNECT_SECONDS),
            order,
        )
        rules = Rules(task=task, scoring=scoring, exec_timeout_seconds=exec_timeout_seconds)
        return cls(workplaces, rules, most_calls)

    def new(self) -> Episode:
        """Return an episode before its beginning."""
        return Episode(self.workplaces, self.rules, self.most_calls)


def serve(
    program: str,
    make_app: Callable[[Rows, argparse.Namespace], Any],
    arguments: Sequence[str] | None = None,
) -> int:
    """Serve a data set until a signal. Returns the exit status.

    `make_app` gets the rows, and the options `url`, `sessions` and `retry_seconds`, and returns an
    ASGI application, or raises ValueError.
    """
    import uvicorn

    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument(
        "--dataset", type=Path, required=True, help="JSON lines or one JSON array; .gz, too"
    )
    parser.add_argument(
        "--url", help="the service (default: PROCTOR_URL, or http://127.0.0.1:8080)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8000, help="default: %(default)s")
    parser.add_argument("--sessions", type=int, default=64, help="at once; default: %(default)s")
    parser.add_argument(
        "--retry-seconds",
        type=float,
        default=60.0,
        help="wait for an unreachable service; default: %(default)s",
    )
    args = parser.parse_args(arguments)
    try:
        rows = [row for _, row in rows_of_file(args.dataset)]
        check_service(args.url)
        app = make_app(rows, args)
    except (ValueError, Unreachable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    uvicorn.run(app, host=args.host, port=args.port, log_level="warning")
    return 0
