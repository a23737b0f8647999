"""Commands import what they use: the packages in `sys.modules` decide how long a start takes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from command_line import forget_settings

from proctor_service.cli import COMMANDS, load

LARGE = {
    "alembic", "cwsandbox", "datasets", "fastapi", "grpc", "httpx", "jinja2", "matplotlib", "mcp",
    "numpy", "openai", "opentelemetry.sdk", "pandas", "proctor_client.client", "proctor_service.app",
    "proctor_service.settings", "psycopg", "redis", "rich", "sqlalchemy",
    "uvicorn",
}  # fmt: skip
RUN = """
import json, sys
sys.argv = ["proctor", *{arguments!r}]
from proctor_service.cli import build
try:
    build()(prog_name="proctor")
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_settings(monkeypatch)


def modules_after(program: str) -> set[str]:
    """The modules that a program has imported, from the last line of its output."""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--version"], set()),
        (["serve", "--help"], {"rich"}),
        (["env", "list", "--help"], {"rich"}),
        (["demo", "--help"], {"rich", "httpx", "proctor_client.client"}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
def test_a_command_imports_what_it_uses(arguments: list[str], needed: set[str]) -> None:
    assert modules_after(RUN.format(arguments=arguments)) & LARGE <= needed


@pytest.mark.parametrize("name", [name for name in COMMANDS if " " not in name])
def test_the_list_of_commands_has_the_help_of_each(name: str) -> None:
    command = COMMANDS[name]
    assert load(name).help.partition("\n\n")[0] == command.help
