"""Runs pytest on the grader's files beside the submission, and reports each test as it ends.

Tests and submission share an interpreter here, which is why this grader is `in_process`. What can be
done about it: pytest is loaded, what runs a test is noted (`harness.py`), and the grader's files are
compiled (`testfiles.py`), before anything can be imported from where the submission may write; outcomes
are taken where the test function is called, not from pytest's reports; only the grader's own files
configure the run; and every line carries a word that nothing else knows.

Says that the submission begins, then `["collected", n]`, `["test", name, outcome, hint, text]` for
each, `["finished", end, status]`. Of the two texts, the hint holds nothing that comes from a test.
Instead, or in between: `["unusable", why]` before anything else where the grader's files are at fault,
`["syntax", why]`, `["broken", hint, text]` for a file that can't be collected, `["left"]` when something
ended pytest, `["patched", what]`, and `["lied"]` where an object said that it equals whatever it is
compared with.
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
    """Runs the tests and ends the process."""
    say = speaker(channel.send, job.pop("word"))
    sys.path.extend(job["tools"])
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import unittest.mock  # tests may, after the submission did

    import pytest

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
    protect_skips = comparison_policy.Comparing(
        lambda: say("lied"),
        whose,
        mocks=test_files.speak_of("mock", tests.values()),
        numpy=test_files.speak_of("numpy", tests.values()),
    )
    files = test_files.Files(tests, directory, rewriter.rewrite_asserts, protect_skips)
    broken = files.broken(files_to_collect(tests))
    if broken is not None:
        unusable(channel, broken)
    protect_skips.into_unittest(unittest.TestCase)
    unittest_runs.guard_skips(whose)
    sys.meta_path.insert(0, files)
    reporter = make_reporter(say, tests, files, whose, lambda: _begin(channel, say, source))
    options = [*_options(directory, tests), *files_to_collect(tests)]
    # While the tests run, the word that proves their end has no name that leads to it.
    finish(say, job.pop("end"), _main(pytest.main, channel, files, reporter, options))


def _begin(channel: Channel, say: Callable[..., None], source: str | None) -> None:
    """Says that the submission begins; ends the process where it is no Python."""
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
    """pytest's exit status. What stops it before the submission can be imported is the grader's fault."""
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
    """Says that the grader's files are at fault, and ends the process."""
    channel.send(values.dumps(["unusable", why[:_TEXT]]))
    script.leave(1)


def finish(say: Callable[..., None], end: str, status: int) -> NoReturn:
    """Says that the runner came to its end, and ends the process."""
    say("finished", end, status)
    script.leave(status)


def speaker(send: Callable[[bytes], None], word: str) -> Callable[..., None]:
    """Return a function that says a line on the channel, with the word that nothing else knows."""
    dumps = values.dumps
    return lambda *parts: send(dumps([word, *parts]))


def _remove_conftests(tests: dict[str, str]) -> None:
    """Where pytest would look for them; those of the grader stay."""
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
    # The files were rewritten already; pytest's own way to do it looks for caches beside them.
    return ["-q", "-p", "no:cacheprovider", "--color=no", "--assert=plain", *places]
