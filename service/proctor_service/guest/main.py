"""Entry point of a locked-down sandbox: read the job and run its kind.

python, calls   load the submission, then call its functions     function_calls.run_calls
python, script  run the submission to its end                    script.run_script
python, tested  run the submission, then its tests               script.run_tested
python, serve   load the submission, then answer the tests       submission_side.serve
tests           run test code; the submission runs elsewhere     suite_runner.judge_tests
command         run another program                              command.run_command
compile         run a compiler                                   command.compile_program
pytest          run pytest in the submission's interpreter       pytest_run.run_pytest
shared          run test code in the submission's interpreter    shared_run.run_shared
verify          run a verifier; the submission runs elsewhere     verification.run_verifier
session         run many commands, in sequence or concurrently   session.run_session
state           restore a snapshot, then run another job         file_operations.restore

A script or a command may be `interactive`: its stdin and stdout are pipes to the service (interaction.py).
"""

from __future__ import annotations

import gc
import linecache
import socket
import sys
import traceback
from typing import Any

from ..codec import values
from . import command, function_calls, interaction, script, verification, work_files
from .channel import Channel
from .same_process import main as shared_run
from .same_process import pytest_run
from .separated import submission_side, suite_runner
from .session import file_operations
from .session import main as session

_MOST_OF_A_TRACEBACK = 8000
_MOST_OF_A_REASON = 2000
_format_exc = traceback.format_exc


def main(descriptor: int) -> None:
    """Run the job from the channel; each kind of job ends the process itself.

    Send `["unfit", reason]` when the submission's files cannot be written, and
    `["broken", traceback]` when Proctor's own code fails.
    """
    channel = Channel(descriptor)
    try:
        _take_job(channel)
        return
    except work_files.Unfit as unfit:
        line = ["unfit", str(unfit)[:_MOST_OF_A_REASON]]
    except MemoryError:  # the memory limit is too low, or the files are too large
        line = ["unfit", "there is too little memory"]
    except BaseException:
        # A failure of Proctor if this is the first line. Later, the submission may be the cause.
        line = ["broken", _format_exc()[-_MOST_OF_A_TRACEBACK:]]
    channel.send(values.dumps(line))
    script.leave(1)


def _take_job(channel: Channel) -> None:
    line = channel.receive()
    if line is None:
        return
    job = values.loads(line)
    del line
    gc.collect(0)
    path = job.pop("output_file", None)
    if path is not None:
        command.run_for_file(channel, path, lambda: _run(channel, job))
    if job.pop("interactive", False):
        interaction.run_interactive(channel, job, _run)
    _run(channel, job)


def _run(channel: Channel, job: dict[str, Any]) -> None:
    kind = job.pop("kind")
    _KINDS[kind](channel, job)


def warm_up(rounds: int = 16) -> None:
    """Rehearse a job `rounds` times, in a writable working directory.

    CPython writes into code objects until they have run often enough, and each write in a sandbox
    copies a page. After the warm-up, the usual code paths are settled in the memory of the zygote.
    """
    before = sys.argv, sys.orig_argv, list(sys.path), sys.modules["__main__"], dict(linecache.cache)
    for _ in range(rounds):
        rehearse()
    sys.argv, sys.orig_argv, sys.path[:], sys.modules["__main__"] = before[:4]
    sys.modules.pop("solution", None)
    linecache.cache.clear()
    linecache.cache.update(before[4])


def rehearse() -> bytes:
    """Run a small job in this process, and return its answers: three values and an exception."""
    source = "def f(x):\n    return x\n"
    calls = [["f", ["l", ["l", number, "a", 0.5, True]], ["d"]] for number in range(3)]
    calls.append(["f", ["l"], ["d"]])
    job = {"kind": "python", "mode": "calls", "source": source, "count": len(calls)}
    judge, ours = socket.socketpair()
    with judge, ours:
        judge.sendall(b"".join(map(values.dumps, (job, *calls))))
        channel = Channel(ours.fileno())
        job = values.loads(channel.receive() or b"")
        job.pop("kind")
        script.prepare(job)
        function_calls.answer_calls(channel, job)
        return judge.recv(1 << 16)


def _python(channel: Channel, job: dict[str, Any]) -> None:
    script.prepare(job)
    if "binaries" in job:
        command.place_binaries(channel, job)
    mode = job["mode"]
    if mode == "calls":
        function_calls.run_calls(channel, job)
    elif mode == "script":
        script.run_script(channel, job)
    elif mode == "tested":
        script.run_tested(channel, job)
    else:
        _serve(channel, job)


def _serve(channel: Channel, job: dict[str, Any]) -> None:
    try:
        namespace = script.load_job(channel, job)
    except script.Left:
        script.leave(0)
    channel.send(values.dumps(["loaded"]))
    submission_side.serve(channel, namespace, job.get("records", []))
    script.leave(0)


def _state(channel: Channel, job: dict[str, Any]) -> None:
    file_operations.restore(channel, job["size_bytes"])
    _take_job(channel)


def _tests(channel: Channel, job: dict[str, Any]) -> None:
    script.find_files()
    suite_runner.judge_tests(channel, job)
    script.leave(0)


_KINDS = {
    "python": _python,
    "tests": _tests,
    "command": command.run_command,
    "compile": command.compile_program,
    "pytest": pytest_run.run_pytest,
    "shared": shared_run.run_shared,
    "state": _state,
    "verify": verification.run_verifier,
    "session": session.run_session,
}
