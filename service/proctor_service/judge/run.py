"""One program in one fresh sandbox: what it said, and how it ended.

A submission's state goes into each of its sandboxes before the program. Where it cannot be put in place
that is a verdict, since only the agent that left it can be the cause: an error would be a way out of a
bad reward. So that no honest state is in this case, there is always more room for it than it takes up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proctor_service.errors import InvalidTask
from proctor_service.inside.channel import BEGAN
from proctor_service.inside.values import Malformed, loads
from proctor_service.judge import verdict as verdicts
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Ended, Job, Limits, Sandbox

_BEGAN = BEGAN.rstrip(b"\n")
_ROOM_STEP_MB = 64  # so that sandboxes with a state come in few sizes
_MOST_PADDING_BYTES = 64 << 20  # a page for each of the files that a sandbox may hold
_LONGER_AT_MOST = 8  # a file's header in the archive, in the page that the file takes up


class RunnerFailed(Exception):
    """A runner of ours failed in a sandbox before anything of the submission ran. Its traceback."""


class Unfit(Exception):
    """The submission's files could not be put in place. Carries the judgement that this is."""

    def __init__(self, judgement: Judgement) -> None:
        super().__init__(judgement.message)
        self.judgement = judgement


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: the lines on the channel, the ending, and the sandbox's name."""

    lines: tuple[bytes, ...]
    ended: Ended
    sandbox_id: str
    fault: str = ""
    """The traceback of a runner that failed after the submission began; the submission may forge it."""

    def how_it_ended(self) -> str:
        """What to log of an end without a report; no text of the submission."""
        ended = self.ended
        last = (
            self.lines[-1][:12].partition(b",")[0].decode("ascii", "replace") if self.lines else ""
        )
        failed = self.fault.rstrip().rpartition("\n")[2].partition(":")[0][:100]
        return (
            f"{ended.ending}, code {ended.exit_code}, signal {ended.signal}, "
            f"{len(self.lines)} lines, the last {last or 'none'}"
            + (f", runner failed: {failed}" if failed else "")
        )

    def judgement(self, verdict: str, **more: object) -> Judgement:
        """A judgement that carries this run's output, usage and exit code."""
        ended = self.ended
        fields: dict[str, object] = {
            "stdout": verdicts.text_of(ended.stdout),
            "stderr": verdicts.text_of(ended.stderr),
            "truncated": ended.truncated,
            "exit_code": ended.exit_code,
            "usage": ended.usage,
            "sandbox_id": self.sandbox_id,
            **more,
        }
        return Judgement(verdict=verdict, **fields)  # type: ignore[arg-type]


def message(kind: str, **fields: object) -> bytes:
    """The line that tells a sandbox its job."""
    return json.dumps({"kind": kind, **fields}).encode("ascii") + b"\n"


def python_message(submission: Submission, mode: str, **fields: object) -> bytes:
    """The job of running a Python submission: `calls`, `script` or `serve`."""
    return message(
        "python",
        mode=mode,
        source=submission.source,
        files=dict(submission.files),
        **fields,
    )


def calls_message(submission: Submission, calls_json: str, imports: Sequence[str]) -> bytes:
    """The job of calling a Python submission: the calls are JSON already."""
    line = python_message(submission, "calls", imports=imports)
    return line[:-2] + b', "calls": ' + calls_json.encode("ascii") + b"}\n"


def room_for(limits: Limits, state: bytes | None) -> Limits:
    """The limits of a sandbox that gets this state: as much more disk as the state may take up."""
    if not state:
        return limits
    size = len(state)
    unpacked = size + min(size * _LONGER_AT_MOST, _MOST_PADDING_BYTES)
    steps = math.ceil(unpacked / (_ROOM_STEP_MB << 20))
    return replace(limits, disk_mb=limits.disk_mb + steps * _ROOM_STEP_MB)


def begin(sandbox: Sandbox, job: Job, state: bytes | None) -> None:
    """Starts a program of the submission's, after its state is in place."""
    if not state:
        sandbox.begin(job)
        return
    sandbox.begin(replace(job, message=message("state", size_bytes=len(state))))
    sandbox.send(state)
    sandbox.send(job.message)


async def run(
    backend: Backend,
    job: bytes,
    limits: Limits,
    keep_stdout_bytes: int = 0,
    state: bytes | None = None,
    says_began: bool = True,
) -> Run:
    """Runs one job to its end. Raises SandboxUnavailable and SandboxLost; Unfit, InvalidTask and
    RunnerFailed (`settle`).

    `says_began`: whether the job's runner says when the submission begins; a command's does not.
    """
    async with backend.lease(room_for(limits, state)) as sandbox:
        begin(sandbox, Job(job, limits, keep_stdout_bytes), state)
        ended = await sandbox.ended()
        lines = []
        while (line := await sandbox.receive()) is not None:
            lines.append(line)
        finished = Run(tuple(lines), ended, sandbox.id)
    return settle(finished, says_began=says_began)


async def opening(sandbox: Sandbox) -> tuple[bytes, ...]:
    """The first line, and the one after it if the first says that the submission began."""
    first = await sandbox.receive()
    second = await sandbox.receive() if first == _BEGAN else None
    return tuple(line for line in (first, second) if line is not None)


def settle(finished: Run, *, says_began: bool = True) -> Run:
    """The run without the lines that tell when the submission began, and that a runner failed after it.

    Raises Unfit when the submission's files could not be put in place, InvalidTask when the grader's
    cannot be used, and RunnerFailed when a runner failed before the submission began. Only the first
    line can say so: nothing else is said before it.
    """
    lines = finished.lines
    if lines and lines[0] == _BEGAN:
        fault = _text_of(lines[-1], b'["broken",')
        return replace(
            finished, lines=lines[1:] if fault is None else lines[1:-1], fault=fault or ""
        )
    why = _text_of(lines[0], b'["unfit",') if lines else None
    if why is not None:
        text = f"its files could not be put in place: {why}"[:2000]
        raise Unfit(finished.judgement("runtime_error", message=text))
    why = _text_of(lines[0], b'["unusable",') if lines else None
    if why is not None:
        stderr = verdicts.text_of(finished.ended.stderr)[-1000:].strip()
        raise InvalidTask(f"the tests cannot be run: {why}{stderr and chr(10)}{stderr}")
    fault = _text_of(lines[0], b'["broken",') if lines else None
    if fault is not None:
        raise RunnerFailed(f"before the submission began:\n{fault}")
    if says_began and finished.ended.ending in ("exited", "signalled"):
        how = finished.how_it_ended()
        raise RunnerFailed(f"the sandbox ended before the submission began: {how}")
    return finished


def _text_of(line: bytes, beginning: bytes) -> str | None:
    """The text of a line of two words, if it begins so."""
    if not line.startswith(beginning):
        return None
    try:
        _, text = loads(line)
    except (Malformed, ValueError):
        return None
    return str(text)


def with_files(submission: Submission, name: str) -> dict[str, str]:
    """The submission's files, and its source under `name`; or what its state has there."""
    files = dict(submission.files)
    if submission.source or submission.state is None:
        files[name] = submission.source
    return files
