"""Calls of a submission's functions: send each result, or the exception in its place (`script.py`)."""

from __future__ import annotations

import sys
import types
from typing import Any

from ..codec import values
from .channel import Channel
from .script import Left, exit_code, explain, flush_all, leave, load_job


def run_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Load the program, make the job's calls, and end the process."""
    answer_calls(channel, job)
    leave(0)


def answer_calls(channel: Channel, job: dict[str, Any]) -> None:
    """Send `["loaded"]`, the result of each call, and `["done"]`; fewer if the program exits.

    A call is `[target, arguments, keywords]`. A call `[target]` keeps the object that its target
    names: the number of this call is the target of later calls.
    """
    decoded = [[values.decode(part) for part in call[1:]] for call in job["calls"]]
    try:
        namespace = load_job(channel, job)
    except Left:
        return
    for statement in job.get("imports", ()):
        try:
            exec(statement, namespace)
        except BaseException:
            continue  # tests that need this import fail by themselves
    # Lines between which no code of the submission runs are sent together, since each message costs
    # the service one event loop turn.
    unsent = values.dumps(["loaded"])
    last = len(decoded) - 1
    plain_arrays = bool(job.get("plain_arrays"))
    kept: dict[int, Any] = {}
    for index, given in enumerate(decoded):
        try:
            callee = _callee(job["calls"][index][0], namespace, kept)
            if given:
                result = callee(*given[0], **given[1])
            else:
                kept[index], result = callee, None
            encoder = values.Encoder()
            encoder.plain_arrays = plain_arrays
            encoder.ordered_sets = False
            line = values.dumps(["value", index, encoder.encode(result)])
        except SystemExit as error:
            channel.send(unsent + values.dumps(["exit", index, exit_code(error)]))
            return
        except (values.ValueTooLarge, values.ValueTooDeep) as error:
            line = values.dumps(["raised", index, "ValueError", str(error), "", []])
        except BaseException as error:
            line = values.dumps(["raised", index, *explain(error)])
        unsent += line
        if index < last:
            channel.send(unsent)
            unsent = b""
    flush_all()
    channel.send(unsent + values.dumps(["done"]))


def _callee(name: Any, namespace: dict[str, Any], kept: dict[int, Any]) -> Any:
    """Return the object to call.

    `name` is the name of a function, `""` for the last function that the program defines,
    `[class, arguments, keywords, method]` for a method of a new object, or the number of a kept
    object.
    """
    if type(name) is int:
        if name not in kept:
            raise NameError("the object could not be made")
        return kept[name]
    if type(name) is list:
        cls, args, kwargs, method = name
        made = _callee(cls, namespace, kept)(*values.decode(args), **values.decode(kwargs))
        return getattr(made, method)
    if name == "":
        return last_function(namespace)
    if name not in namespace:
        builtin = getattr(sys.modules["builtins"], name, None)
        if builtin is None:
            raise NameError(f"name {name!r} is not defined")
        return builtin
    return namespace[name]


def last_function(namespace: dict[str, Any]) -> Any:
    """Return the last function that a program defines. Raises NameError if there is none."""
    path = namespace.get("__file__")
    own = [
        value
        for value in namespace.values()
        if type(value) is types.FunctionType and value.__code__.co_filename == path
    ]
    if not own:
        raise NameError("the program defines no function")
    return max(own, key=lambda function: function.__code__.co_firstlineno)
