"""Calls of a submission's functions: send each result, or the exception in its place (`script.py`)."""

from __future__ import annotations

import time
import types
from typing import Any

from ..codec import values
from .channel import LOADED, Channel
from .script import Left, exit_code, explain, flush_all, leave, load_job

_NO_KEYWORDS = ["d"]
_CLASS = "Solution"
IS_JSON = "json"
"""Last part of a call with arguments and keywords in plain JSON instead of the codec's."""
_LONG_LOAD_SECONDS = 0.02
_monotonic = time.monotonic


def run_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Load the program, make the job's calls, and end the process."""
    answer_calls(channel, job)
    leave(0)


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Send `["loaded"]`, the result of each call, and `["done"]`; fewer if the program exits.

    The calls come in sequence, each after the result of the previous call. A call is `[target, arguments,
    keywords]`, or `[target, arguments, keywords, IS_JSON]` for plain JSON. A call `[target]` keeps the
    object named by its target: the number of this call is the target of later calls.
    """
    # Before the program: a failure of Proctor's decoder is no verdict.
    call: Any = _decoded(channel.receive() or b"")
    begun = _monotonic()
    try:
        namespace = load_job(channel, job)
    except Left:
        return
    for statement in job.get("imports", ()):
        try:
            exec(statement, namespace)
        except BaseException:
            continue  # tests that need this import fail by themselves
    if job.get("says_loaded") or _monotonic() - begun > _LONG_LOAD_SECONDS:
        channel.send(LOADED)
    # Sent together with the first result: each message costs the service one event loop turn.
    unsent = values.dumps(["loaded"])
    results: dict[int, Any] = {}
    for index in range(job["count"]):
        if index:
            channel.send(unsent)
            unsent = b""
            received = channel.receive()
            if received is None:
                return
            call = received
        answer, goes_on = _answer(index, call, namespace, results, bool(job.get("plain_arrays")))
        unsent += answer
        if not goes_on:
            channel.send(unsent)
            return
    flush_all()
    channel.send(unsent + values.dumps(["done"]))


def _decoded(line: bytes) -> list[Any]:
    """Return the target of a call, and its decoded arguments.

    No decoder for a call without keywords: each function run for the first time costs a sandbox pages.
    """
    call: list[Any] = values.loads(line)
    target, *arguments = call
    if arguments and arguments[-1] == IS_JSON:
        return call[:-1]
    return [target, *[values.decode(part) if part != _NO_KEYWORDS else {} for part in arguments]]


def _answer(
    index: int,
    call: Any,
    namespace: dict[str, Any],
    results: dict[int, Any],
    plain_arrays: bool,
) -> tuple[bytes, bool]:
    """Return the line that answers a call, and False if the program ended itself."""
    try:
        target, *arguments = call if type(call) is list else _decoded(call)
        callee = callee_of(target, namespace, results)
        if arguments:
            args, kwargs = arguments
            result = callee(*args, **kwargs)
        else:
            results[index], result = callee, None
        encoder = values.Encoder()
        encoder.plain_arrays = plain_arrays
        encoder.ordered_sets = False
        return values.dumps(["value", index, encoder.encode(result)]), True
    except SystemExit as error:
        return values.dumps(["exit", index, exit_code(error)]), False
    except (values.ValueTooLarge, values.ValueTooDeep) as error:
        return values.dumps(["raised", index, "ValueError", str(error), "", []]), True
    except Exception as error:
        return values.dumps(["raised", index, *explain(error)]), True
    except BaseException as error:
        return values.dumps(["ended", index, explain(error)[0]]), False


def callee_of(target: Any, namespace: dict[str, Any], results: dict[int, Any]) -> Any:
    """Return the object to call. Raises NameError for a name missing in the program.

    `target` is the name of a function, `""` for the last function of the program,
    `[class, arguments, keywords, method]` for a method of a new object, `[class, method]` for a method of
    the class itself, `[name]` for `either`, or the number of a kept object.
    """
    if type(target) is list:
        if len(target) == 1:
            return either(target[0], namespace)
        owner = callee_of(target[0], namespace, results)
        if len(target) > 2:
            owner = owner(*values.decode(target[1]), **values.decode(target[2]))
        return getattr(owner, target[-1])
    if target == "":
        return last_function(namespace)
    table: dict[Any, Any] = results if type(target) is int else namespace
    if target not in table:
        raise NameError(f"name {target!r} is not defined")
    return table[target]


def either(name: str, namespace: dict[str, Any]) -> Any:
    """Return a function that calls the method of a new `Solution()` each time, or else the function.

    The checkers of APPS, PRIME and LiveCodeBench choose so: beside a method, a function of the same name
    is a helper or an import (`gcd`, `search`). Raises NameError.
    """
    cls: Any = namespace.get(_CLASS)
    if hasattr(cls, name):
        return lambda *args, **kwargs: getattr(cls(), name)(*args, **kwargs)
    return callee_of(name, namespace, {})


def last_function(namespace: dict[str, Any]) -> Any:
    """Return the last function of a program. Raises NameError for a program without functions."""
    path = namespace.get("__file__")
    own = [
        value
        for value in namespace.values()
        if type(value) is types.FunctionType and value.__code__.co_filename == path
    ]
    if not own:
        raise NameError("the program defines no function")
    return max(own, key=lambda function: function.__code__.co_firstlineno)
