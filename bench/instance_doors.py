"""The three ways to judge a change of a repository: a completion, a sandbox's state, a rollout."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Door = Callable[[httpx.Client, Mapping[str, Any], str], dict[str, Any]]


def apply_command(change: str) -> str:
    """A command of a shell that makes the change, as an agent's edits would."""
    text = base64.b64encode(change.encode()).decode()
    return f"echo {text} | base64 -d > /tmp/.change && git apply /tmp/.change && rm /tmp/.change"


def by_reward(client: httpx.Client, fields: Mapping[str, Any], change: str) -> dict[str, Any]:
    """A completion with the diff."""
    item = {"completion": f"The fix:\n```diff\n{change}```\n"}
    body = {"submissions": [item], "cache": False, "deadline_seconds": 1700, **fields}
    answer = client.post("/reward", json=body).json()
    result: dict[str, Any] = answer["results"][0] if "results" in answer else answer
    return result


def by_sandbox(client: httpx.Client, fields: Mapping[str, Any], change: str) -> dict[str, Any]:
    """The state of a sandbox after the change."""
    body = {"repository" if name == "grader" else name: value for name, value in fields.items()}
    made = client.post("/sandboxes", json=body).json()
    place = f"/sandboxes/{made['id']}"
    try:
        command = ["bash", "-c", apply_command(change)]
        ended = client.post(f"{place}/exec", json={"command": command}).json()
        if ended["exit_code"] != 0:
            return {"reward": None, "message": json.dumps(ended)[:600]}
        body = {"grader": fields["grader"]}
        result: dict[str, Any] = client.post(f"{place}/grade", json=body).json()
        return result
    finally:
        client.delete(place)


def by_rollout(client: httpx.Client, fields: Mapping[str, Any], change: str) -> dict[str, Any]:
    """A trajectory of a policy that makes the change by one command."""
    with scripted_policy(apply_command(change)) as url:
        own = {name: value for name, value in fields.items() if name != "limits"}
        body = {
            "tasks": [{"id": "t", "prompt": "Repair it.", **own}],
            "limits": fields["limits"],
            "policy": {"base_url": url, "model": "policy"},
            "agent": {"kind": "tools", "tools": ["bash"]},
            "deadline_seconds": 1700,
        }
        answer = client.post("/rollout", json=body).json()
    if "trajectories" not in answer:
        return {"reward": None, "message": json.dumps(answer)[:600]}
    trajectory: dict[str, Any] = answer["trajectories"][0]
    return trajectory


DOORS: Mapping[str, Door] = {"reward": by_reward, "sandbox": by_sandbox, "rollout": by_rollout}


@contextmanager
def scripted_policy(command: str) -> Iterator[str]:
    """A chat endpoint that asks for one command and then says that it is done."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_first = all(each["role"] != "assistant" for each in asked["messages"])
            function = {"name": "bash", "arguments": json.dumps({"command": command})}
            call = {"id": "call_0", "type": "function", "function": function}
            message = {"role": "assistant", "content": None if is_first else "Done."}
            more = {"tool_calls": [call]} if is_first else {}
            choice = {
                "index": 0,
                "finish_reason": "tool_calls" if is_first else "stop",
                "message": {**message, **more},
            }
            body = {"id": "1", "object": "chat.completion", "created": 1, "model": "policy"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            data = json.dumps({**body, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
