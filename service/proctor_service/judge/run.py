"""One program in one fresh sandbox: what it said, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from proctor_service.judge import verdict as verdicts
from proctor_service.judge.submission import Judgement, Submission
from proctor_service.sandbox.interface import Backend, Ended, Job, Limits


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run: the lines on the channel, the ending, and the sandbox's name."""

    lines: tuple[bytes, ...]
    ended: Ended
    sandbox_id: str

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


async def run(backend: Backend, job: bytes, limits: Limits, keep_stdout_bytes: int = 0) -> Run:
    """Runs one job to its end. Raises SandboxUnavailable and SandboxLost."""
    async with backend.lease(limits) as sandbox:
        sandbox.begin(Job(job, limits, keep_stdout_bytes))
        ended = await sandbox.ended()
        lines = []
        while (line := await sandbox.receive()) is not None:
            lines.append(line)
        return Run(tuple(lines), ended, sandbox.id)


def with_files(submission: Submission, name: str, more: Mapping[str, str]) -> dict[str, str]:
    """The submission's files, its own source under `name`, and the grader's files over both."""
    return {**submission.files, name: submission.source, **more}
