"""A server for the Open Reward Standard (ORS), with the package `openreward`.

    python -m proctor_trainers.openreward --dataset problems.jsonl --port 8000

    from openreward import OpenReward

    env = OpenReward().environments.get("proctor", base_url="http://localhost:8000")
    with env.session(split="train", index=0) as session:
        session.call_tool("bash", {"command": "ls"})
        session.call_tool("submit_solution", {"code": "…"}).reward

The protocol, over HTTP and server-sent events, is openreward's own server's. A row of the data set
has a `prompt`, as text or as chat messages, and its tests, in columns as in
proctor_client.tasks.forms or in a field of proctor_client.tasks.ground_truth. A
session is an episode for a row. The server has two environments:

    ProctorSandbox  tools in a stateful sandbox; the submission of a solution gives the reward
    ProctorAnswer   a plain message ends the episode, and its code is judged

An unjudgeable tool call raises NoReward: the client raises ToolFailed in place of a
reward. The policy's own mistakes become the output of its call.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr, create_model

from proctor_client import wire
from proctor_client.tasks.forms import task_from_row
from proctor_client.tasks.task import TaskOf
from proctor_trainers.batching import RETRY_SECONDS, RewardBatcher, batcher_for
from proctor_trainers.episodes import TOOLS, Episodes, NoReward, Rows, Turn, serve
from proctor_trainers.extras import MissingExtra
from proctor_trainers.trl.toolbox import Toolbox

try:
    from openreward.environments import (
        Environment,
        Message,
        Server,
        TextBlock,
        ToolOutput,
        terminal,
        tool,
    )
except ImportError as error:
    raise MissingExtra(f"{error}: pip install 'proctor-trainers[openreward]'") from None

__all__ = ["NoReward", "ProctorAnswer", "ProctorSandbox", "create_server"]

TAG = "openreward"
INDEX = "index"


class _Problems(Environment):  # type: ignore[misc]
    """Tasks for the rows of a data set. A task has the row's index, and hides the row's tests."""

    rows: ClassVar[Rows]
    split: ClassVar[str]

    def __init__(self, task_spec: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        super().__init__(task_spec, secrets)
        index = task_spec.get(INDEX)
        if not isinstance(index, int) or not 0 <= index < len(self.rows):
            raise ValueError(f"{INDEX}: it must be a number from 0 to {len(self.rows) - 1}")
        self.index = index

    @classmethod
    def list_splits(cls) -> list[str]:
        """Return the name of the single split."""
        return [cls.split]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        """Return a task for each row."""
        return [{INDEX: index} for index in range(len(cls.rows))]

    def get_messages(self) -> list[Message]:
        """Return the row's prompt."""
        return messages_of(self.rows[self.index].get("prompt"))


class ProctorSandbox(_Problems):
    """Episode in a stateful sandbox, which begins with the first tool call."""

    episodes: ClassVar[Episodes]
    threads: ClassVar[Executor]

    def __init__(self, task_spec: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self._episode = self.episodes.new()

    def setup(self) -> None:
        """Begin the episode. Raises NoReward for an unusable row, and MissingColumns."""
        self._episode.begin(self.rows[self.index])

    async def teardown(self) -> None:
        """Stop any sandbox."""
        await self._in_thread(self._episode.close)

    async def _call(self, name: str, arguments: BaseModel) -> ToolOutput:
        """Call a tool. Raises NotBegun, NoReward and ProctorError."""
        values = arguments.model_dump()
        turn: Turn = await self._in_thread(lambda: self._episode.call(name, values))
        return _output(turn.output, turn.reward)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.threads, call)


class _Answer(BaseModel):
    message: str


