"""Custom tools of an agent: a JSON schema, and a command in the trajectory's sandbox.

The command is an argv and gets the arguments as a JSON object on stdin, so no text of the policy is
ever interpreted by a shell. Arguments that break the schema become an error that the policy reads.
"""

from __future__ import annotations

import json

from proctor_client.wire import CustomTool, ToolsAgent
from proctor_service.errors import InvalidRequest
from proctor_service.rollout.json_schema import TooLarge, schema_problem, violation
from proctor_service.rollout.reply import ToolCall, strict_json
from proctor_service.rollout.tools import BadCall, CommandCall
from proctor_service.rollout.trajectory import JsonObject

MOST_ARGUMENT_BYTES = 1 << 18
MOST_SCHEMA_BYTES = 1 << 15


def check_custom_tools(agent: ToolsAgent, where: str) -> None:
    """Raise InvalidRequest, naming the field, for tools that cannot be offered or run."""
    if not agent.tools and not agent.custom_tools:
        raise InvalidRequest(f"{where}.tools: an agent has at least one")
    for number, tool in enumerate(agent.custom_tools):
        at = f"{where}.custom_tools.{number}"
        if not tool.command[0] or any("\0" in each for each in tool.command):
            raise InvalidRequest(f"{at}.command: an argv with a program, without NUL characters")
        parameters, at = tool.function.parameters, f"{at}.function.parameters"
        if len(json.dumps(parameters)) > MOST_SCHEMA_BYTES:
            raise InvalidRequest(f"{at}: longer than {MOST_SCHEMA_BYTES >> 10} KB")
        if parameters.get("type") != "object":
            raise InvalidRequest(f"{at}.type: must be 'object'")
        problem = schema_problem(parameters, at)
        if problem:
            raise InvalidRequest(problem)


def custom_schema(tool: CustomTool) -> JsonObject:
    """Return the tool in the format of OpenAI's API."""
    return {"type": "function", "function": tool.function.model_dump(exclude_none=True)}


def command_call(call: ToolCall, tool: CustomTool) -> CommandCall:
    """Return the command of a call, with its arguments. Raises BadCall."""
    name = tool.function.name
    if len(call.arguments) > MOST_ARGUMENT_BYTES:
        limit = f"{MOST_ARGUMENT_BYTES >> 10} KB"
        raise BadCall(f"the arguments of {name} are longer than {limit}")
    try:
        values = strict_json(call.arguments or "{}")
        broken = violation(values, tool.function.parameters)
        stdin = json.dumps(values, allow_nan=False).encode()
    except TooLarge:
        raise BadCall(f"the arguments of {name} are too large") from None
    except (ValueError, RecursionError) as error:
        raise BadCall(f"the arguments of {name} are not JSON: {str(error)[:200]}") from None
    if broken:
        raise BadCall(f"{name}: {broken[:1000]}")
    return CommandCall(tuple(tool.command), stdin)
