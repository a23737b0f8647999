"""The first thing that runs in a locked-down sandbox: reads its job, and becomes it.

python, calls   the submission, then calls of its functions      script.run_calls
python, script  the submission, to its end                       script.run_script
python, serve   the submission, then questions of the tests      room.serve
tests           test code, which asks the submission elsewhere   room.judge_tests
command         another program                                  command.run_command
compile         a compiler                                       command.compile_program
pytest          pytest beside the submission                     pytest_run.run_pytest
"""

import gc
from typing import Any

from . import command, pytest_run, room, script, values
from .channel import Channel


def main(descriptor: int) -> None:
    """Never returns normally in a sandbox: each kind of job ends the process itself."""
    channel = Channel(descriptor)
    line = channel.receive()
    if line is None:
        return
    job = values.loads(line)
    del line
    gc.collect(0)
    kind = job.pop("kind")
    _KINDS[kind](channel, job)


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
        namespace = script.load(channel, job)
    except script.Left:
        script.leave(0)
    channel.send(values.dumps(["loaded"]))
    room.serve(channel, namespace)
    script.leave(0)


def _tests(channel: Channel, job: dict[str, Any]) -> None:
    room.judge_tests(channel, job)
    script.leave(0)


_KINDS = {
    "python": _python,
    "tests": _tests,
    "command": command.run_command,
    "compile": command.compile_program,
    "pytest": pytest_run.run_pytest,
}
