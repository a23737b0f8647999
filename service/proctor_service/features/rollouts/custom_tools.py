"""Custom tools of an agent: a JSON schema, and a command in the trajectory's sandbox.

The command is an argv and gets the arguments as a JSON object on stdin, so the policy's texts are
safe from a shell. Arguments outside of the schema become an error for the policy.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from proctor_client.wire import CustomTool, ToolsAgent
from proctor_service.errors import InvalidRequest
from proctor_service.features.rollouts.json_schema import TooLarge, schema_problem, violation
from proctor_service.features.rollouts.mcp import McpTool, offered_name
from proctor_service.features.rollouts.reply import ToolCall
from proctor_service.features.rollouts.tools import BadCall, CommandCall, RemoteCall
from proctor_service.http.json import STRICT
from proctor_service.outcomes import JsonObject

MOST_ARGUMENT_BYTES = 1 << 18
MOST_SCHEMA_BYTES = 1 << 15


def check_tools(agent: ToolsAgent, mcp_servers: Collection[str], where: str) -> None:
    """Raise InvalidRequest, with the field's name, for tools unfit to be offered or run.

    `mcp_servers`: names of the servers listed by the service.
    """
    if not (agent.tools or agent.custom_tools or agent.mcp_servers):
        raise InvalidRequest(f"{where}.tools: an agent has at least one")
    for number, name in enumerate(agent.mcp_servers):
        if name not in mcp_servers:
            names = ", ".join(mcp_servers) or "none"
            at = f"{where}.mcp_servers.{number}"
            raise InvalidRequest(f"{at}: PROCTOR_MCP_SERVERS has no {name[:100]!r}, only: {names}")
    for number, tool in enumerate(agent.custom_tools):
        at = f"{where}.custom_tools.{number}"
        if not tool.command[0] or any("\0" in each for each in tool.command):
            raise InvalidRequest(f"{at}.command: an argv with a program, without NUL characters")
        for name in agent.mcp_servers:
            if tool.function.name.startswith(offered_name(name, "")):
                raise InvalidRequest(f"{at}.function.name: reserved for the MCP server {name}")
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
    values = _arguments(call, tool.function.parameters)
    return CommandCall(tuple(tool.command), json.dumps(values).encode())


def remote_call(call: ToolCall, tool: McpTool) -> RemoteCall:
    """Return the call of an MCP server's tool. Raises BadCall."""
    values = _arguments(call, tool.parameters)
    return RemoteCall(lambda seconds: tool.session.call(tool.name, values, seconds))


def _arguments(call: ToolCall, parameters: JsonObject | None) -> JsonObject:
    """Return the arguments of a call, which fit the schema if any. Raises BadCall."""
    name = call.name
    if len(call.arguments) > MOST_ARGUMENT_BYTES:
        limit = f"{MOST_ARGUMENT_BYTES >> 10} KB"
        raise BadCall(f"the arguments of {name} are longer than {limit}")
    try:
        values = STRICT.decode(call.arguments or "{}")
        broken = violation(values, {"type": "object"}) or violation(values, parameters or {})
        json.dumps(values, allow_nan=False)  # 1e999 is read as an infinity
    except TooLarge:
        raise BadCall(f"the arguments of {name} are too large") from None
    except (ValueError, RecursionError) as error:
        raise BadCall(f"the arguments of {name} are not JSON: {str(error)[:200]}") from None
    if broken:
        raise BadCall(f"{name}: {broken[:1000]}")
    found: JsonObject = values
    return found
