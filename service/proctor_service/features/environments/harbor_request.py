"""Checks of a Harbor task's verifier in a request."""

from __future__ import annotations

from proctor_client.wire import Agent, Grader, HarborGrader, ToolsAgent
from proctor_service.errors import InvalidRequest
from proctor_service.rewards.machine import Machine, check_files
from proctor_service.settings.environments import DEFAULT


def check_verifier(machine: Machine, grader: Grader, environment: str, where: str) -> None:
    """Check a verifier for an environment; other graders pass. Raises InvalidRequest."""
    if not isinstance(grader, HarborGrader):
        return
    if environment == DEFAULT or machine.environments[environment].image is None:
        raise InvalidRequest(f"{where}: harbor needs an environment with an image")
    check_files({**grader.tests, **grader.binary_tests}, f"{where}.tests")
    ceiling = machine.settings.max_wall_seconds
    if not grader.timeout_seconds <= ceiling:
        asked = grader.timeout_seconds
        raise InvalidRequest(f"{where}.timeout_seconds: {asked} is above this server's {ceiling}")


def check_agent(agent: Agent, grader: Grader, where: str) -> None:
    """Check that an agent leaves files for a verifier to judge. Raises InvalidRequest."""
    if isinstance(grader, HarborGrader) and not (
        isinstance(agent, ToolsAgent) and "submit_solution" not in agent.tools
    ):
        raise InvalidRequest(
            f"{where}: harbor judges what an agent leaves in its sandbox: the agent must be of the "
            "kind tools, without submit_solution"
        )
