"""Verifier of a task's author: run its `verify`, and send the score.

The submission runs in other sandboxes. The verifier's handle asks the service to run the submission or to
call a function, in sequence, and only data comes back. Lines to the service:

`["unusable", text]`               the source does not load, or has no `verify` to call
`!loaded`                          it has; from here on a failure may be the submission's doing
`["run", {stdin, argv, files}]`    answered with `["ran", {…}]`, and the bytes of both outputs behind it
`["call", n, call]`                in the interpreter of handle `n`, answered with `["value", i, value]`;
                                   the call is one of `function_calls.py`
`!close n`                         handle `n` is not used any more
`["score", {…}]`, `["stopped", {…}]`, `["failed", {…}]`   the end: a score, a SubmissionError, an exception
`["invalid", {…}]`                 the end, too: an InvalidTask

In place of an answer comes `["error", verdict, message, type]`.
"""

from __future__ import annotations

import inspect
import linecache
import math
import numbers
import os
import sys
import threading
import traceback
import types
from typing import Any

from ..codec import values
from . import script, work_files
from .channel import LOADED, Channel

_FILE = "verifier.py"
_INPUTS = ("submission", "completion", "code", "prompt", "params")
_MOST_CHARACTERS = 2000
_MOST_NAME_CHARACTERS = 200
_MOST_FAILURES = 10
_MOST_TESTS = 100_000
_METHOD = "()"
NO_ANSWER = "what the program sent is no answer"
FORGED, OBJECT_FOR_DATA = "forged_result", "object_for_data"
NEEDS_DATA = "the submission returned an object; a verifier takes data alone"
_OBJECT_MARK = b'["h",'
"""In an encoding, the beginning of an object; a quote inside of a text has a backslash before."""


class SubmissionError(Exception):
    """The submission raised an exception, lacks the function, or has ended.

    `verdict`: of a verifier leaving this error uncaught. `type`: name of the class of an exception of the
    submission.
    """

    def __init__(self, verdict: str, message: str, type: str = "") -> None:
        super().__init__(message)
        self.verdict = verdict
        self.message = message
        self.type = type


class InvalidTask(Exception):
    """The task is wrong, for any completion: for a verifier to raise, for example for its `params`.

    A verifier may raise a class of its own with this name.
    """


class Unusable(Exception):
    """The verifier itself is broken; the message says how."""


class Finished:
    """A finished run of the submission.

    `ending`: `exited`, `signalled`, `cpu_limit`, `wall_limit`, `memory_limit` or `output_limit`.
    """

    __slots__ = ("cpu_seconds", "ending", "exit_code", "stderr", "stdout")

    def __init__(self, facts: dict[str, Any], stdout: bytes, stderr: bytes) -> None:
        self.stdout = stdout.decode("utf-8", "replace")
        self.stderr = stderr.decode("utf-8", "replace")
        self.exit_code: int | None = facts["exit_code"]
        self.ending: str = facts["ending"]
        self.cpu_seconds: float = facts["cpu_seconds"]

    def __repr__(self) -> str:
        return f"<{self.ending} {self.exit_code}: {self.stdout[:60]!r}>"


class _Connection:
    """Requests of all handles, in sequence. `signals`: hack signals of the answers so far."""

    def __init__(self, channel: Channel) -> None:
        self.signals: set[str] = set()
        self._channel = channel
        self._lock = threading.Lock()
        self._dropped: list[int] = []
        self._handles = 0

    def next_handle(self) -> int:
        """Return the number of another handle."""
        self._handles += 1
        return self._handles - 1

    def run(self, line: bytes) -> Finished:
        """Return the finished run requested by this line."""
        with self._lock:
            frame = self._answer_to(line)
            if type(frame) is not list or frame[0] != "ran":
                raise self._error(frame)
            facts = frame[1]
            stdout, stderr = (self._bytes(size) for size in facts["sizes"])
        return Finished(facts, stdout, stderr)

    def call(self, line: bytes) -> Any:
        """Return the value returned by a call."""
        with self._lock:
            frame = self._answer_to(line)
        if type(frame) is not list or len(frame) != 3 or frame[0] != "value":
            raise self._error(frame)
        decoder = values.Decoder()
        decoder.takes_data_alone = True
        try:
            return decoder.decode(frame[2])
        except values.NotData:
            self.signals.add(OBJECT_FOR_DATA)
            raise SubmissionError("failed", NEEDS_DATA) from None
        except values.Malformed:
            raise self._no_answer() from None

    def drop(self, handle: int) -> None:
        """Note an unused handle; the next request reports the handle.

        Takes no lock: the collector may call `drop` in the midst of a request.
        """
        self._dropped.append(handle)

    def _answer_to(self, line: bytes) -> Any:
        while self._dropped:
            self._channel.send(b"!close %d\n" % self._dropped.pop())
        self._channel.send(line)
        received = self._channel.receive()
        if received is None:
            os._exit(0)  # the service needs no score any more
        try:
            return values.loads(received)
        except values.Malformed:
            return None

    def _bytes(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._channel.read(size - len(data))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)

    def _error(self, frame: Any) -> SubmissionError:
        if type(frame) is list and len(frame) == 4 and frame[0] == "error":
            return SubmissionError(*frame[1:])
        return self._no_answer()

    def _no_answer(self) -> SubmissionError:
        self.signals.add(FORGED)
        return SubmissionError("failed", NO_ANSWER)


