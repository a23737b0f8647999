"""A service with the default settings has imported what it judges with, and nothing for rarer uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import forget_settings

LISTENING = """
import json, sys
import proctor_service.http.server

async def print_modules(server):
    print(json.dumps(sorted(sys.modules)), flush=True)
    server.should_exit = True

proctor_service.http.server.Server.main_loop = print_modules
sys.argv = ["proctor", "serve", "--port", "0", "--allow-degraded"]
from proctor_service.__main__ import main
main()
"""
RARER = {
    "alembic", "cwsandbox", "datasets", "grpc", "jinja2", "matplotlib", "mcp", "numpy", "openai",
    "opentelemetry.sdk", "psycopg", "redis", "proctor_client.client", "sqlalchemy",
}  # fmt: skip


def test_a_service_has_imported_nothing_for_rarer_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_settings(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = [sys.executable, "-c", LISTENING]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    modules = set(json.loads(ended.stdout))
    assert "proctor_service.judge.judge" in modules
    assert modules & RARER == set()
