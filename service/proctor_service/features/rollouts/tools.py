"""Tools of an agent, and the sandbox in which they run.

Every call returns an observation: a text with the result, cut to a budget with its end kept.
Effects of the policy's own actions, such as invalid arguments, an endless command or a sandbox out
of memory, become observations. Infrastructure errors, such as a lost sandbox, are a Failure and end
the trajectory without a reward.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from proctor_client.wire import Tool
from proctor_service.errors import FileMissing, FileRefused, SandboxEnded
from proctor_service.features.rollouts import answers
from proctor_service.features.rollouts.observation import Observation, observe, text_of
from proctor_service.features.rollouts.reply import MOST_ARGUMENTS_CHARACTERS, ToolCall
from proctor_service.http.json import without_surrogates
from proctor_service.judge.submission import SOLUTION, Submission, TreeRules, integrity_of
from proctor_service.outcomes import JsonObject, NoCode, TrajectoryPlan
from proctor_service.sandbox.interface import Command, Ended, Operation, Usage
from proctor_service.sandboxes.tree_files import make_tree_file, remove_tree_file

log = logging.getLogger(__name__)

SUBMIT: Tool = "submit_solution"
MOST_READ_BYTES = 1 << 18
"""Maximum of bytes read from a file; an observation holds far fewer characters."""
OWN_SHARE = 0.5
"""Share of a trajectory's time for commands in the sandbox.

Otherwise a policy could sleep until the deadline has passed, and would get an error instead of a
verdict.
"""


class Workplace(Protocol):
    """Stateful sandbox of a trajectory.

    Its methods raise SandboxEnded if the sandbox ended by its own act, and a Failure if the sandbox
    was lost or is unusable.
    """

    @property
    def id(self) -> str:
        """Id of the sandbox: `sb_…`."""

    async def exec(self, command: Command) -> Ended:
        """Run a command to its end."""

    async def read_file(self, path: str, max_bytes: int | None = None) -> bytes:
        """Return a whole file. Raises FileMissing, and FileRefused, also for a larger file."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a whole file. Raises FileRefused."""

    async def snapshot(self) -> bytes:
        """Return all files as a tar archive."""

    async def operate(self, operation: Operation) -> None:
        """Run code of the service. Raises FileRefused."""

    async def stop(self) -> None:
        """End the sandbox and wait for its clean-up; no effect after its end."""


OpenWorkplace = Callable[[TrajectoryPlan], Awaitable[Workplace]]
"""Open a fresh sandbox with the task's files. Raises a Failure without a sandbox."""


@dataclass(frozen=True, slots=True)
class ToolForm:
    """Description and arguments of a tool. Every argument is a required string."""

    description: str
    arguments: Mapping[str, str]


FORMS: Mapping[Tool, ToolForm] = MappingProxyType(
    {
        "execute_code": ToolForm(
            "Run Python code in the sandbox and get what it prints. Files stay from call to call; "
            "variables do not.",
            {"code": "The Python code."},
        ),
        "bash": ToolForm(
            "Run a shell command in the sandbox's working directory and get what it prints.",
            {"command": "The command."},
        ),
        "read_file": ToolForm(
            "Read a text file of the sandbox.",
            {"path": "Relative to the working directory, or absolute."},
        ),
        "write_file": ToolForm(
            "Write a whole text file in the sandbox, in place of one that is there.",
            {
                "path": "Relative to the working directory, or absolute.",
                "content": "The whole text of the file.",
            },
        ),
        "submit_solution": ToolForm(
            "Submit the final solution. It is graded, and the task ends: it can be called once.",
            {"code": "The whole program, which must stand by itself."},
        ),
    }
)


def schema(name: Tool) -> JsonObject:
    """Return the tool in the format of OpenAI's API."""
    form = FORMS[name]
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": form.description,
            "parameters": {
                "type": "object",
                "properties": {
                    argument: {"type": "string", "description": text}
                    for argument, text in form.arguments.items()
                },
                "required": list(form.arguments),
                "additionalProperties": False,
            },
        },
    }


class BadCall(Exception):
    """Invalid tool call; the message is for the policy."""


@dataclass(frozen=True, slots=True)
class CommandCall:
    """Call of a custom tool: its command, and the arguments on stdin."""

    argv: tuple[str, ...]
    stdin: bytes


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """Call of a tool outside the sandbox. `work` gets its seconds at most."""

    work: Callable[[float], Awaitable[Observation]]


def arguments_of(
    call: ToolCall, tools: Sequence[Tool], others: Sequence[str] = ()
) -> tuple[Tool, Mapping[str, str]]:
    """Return the built-in tool and its arguments. `others`: names of further tools.

    Raises BadCall.
    """
    tool = next((name for name in tools if name == call.name), None)
    if tool is None:
        names = ", ".join((*tools, *others))
        raise BadCall(f"there is no tool {call.name[:100]!r}, only: {names}")
    if len(call.arguments) > MOST_ARGUMENTS_CHARACTERS:
        raise BadCall(
            f"the arguments of {tool} are longer than {MOST_ARGUMENTS_CHARACTERS >> 20} MB"
        )
    try:
        values = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise BadCall(f"the arguments of {tool} are not JSON: {str(error)[:200]}") from None
    if not isinstance(values, dict):
        raise BadCall(f"the arguments of {tool} are not a JSON object")
    wanted = FORMS[tool].arguments
    for name in wanted:
        if name not in values:
            raise BadCall(f"{tool} needs the argument {name!r}")
        if not isinstance(values[name], str):
            raise BadCall(f"the argument {name!r} of {tool} must be a string")
    for name in values:
        if name not in wanted:
            raise BadCall(f"{tool} takes no argument {name[:100]!r}, only: {', '.join(wanted)}")
    return tool, values


