"""Observations: texts with a command's result for the policy, as in the service's own agent.

A text is cut to a budget of characters. The end is kept, because a traceback names its error there.
"""

from __future__ import annotations

from proctor_client import wire

_STATUS = {
    "memory_limit": "Error: command used more memory than it may",
    "output_limit": "Error: command wrote more output than it may",
    "signalled": "Error: command died of a signal",
}


def observe(result: wire.ExecResult, timeout_seconds: float, characters: int) -> str:
    """Return the end state and the output of a command, in at most `characters`."""
    output = result.stdout
    if result.stderr:
        between = "" if not output or output.endswith("\n") else "\n"
        output = f"{output}{between}[stderr]\n{result.stderr}"
    status = _status(result, timeout_seconds)
    if result.truncated:
        status = f"{status}\n[the output was longer than what is kept]".lstrip()
    if not status:
        return tail(output, characters) or "(no output)"
    rest = tail(output, characters - len(status) - 1)
    return f"{status}\n{rest}" if rest else status


def tail(text: str, characters: int) -> str:
    """Return the end of a text, after a marker with the number of missing characters."""
    if len(text) <= characters:
        return text
    tail_characters = characters - len(_marker(len(text)))
    return (
        _marker(len(text) - tail_characters) + text[-tail_characters:]
        if tail_characters > 0
        else ""
    )


def _marker(characters: int) -> str:
    return f"[… {characters} characters cut …]\n"


def _status(result: wire.ExecResult, timeout_seconds: float) -> str:
    if result.ending in ("cpu_limit", "wall_limit"):
        return f"Error: command timed out after {timeout_seconds:g} seconds"
    if result.ending != "exited":
        return _STATUS.get(result.ending, f"Error: command ended by {result.ending}")
    return f"Exit code: {result.exit_code}" if result.exit_code else ""
