"""Observations for a policy: results of tool calls, and feedback on failed attempts.

Texts are cut to a budget of characters. The cut keeps the end, since a traceback names the error at
its end, and a marker states the number of missing characters.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from proctor_service.errors import SandboxLost
from proctor_service.judge.submission import Judgement
from proctor_service.sandbox.interface import Ended

_ESCAPED_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Observation:
    """Status of a call in words, and its output. `failed`: the call ran and failed."""

    status: str
    output: str = ""
    failed: bool = False

    def text(self, budget: int) -> str:
        """Return status and output in at most `budget` characters; the output is cut first."""
        status = self.status[:budget]
        if not status:
            return tail(self.output, budget)
        rest = tail(self.output, budget - len(status) - 1)
        return f"{status}\n{rest}" if rest else status


def tail(text: str, budget: int) -> str:
    """Return the end of a text in at most `budget` characters, after a marker with the cut size."""
    if len(text) <= budget:
        return text
    # The real marker is at most as long as this one, since its number is smaller.
    longest = len(_marker(len(text)))
    if budget <= longest:
        return ""
    end = text[longest - budget :]
    return _marker(len(text) - len(end)) + end


def _marker(characters: int) -> str:
    return f"[… {characters} characters cut …]\n"


def text_of(data: bytes) -> str:
    """Decode bytes, with invalid UTF-8 escaped at the end and replaced elsewhere.

    Escaping is slow, and only the end may be shown.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        first, last = data[:-_ESCAPED_BYTES], data[-_ESCAPED_BYTES:]
        return first.decode("utf-8", "replace") + last.decode("utf-8", "backslashreplace")


def observe(ended: Ended, timeout_seconds: float, output_kb: int) -> Observation:
    """Return the observation of a command. Raises SandboxLost if the backend ended the command."""
    stdout, stderr = text_of(ended.stdout), text_of(ended.stderr)
    status = _status(ended, timeout_seconds)
    output = stdout
    if stderr:
        between = "" if not stdout or stdout.endswith("\n") else "\n"
        output = f"{stdout}{between}[stderr]\n{stderr}"
    failed = bool(status)
    if ended.truncated:
        status = f"{status}\n[only the first {output_kb} KB of each stream are kept]".lstrip()
    if not status and not output:
        status = "(no output)"
    return Observation(status, output, failed)


def _status(ended: Ended, timeout_seconds: float) -> str:
    match ended.ending:
        case "cpu_limit" | "wall_limit":
            return f"Error: command timed out after {timeout_seconds:g} seconds"
        case "memory_limit":
            return "Error: command used more memory than it may"
        case "output_limit":
            return "Error: command wrote more output than it may"
        case "killed":
            raise SandboxLost("a command was ended from outside")
    if ended.signal is not None:
        return f"Error: command died of {_signal_name(ended.signal)}"
    return f"Exit code: {ended.exit_code}" if ended.exit_code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def feedback(judgement: Judgement, budget: int) -> str:
    """Return the feedback on a failed attempt.

    The text contains an expected value only if the judge's message contains the value, in which
    case the grader reveals it.
    """
    how = judgement.verdict.replace("_", " ")
    head = "The program failed the tests" if how == "failed" else f"The program failed: {how}"
    foot = "Fix it and answer with the whole program."
    lines = [judgement.message] if judgement.message else []
    lines += [f"{each.test}: {each.message}" for each in judgement.failures]
    room = budget - len(head) - len(foot) - 4
    stderr = judgement.stderr.strip()
    if stderr:
        # At most half: a flood of errors must leave space for the judge's message.
        stderr = "stderr:\n" + tail(stderr, room // 2)
        room -= len(stderr) + 1
    output = tail("\n".join(lines), room)
    return "\n".join(part for part in (f"{head}.", output, stderr, foot) if part)