class Submission:
    """Handle of a verifier to the submission. Not copied by `copy` or into other processes."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._handle = connection.next_handle()
        self._called = False

    def run(self, stdin: str = "", argv: Any = (), files: dict[str, str] | None = None) -> Finished:
        """Run the submission as a program, in a fresh sandbox. `files`: text by path.

        Raises SubmissionError for compile errors, or without time left.
        """
        if not isinstance(stdin, str) or not all(isinstance(each, str) for each in argv):
            raise TypeError("run takes a stdin and an argv of text")
        files = dict(files or {})
        if not all(isinstance(each, str) for pair in files.items() for each in pair):
            raise TypeError("run takes files of text by path")
        job = {"stdin": stdin, "argv": list(argv), "files": files}
        return self._connection.run(values.dumps(["run", job]))

    def call(self, function: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function, `f`, `Solution().f` or `Solution.f`, in the interpreter of this handle.

        Arguments and the result are data. Raises SubmissionError.
        """
        call = [target_of(function), values.encode(list(args)), values.encode(kwargs)]
        line = values.dumps(["call", self._handle, call])
        if _OBJECT_MARK in line:
            _check_data(call[1:])
        self._called = True
        return self._connection.call(line)

    def fresh(self) -> Submission:
        """Return another handle; its interpreter starts with its first call."""
        return Submission(self._connection)

    def close(self) -> None:
        """End the interpreter of this handle; its next call raises SubmissionError."""
        if self._called:
            self._called = False
            self._connection.drop(self._handle)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Submission:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_data(wires: list[Any]) -> None:
    """Raise TypeError for objects as arguments."""
    decoder = values.Decoder()
    decoder.takes_data_alone = True
    try:
        for wire in wires:
            decoder.decode(wire)
    except values.NotData as error:
        raise TypeError(f"an argument of call is no data: {error}") from None


def target_of(function: str) -> Any:
    """Return the target of a call of `f`, `Solution().f` or `Solution.f`. Raises ValueError.

    See `function_calls.py`.
    """
    owner, dot, name = function.rpartition(".")
    cls = owner[: -len(_METHOD)] if owner.endswith(_METHOD) else owner
    if not name.isidentifier() or (dot and not cls.isidentifier()):
        raise ValueError(f"{function[:100]!r} is not f, Solution().f or Solution.f")
    if not dot:
        return name
    return [cls, name] if cls == owner else [cls, ["l"], ["d"], name]


def run_verifier(channel: Channel, job: dict[str, Any]) -> None:
    """Load the source, call its `verify`, and send the score."""
    work_files.write_files(job.get("files") or {})
    script.find_files(os.getcwd())
    connection = _Connection(channel)
    inputs = {**job["inputs"], "submission": Submission(connection)}
    channel.began()
    try:
        verify = _loaded(job["source"])
        arguments = _arguments(verify, inputs)
    except Unusable as error:
        channel.send(values.dumps(["unusable", str(error)[-_MOST_CHARACTERS:]]))
        script.leave(1)
    del job, inputs
    channel.send(LOADED)
    content: dict[str, Any]
    try:
        kind, content = "score", score_of(verify(**arguments))
    except SubmissionError as error:
        kind, content = "stopped", {"verdict": str(error.verdict), "message": _cut(error.message)}
    except BaseException as error:
        kind, content = "failed", {"message": _described(error)}
        if type(error).__name__ == InvalidTask.__name__:
            kind, content = "invalid", {"message": _cut(error)}
    content["signals"] = sorted(connection.signals)
    channel.send(values.dumps([kind, content]))
    script.leave(0)