class ProctorAnswer(_Problems):
    """Episode of a single message with code."""

    batcher: ClassVar[RewardBatcher]

    @terminal  # type: ignore[untyped-decorator]
    @tool  # type: ignore[untyped-decorator]
    async def answer(self, arguments: _Answer) -> ToolOutput:
        """Judge the final message. Raises NoReward and ProctorError."""
        row = self.rows[self.index]
        answer = await self.batcher.judge_async(arguments.message, row, group=str(self.index))
        if answer.reward is None:
            raise NoReward(f"the answer could not be judged: {answer.error}")
        return _output(answer.verdict, answer.reward)


def messages_of(prompt: Any) -> list[Message]:
    """Return a prompt as messages: a text, or chat messages. Raises ValueError for another form."""
    chat = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        messages = [
            Message(role=each["role"], blocks=[TextBlock(text=each["content"])]) for each in chat
        ]
    except (TypeError, KeyError, ValueError):
        messages = []
    if not messages:
        raise ValueError("prompt: neither a text nor chat messages")
    return messages


def create_server(
    rows: Rows,
    url: str | None = None,
    *,
    token: str | SecretStr | None = None,
    retry_seconds: float = RETRY_SECONDS,
    split: str = "train",
    most_calls_at_once: int = 64,
    most_calls: int = 50,
    ttl_seconds: float = 3600.0,
    task: TaskOf = task_from_row,
    scoring: wire.Scoring = "all",
    environment: str | None = None,
    exec_timeout_seconds: float = 30.0,
) -> Server:
    """Return openreward's server with both environments; its `app` is an ASGI application.

    `most_calls_at_once`: tool calls of all sessions; further ones wait. `most_calls`: tool calls of
    an episode. The other arguments are those of proctor_trainers.episodes.Episodes.at. Raises
    ValueError for a row without a prompt.
    """
    for number, row in enumerate(rows):
        try:
            messages_of(row.get("prompt"))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    episodes = Episodes.at(
        url,
        TAG,
        token=token,
        retry_seconds=retry_seconds,
        ttl_seconds=ttl_seconds,
        most_calls=most_calls,
        task=task,
        scoring=scoring,
        environment=environment,
        exec_timeout_seconds=exec_timeout_seconds,
    )
    batcher = batcher_for(
        TAG,
        url,
        token=token,
        retry_seconds=retry_seconds,
        task=task,
        options={"scoring": scoring, "environment": environment},
    )
    problems: dict[str, Any] = {"rows": rows, "split": split}
    threads = ThreadPoolExecutor(most_calls_at_once, thread_name_prefix="proctor-openreward")
    tools: dict[str, Any] = {name: _tool(name) for name in TOOLS}
    own: dict[str, Any] = {"episodes": episodes, "threads": threads, **tools}
    return Server(
        [
            type("ProctorSandbox", (ProctorSandbox,), {**problems, **own}),
            type("ProctorAnswer", (ProctorAnswer,), {**problems, "batcher": batcher}),
        ]
    )


def _tool(name: str) -> Any:
    """Return the toolbox's tool as a tool of openreward: its arguments are a model.

    A tool runs alone in its session, since all of them change the same sandbox.
    """
    method = vars(Toolbox)[name]
    parameters = list(inspect.signature(method).parameters)[1:]
    fields: dict[str, Any] = dict.fromkeys(parameters, (str, ...))
    model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    async def call(self: ProctorSandbox, arguments: BaseModel) -> ToolOutput:
        return await self._call(name, arguments)

    call.__doc__ = inspect.getdoc(method)
    call.__annotations__ = {"arguments": model, "return": ToolOutput}
    return tool(exclusive=True)(call)


def _output(text: str, reward: float | None) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=reward is not None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a data set until a signal. Returns the exit status."""
    return serve(
        "proctor_trainers.openreward",
        lambda rows, arguments: (
            create_server(
                rows,
                arguments.url,
                retry_seconds=arguments.retry_seconds,
                most_calls_at_once=arguments.sessions,
            ).app
        ),
        arguments,
    )


if __name__ == "__main__":
    sys.exit(main())
