"""Tools for a policy. TRL describes them to the policy by their docstrings and types.

Tools return errors as text. Only a call with wrong arguments raises, and TRL reports the call to
the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from proctor_trainers.observations import tail
from proctor_trainers.trl.environment import Environment

Tool = Literal["execute_code", "bash", "read_file", "write_file", "submit_solution"]

SOLUTION = "solution.py"


class Toolbox(Environment):
    """An environment with all tools."""

    def execute_code(self, code: str) -> str:
        """
        Run Python code in the sandbox and get what it prints. Files stay from call to call; variables do not.

        Args:
            code: The Python code.
        """
        return self._act(lambda: self._run(code=code), code)

    def bash(self, command: str) -> str:
        """
        Run a shell command in the sandbox's working directory and get what it prints.

        Args:
            command: The command.
        """
        if isinstance(command, str) and "\0" in command:
            return "Error: a command cannot hold a NUL character"
        return self._act(lambda: self._run(["bash", "-c", command]), command)

    def read_file(self, path: str) -> str:
        """
        Read a text file of the sandbox.

        Args:
            path: Relative to the working directory, or absolute.
        """

        def read() -> str:
            data = self._do(lambda sandbox: sandbox.read_file(path))
            text = data.decode("utf-8", "backslashreplace")
            return tail(text, self._rules.observation_characters) or "(it is empty)"

        return self._act(read, path)

    def write_file(self, path: str, content: str) -> str:
        """
        Write a whole text file in the sandbox, in place of one that is there.

        Args:
            path: Relative to the working directory, or absolute.
            content: The whole text of the file.
        """

        def write() -> str:
            self._do(lambda sandbox: sandbox.write_file(path, content))
            return f"Wrote {len(content.encode())} bytes."

        return self._act(write, path, content)

    def submit_solution(self, code: str) -> str:
        """
        Submit the final solution. It is graded, and the task ends: it can be called once.

        Args:
            code: The whole program, which must stand by itself.
        """

        def submit() -> str:
            program = unfenced(code)
            self._do(lambda sandbox: sandbox.write_file(SOLUTION, program))
            self._is_submitted = True
            return "Submitted."

        return self._act(submit, code)


def environment_class(name: str, tools: Sequence[Tool]) -> type[Environment]:
    """Return an environment class with these tools, logged by TRL as `name`. Raises ValueError."""
    unknown = [tool for tool in tools if tool not in get_args(Tool)]
    if unknown or not tools:
        wrong = f"there is no {', '.join(unknown)}" if unknown else "none is named"
        raise ValueError(f"tools: {wrong}, only: {', '.join(get_args(Tool))}")
    return type(name, (Environment,), {tool: vars(Toolbox)[tool] for tool in tools})


def unfenced(code: str) -> str:
    """Return the submitted program without enclosing code fences."""
    first, _, rest = code.strip().partition("\n")
    if first.startswith("```") and rest.endswith("```"):
        return rest[:-3]
    return code
