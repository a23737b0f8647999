"""Runner for pytest in the submission's interpreter; reports each test when the test ends.

Tests and submission share an interpreter, so this grader is `in_process`. These measures limit
tampering. Before the submission can be imported, pytest is loaded, the code that runs tests is
recorded (`tamper_check.py`), and the grader's files are compiled (`test_files.py`). Outcomes are
taken at the call of the test function, independent of pytest's reports. Only the grader's own files
configure the run. Every report after the start begins with a secret word.

Send the start of the submission, then `["collected", n]`, `["test", name, outcome, hint, text]` for
each test, and `["finished", end, status]`. The hint contains no data from a test. Other lines:
`["unusable", reason]` before anything else if the grader's files are at fault,
`["syntax", reason]`, `["broken", hint, text]` for a file with a failed collection, `["left"]` after
an early end of pytest, `["patched", name]`, and `["lied"]` for an object that claims to equal every
value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ...codec import values
from .. import origins, script, unittest_runs, work_files
from ..channel import BEGAN, Channel
from . import comparison_policy, test_files
from .pytest_reporter import SETTINGS, configures, files_to_collect, make_reporter

_TEXT = 2000


def run_pytest(channel: Channel, job: dict[str, Any]) -> None:
    """Run the tests and end the process."""
    say = speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import unittest.mock  # loaded first: tests may import unittest.mock after the submission ran

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
    _remove_conftests(tests)
    directory = os.getcwd()
    sys.argv = ["pytest"]
    rewriter = sys.modules["_pytest.assertion.rewrite"]
    whose = origins.Origins(
        lambda code, namespace: files.ran(namespace),
        os.path.dirname(directory) + "/",
        (globals(), vars(comparison_policy), vars(test_files), vars(unittest_runs)),
    )
    protect_skips = comparison_policy.Comparing(lambda: say("lied"), whose, tests.values())
    files = test_files.Files(tests, directory, rewriter.rewrite_asserts, protect_skips)
    broken = files.broken(files_to_collect(tests))
    if broken is not None:
        unusable(channel, broken)
    protect_skips.into_unittest(unittest.TestCase)
    unittest_runs.guard_skips(whose)
    sys.meta_path.insert(0, files)
    reporter = make_reporter(say, tests, files, whose, lambda: _begin(channel, say, source))
    options = [*_options(directory, tests), *files_to_collect(tests)]
    # While the tests run, no name leads to the secret word that proves the end.
    finish(say, job.pop("end"), _main(pytest.main, channel, files, reporter, options))


def _begin(channel: Channel, say: Callable[..., None], source: str | None) -> None:
    """Send the start of the submission; end the process after a syntax error."""
    channel.send(BEGAN)
    try:
        compile(source or "", "solution.py", "exec", dont_inherit=True)
    except script.UNCOMPILABLE as error:
        say("syntax", script.describe(error))
        script.leave(1)


def _main(
    main: Callable[..., int],
    channel: Channel,
    files: test_files.Files,
    reporter: Any,
    options: list[str],
) -> int:
    """Run pytest and return its exit status; an early failure is the grader's fault.

    Early means before the submission can be imported.
    """
    try:
        status = int(main(options, plugins=[reporter]))
    except BaseException as error:
        if not reporter.began and files.raised(error):
            unusable(channel, f"{type(error).__name__}: {script.describe(error)}")
        raise
    if not reporter.began:
        unusable(channel, f"pytest ended with code {status} before it collected anything")
    return status


def unusable(channel: Channel, why: str) -> NoReturn:
    """Report that the grader's files are at fault, and end the process."""
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


def _remove_conftests(tests: dict[str, str]) -> None:
    """Remove conftest.py files where pytest looks for them, except the grader's own."""
    folders = {""}
    for path in tests:
        while path := path.rpartition("/")[0]:
            folders.add(f"{path}/")
    for folder in folders:
        if f"{folder}conftest.py" not in tests:
            work_files.remove(f"{folder}conftest.py")


def _options(directory: str, tests: dict[str, str]) -> list[str]:
    settings = next((name for name in SETTINGS if name in tests), "/dev/null")
    places = ["--rootdir", directory, "--confcutdir", directory, "-c", settings]
    # The files are already rewritten; pytest's own rewriting reads caches beside the files.
    return ["-q", "-p", "no:cacheprovider", "--color=no", "--assert=plain", *places]
