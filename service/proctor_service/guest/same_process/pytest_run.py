"""Runner for pytest in the submission's interpreter; reports each test when the test ends.

Tests and submission share an interpreter, so this grader is `in_process`, and pytest runs as ever. The
grader's files go over the submission's, and are put back before each is collected. Only the
grader's own files configure the run. Every report after the start begins with a secret word.

Send the start of the submission, then `["collected", n]`, `["test", name, outcome, hint, text]` for
each test, and `["finished", end, status]`. The hint contains no data from a test. Other lines:
`["unusable", reason]` before anything else if the grader's files are at fault,
`["syntax", reason]`, `["broken", hint, text]` for a file with a failed collection, and `["left"]`
after an early end of pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES
from typing import Any, NoReturn

from ...codec import values
from .. import script, work_files
from ..channel import Channel
from .pytest_reporter import SETTINGS, configures, files_to_collect, make_reporter

_TEXT = 2000
_COMPILED = (*EXTENSION_SUFFIXES, *BYTECODE_SUFFIXES)


def run_pytest(channel: Channel, job: dict[str, Any]) -> None:
    """Run the tests and end the process."""
    say = speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import unittest.mock  # noqa: F401  before the submission's files can be found

    try:
        import pytest
    except (ImportError, SyntaxError) as error:  # the service's own is too new for this interpreter
        python = ".".join(map(str, sys.version_info[:2]))
        unusable(channel, f"the environment has no pytest for its Python {python}: {error}")

    source, tests = job["source"], job["tests"]
    own = {path: text for path, text in job["files"].items() if not configures(path)}
    if source is not None:
        own = {"solution.py": source, **own}
    work_files.write_files({**own, **tests})
    _clear_folders({*tests, *(() if source is None else ("solution.py",))})
    _check(channel, tests)
    directory = os.getcwd()
    sys.argv = ["pytest"]
    reporter = make_reporter(say, tests, lambda: _begin(channel, say, source))
    options = [*_options(directory, tests), *files_to_collect(tests)]
    if any("-p" in tests.get(name, "") for name in SETTINGS):  # a plugin may import the submission
        reporter.start()
    # While the tests run, no name leads to the secret word that proves the end.
    finish(say, job.pop("end"), _main(pytest.main, channel, reporter, options))


def _check(channel: Channel, tests: dict[str, str]) -> None:
    """Report the first test file or conftest.py with invalid Python, and end the process."""
    conftests = [name for name in tests if os.path.basename(name) == "conftest.py"]
    for name in [*conftests, *(path[2:] for path in files_to_collect(tests))]:
        try:
            compile(tests[name], name, "exec", dont_inherit=True)
        except script.UNCOMPILABLE as error:
            unusable(channel, f"{os.path.basename(name)}: {type(error).__name__}: {error}")


def _begin(channel: Channel, say: Callable[..., None], source: str | None) -> None:
    """Send the start of the submission; end the process after a syntax error."""
    channel.began()
    try:
        compile(source or "", "solution.py", "exec", dont_inherit=True)
    except script.UNCOMPILABLE as error:
        say("syntax", script.describe(error))
        script.leave(1)


def _main(main: Callable[..., int], channel: Channel, reporter: Any, options: list[str]) -> int:
    """Run pytest and return its exit status; an end before the submission is the grader's fault."""
    try:
        status = int(main(options, plugins=[reporter]))
    except Exception as error:  # of a plugin of the grader
        if not reporter.began:
            raise
        reporter.tell_broken(error)
        return 1
    if not reporter.began:
        unusable(channel, f"pytest ended with code {status} before it collected anything")
    return status


def unusable(channel: Channel, why: str) -> NoReturn:
    """Report faulty files of the grader, and end the process."""
    channel.send(values.dumps(["unusable", why[:_TEXT]]))
    script.leave(1)


def finish(say: Callable[..., None], end: str, status: int) -> NoReturn:
    """Report the end of the run, and end the process."""
    say("finished", end, status)
    script.leave(status)


def speaker(send: Callable[[bytes], None], word: str) -> Callable[..., None]:
    """Return a function that sends a line with the secret word on the channel."""
    dumps = values.dumps
    return lambda *parts: send(dumps([word, *parts]))


def _clear_folders(files: set[str]) -> None:
    """Remove stand-ins for these files, and conftest.py files of other origin.

    Stand-ins, in the folders of the files, are bytecode, and packages and extension modules with the name
    of a file.
    """
    folders = {""}
    for path in files:
        while path := path.rpartition("/")[0]:
            folders.add(f"{path}/")
    for folder in folders:
        for name in _names_in(folder or "."):
            path, stem = folder + name, folder + name.partition(".")[0]
            if path in files or any(each.startswith(f"{path}/") for each in files):
                continue
            is_package = os.path.isdir(path) and any(
                each.startswith("__init__.") for each in _names_in(path)
            )
            replaces = f"{stem}.py" in files and (is_package or name.endswith(_COMPILED))
            if replaces or name in ("__pycache__", "conftest.py"):
                work_files.remove(path)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except PermissionError:  # an agent has shut it: no import finds anything there
        return []


def _options(directory: str, tests: dict[str, str]) -> list[str]:
    settings = next((name for name in SETTINGS if name in tests), os.devnull)
    places = ["--rootdir", directory, "--confcutdir", directory, "-c", settings]
    return ["-q", "-p", "no:cacheprovider", "--color=no", *places]
