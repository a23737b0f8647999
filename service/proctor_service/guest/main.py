"""The first thing that runs in a locked-down sandbox: reads its job, and becomes it.

python, calls   the submission, then calls of its functions      script.run_calls
python, script  the submission, to its end                       script.run_script
python, serve   the submission, then requests of the tests       submission_server.serve
tests           test code, which asks the submission elsewhere   test_runner.judge_tests
command         another program                                  command.run_command
compile         a compiler                                       command.compile_program
pytest          pytest beside the submission                     pytest_run.run_pytest
shared          test code beside the submission                 shared_run.run_shared
session         many commands, one after the other or at once    session.run_session
state           files first, which follow; then another job      state.restore
"""

import gc
import linecache
import socket
import sys
import traceback
from typing import Any

from ..codec import values
from . import command, script, work_files
from .channel import Channel
from .rpc import submission_server, test_runner
from .same_process import main as shared_run
from .same_process import pytest_run
from .session import main as session
from .session import snapshot_restore

_MOST_OF_A_TRACEBACK = 8000
_format_exc = traceback.format_exc


def main(descriptor: int) -> None:
    """Never returns normally in a sandbox: each kind of job ends the process itself.

    Says `["unfit", why]` when the submission's files cannot be put in place, and `["broken",
    traceback]` when a runner of ours fails.
    """
    channel = Channel(descriptor)
    try:
        _take_job(channel)
        return
    except work_files.Unfit as unfit:
        line = ["unfit", str(unfit)]
    except MemoryError:  # whoever set the limit, or brought so much
        line = ["unfit", "there is too little memory"]
    except BaseException:
        # Ours where it is the first line. After the submission began, it may be the cause.
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
    kind = job.pop("kind")
    _KINDS[kind](channel, job)


def warm_up(rounds: int = 16) -> None:
    """Goes the way of a small job a few times, in a working directory that can be written.

    CPython writes into code objects until they have run often enough; each such write in a sandbox
    copies a page. After this, the usual way is settled in the memory that sandboxes are forked from.
    """
    before = sys.argv, sys.orig_argv, list(sys.path), sys.modules["__main__"], dict(linecache.cache)
    source = "def f(x):\n    return x\n"
    calls = [["f", ["l", number, "a", 0.5, ["l"]], ["d"]] for number in range(3)]
    line = values.dumps({"kind": "python", "mode": "calls", "source": source, "calls": calls})
    for _ in range(rounds):
        judge, ours = socket.socketpair()
        with judge, ours:
            judge.sendall(line)
            channel = Channel(ours.fileno())
            job = values.loads(channel.receive() or b"")
            job.pop("kind")
            script.prepare(job)
            script.answer_calls(channel, job)
    sys.argv, sys.orig_argv, sys.path[:], sys.modules["__main__"] = before[:4]
    sys.modules.pop("solution", None)
    linecache.cache.clear()
    linecache.cache.update(before[4])


def _python(channel: Channel, job: dict[str, Any]) -> None:
    script.prepare(job)
    mode = job["mode"]
    if mode == "calls":
        script.run_calls(channel, job)
    elif mode == "script":
        script.run_script(channel, job)
    else:
        _serve(channel, job)


def _serve(channel: Channel, job: dict[str, Any]) -> None:
    try:
        namespace = script.load_job(channel, job)
    except script.Left:
        script.leave(0)
    channel.send(values.dumps(["loaded"]))
    submission_server.serve(channel, namespace)
    script.leave(0)


def _state(channel: Channel, job: dict[str, Any]) -> None:
    snapshot_restore.restore(channel, job["size_bytes"])
    _take_job(channel)


def _tests(channel: Channel, job: dict[str, Any]) -> None:
    test_runner.judge_tests(channel, job)
    script.leave(0)


_KINDS = {
    "python": _python,
    "tests": _tests,
    "command": command.run_command,
    "compile": command.compile_program,
    "pytest": pytest_run.run_pytest,
    "shared": shared_run.run_shared,
    "state": _state,
    "session": session.run_session,
}
