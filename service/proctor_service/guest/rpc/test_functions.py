"""Local proxies of the tests' functions, with the same names and parameters."""

from __future__ import annotations

from typing import Any


def local_function(side: Any, reference: Any, info: dict[str, Any]) -> Any:
    """Make a function that calls a function of the tests, with the same name and parameters."""
    request = side.connection.request

    def call(args: Any, kwargs: Any) -> Any:
        return request("call", reference, args, tuple(kwargs.items()))

    function = _with_parameters(call, info.get("p"), bool(info.get("async")))
    function.__name__ = function.__qualname__ = str(info.get("name"))
    function.__module__ = "__main__"
    return function


_MISSING = object()


def _with_parameters(call: Any, parameters: Any, is_async: bool) -> Any:
    """Make a function with these parameters; omitted arguments are omitted in the call, too."""

    def plain(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    async def later(*args: Any, **kwargs: Any) -> Any:
        return await call(args, kwargs)

    if is_async:
        return later
    names = [part[0] for part in parameters or ()]
    if parameters is None or not all(name.isidentifier() for name in names):
        return plain
    written, given, named, starred, keywords = [], [], [], "()", "{}"
    for place, (name, kind, optional) in enumerate(parameters):
        default = "=__missing__" if optional else ""
        if kind == 2:
            written.append("*" + name)
            starred = name
        elif kind == 4:
            written.append("**" + name)
            keywords = name
        elif kind == 3:
            if "*" not in "".join(part[0] for part in written):
                written.append("*")
            written.append(name + default)
            named.append(f"({name!r}, {name})")
        else:
            written.append(name + default)
            given.append(name)
            if kind == 0 and (place + 1 == len(parameters) or parameters[place + 1][1] != 0):
                written.append("/")
    text = (
        f"lambda {', '.join(written)}: __call__(__given__(({''.join(n + ',' for n in given)}), {starred}), "
        f"__named__(({''.join(n + ',' for n in named)}), {keywords}))"
    )
    scope = {"__call__": call, "__missing__": _MISSING, "__given__": _given, "__named__": _named}
    return eval(text, scope)


def _given(args: Any, rest: Any) -> Any:
    return (*(each for each in args if each is not _MISSING), *rest)


def _named(pairs: Any, rest: Any) -> Any:
    return {**{name: value for name, value in pairs if value is not _MISSING}, **rest}