def _loaded(source: str) -> Any:
    """Run the source as the module `verifier`, and return its `verify`. Raises Unusable."""
    module = types.ModuleType("verifier")
    path = os.path.join(os.getcwd(), _FILE)
    module.__dict__.update(__file__=path, SubmissionError=SubmissionError, InvalidTask=InvalidTask)
    sys.modules["verifier"] = module
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    try:
        exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        raise Unusable(f"it does not load: {_described(error)}") from None
    verify = module.__dict__.get("verify")
    if not callable(verify):
        raise Unusable("it defines no function verify")
    return verify


def _arguments(verify: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs taken by `verify`, by the names of its parameters. Raises Unusable."""
    try:
        parameters = inspect.signature(verify).parameters.values()
    except (TypeError, ValueError) as error:
        raise Unusable(f"verify: {error}") from None
    found = {}
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            return inputs
        if each.name in inputs and each.kind is not each.POSITIONAL_ONLY:
            found[each.name] = inputs[each.name]
        elif each.default is each.empty and each.kind is not each.VAR_POSITIONAL:
            names = ", ".join(_INPUTS)
            raise Unusable(f"verify takes {each.name!r}, and not only: {names}")
    return found


def score_of(returned: Any) -> dict[str, Any]:
    """Return the parts of a verifier's return value. Raises TypeError, ValueError and KeyError."""
    if not isinstance(returned, dict):
        return {"score": _number(returned), "message": ""}
    unknown = set(returned) - {"score", "message", "tests"}
    if unknown:
        raise ValueError(f"a verifier returned a dict with {sorted(map(str, unknown))[0]!r}")
    message = returned.get("message") or ""
    if not isinstance(message, str):
        raise TypeError("the message of a verifier is no text")
    found = {"score": _number(returned.get("score")), "message": _cut(message)}
    if returned.get("tests") is not None:
        found["tests"] = _counted(returned["tests"])
    return found


def _number(score: Any) -> float:
    if isinstance(score, types.CoroutineType):
        score.close()
    score = _plain(score)
    if not isinstance(score, numbers.Real):
        raise TypeError(f"a verifier returned no score: {type(score).__name__}")
    number = float(score)
    if math.isnan(number) or not 0 <= number <= 1:
        raise ValueError(f"a verifier returned the score {number}")
    return number


def _plain(value: Any) -> Any:
    """Return a truth value of numpy as Python's, and any other value unchanged."""
    is_numpy = type(value) is not bool and type(value).__name__ in ("bool", "bool_")
    return value.item() if is_numpy else value


def _counted(tests: Any) -> dict[str, Any]:
    """Return the number of tests, and the first failed ones as [place, name, message]."""
    if not isinstance(tests, (list, tuple)) or len(tests) > _MOST_TESTS:
        raise TypeError(f"the tests of a verifier are no list of at most {_MOST_TESTS}")
    failures: list[list[Any]] = []
    passed = 0
    for place, test in enumerate(tests):
        if not isinstance(test, dict):
            raise TypeError("a test of a verifier is no dict")
        name, message = test.get("name", f"test {place}"), test.get("message") or ""
        if not isinstance(name, str) or not isinstance(message, str):
            raise TypeError("a test of a verifier has a name or a message that is no text")
        has_passed = _plain(test["passed"])
        if type(has_passed) is not bool:
            raise TypeError("a test of a verifier has not passed, and has not failed")
        passed += has_passed
        if not has_passed and len(failures) < _MOST_FAILURES:
            failures.append([place, name[:_MOST_NAME_CHARACTERS], _cut(message)])
    return {"passed": passed, "total": len(tests), "failures": failures}


def _cut(text: Any) -> str:
    return str(text)[:_MOST_CHARACTERS]


def _described(error: BaseException) -> str:
    """Return the end of a traceback, from the verifier's own frames on."""
    entry = error.__traceback__
    while entry is not None and not entry.tb_frame.f_code.co_filename.endswith(_FILE):
        entry = entry.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, entry, limit=-12))
    except Exception:
        text = type(error).__name__
    return text[-_MOST_CHARACTERS:]
