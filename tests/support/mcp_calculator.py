"""An MCP server of the `mcp` package, as a program: it writes its port and serves until it is ended.

Arguments: `json` or `sse`, the form of its answers, and the token that it wants.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer


def main(form: str, token: str) -> None:
    """Serve."""
    server = MCPServer("calculator", log_level="ERROR")
    total: dict[str, int] = {}

    def add(numbers: list[int], note: str = "") -> int:
        """Add numbers to the total."""
        total["sum"] = total.get("sum", 0) + sum(numbers)
        return total["sum"]

    def divide(a: int, b: int) -> float:
        """Divide a by b."""
        return a / b

    server.add_tool(add)
    server.add_tool(divide)
    app = server.streamable_http_app(json_response=form == "json")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and given != f"Bearer {token}":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": given.encode()})
            return
        await app(scope, receive, send)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(listening.getsockname()[1], flush=True)
        settings = uvicorn.Config(guarded, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(settings).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