class Toolbox:
    """Tools of a trajectory. The first call in need of a sandbox creates the sandbox."""

    def __init__(self, plan: TrajectoryPlan, open_: OpenWorkplace) -> None:
        self._plan = plan
        self._open = open_
        self._left_seconds = (plan.deadline - time.monotonic()) * OWN_SHARE
        self._workplace: Workplace | None = None
        self._tree_file: str | None = None
        self.sandbox_id: str | None = None

    async def use(
        self,
        tool: Tool | CommandCall | RemoteCall,
        values: Mapping[str, str],
        exec_timeout_seconds: float,
    ) -> Observation:
        """Execute a call. Raises a Failure if the call fails for reasons outside the policy."""
        if self._left_seconds <= 0:
            return Observation("Error: all the time for commands is used up", failed=True)
        if isinstance(tool, RemoteCall):
            return await self._use_remote(tool, exec_timeout_seconds)
        for name, text in values.items():
            if ("\0" in text and name != "content") or without_surrogates(text) != text:
                return Observation(f"Error: {name} holds what is no character", failed=True)
        try:
            return await self._use(tool, values, min(exec_timeout_seconds, self._left_seconds))
        except SandboxEnded as ended:
            await self.close()
            files = ", with the task's files" if self._plan.task.files else ""
            more = f"What was in it is gone. The next call gets a new one{files}."
            return Observation(f"Error: the sandbox ended: {ended.message}", more, failed=True)
        except (FileMissing, FileRefused) as refused:
            return Observation(f"Error: {refused.message}", failed=True)

    async def left_behind(self, last_reply: str) -> Submission | NoCode:
        """End the sandbox and return its final state; without a sandbox, the files of a new
        sandbox."""
        if self._workplace is not None:
            try:
                if self._plan.task.tree is not None:
                    return await self._tree(self._plan.task.tree, self._workplace)
                archive = await self._workplace.snapshot()
                solution = await _solution(self._workplace)
                await self.close()  # the judge needs room for its own sandboxes
                return await answers.of_state(self._plan, solution, archive, last_reply)
            except (FileMissing, FileRefused) as refused:
                why = f"There is nothing to judge: {refused.message}"
                task = self._plan.task
                if task.grader.judges == "completion":
                    return await answers.of_reply(self._plan, last_reply)
                integrity = integrity_of(task.grader)
                return NoCode(task.test_count, why, self._plan.environment, integrity)
            except SandboxEnded:
                await self.close()
        return await answers.of_files(self._plan, last_reply)

    async def _tree(self, tree: TreeRules, workplace: Workplace) -> Submission:
        """End the sandbox and return its repository. Raises FileRefused and SandboxEnded."""
        path = self._tree_file = await make_tree_file()
        await workplace.operate(tree.save(self._plan.task.grader, self._plan.limits, path))
        await self.close()
        return answers.of_tree(self._plan, path)

    async def end(self) -> None:
        """End the sandbox, and remove what was taken of it."""
        await self.close()
        if self._tree_file is not None:
            await remove_tree_file(self._tree_file)

    async def close(self) -> None:
        """End the sandbox; a cancellation of this call still ends the sandbox."""
        workplace, self._workplace = self._workplace, None
        if workplace is not None:
            await asyncio.shield(asyncio.create_task(_stop(workplace)))

    async def _use_remote(self, call: RemoteCall, seconds: float) -> Observation:
        begun = time.monotonic()
        try:
            return await call.work(seconds)
        finally:
            self._left_seconds -= time.monotonic() - begun

    async def _use(
        self, tool: Tool | CommandCall, values: Mapping[str, str], seconds: float
    ) -> Observation:
        if self._workplace is None:
            self._workplace = await self._open(self._plan)
            self.sandbox_id = self._workplace.id
        workplace, begun = self._workplace, time.monotonic()
        ended: Ended | None = None
        try:
            match tool:
                case "execute_code":
                    command = Command(code=values["code"], timeout_seconds=seconds)
                case CommandCall(argv=argv, stdin=stdin):
                    command = Command(argv, stdin=stdin, timeout_seconds=seconds)
                case "bash":
                    argv = (self._plan.shell, "-c", values["command"])
                    command = Command(argv, timeout_seconds=seconds)
                case "read_file":
                    data = await workplace.read_file(values["path"], MOST_READ_BYTES)
                    return Observation("", text_of(data) or "(it is empty)")
                case "write_file":
                    data = values["content"].encode()
                    await workplace.write_file(values["path"], data)
                    return Observation(f"Wrote {len(data)} bytes.")
                case "submit_solution":
                    raise AssertionError("a submission is for the judge")
            ended = await workplace.exec(command)
            return observe(ended, seconds, self._plan.limits.output_kb)
        finally:
            usage = Usage() if ended is None else ended.usage
            took = usage.active_seconds or usage.wall_seconds or time.monotonic() - begun
            self._left_seconds -= took


async def _solution(workplace: Workplace) -> bytes | None:
    try:
        return await workplace.read_file(SOLUTION)
    except (FileMissing, FileRefused):
        return None


async def _stop(workplace: Workplace) -> None:
    try:
        await workplace.stop()
    except Exception:  # the ttl ends the sandbox later; the trajectory stays valid
        log.exception("a sandbox was not stopped", extra={"sandbox_id": workplace.id})
