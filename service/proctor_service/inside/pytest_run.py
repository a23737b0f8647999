"""Runs pytest on the grader's files beside the submission, and reports each test as it ends.

Outcomes are taken where the test function is called, not from pytest's reports, which a submission
in the same process can rewrite; what it can do beyond that is why this grader is `in_process`.
"""

import os
import sys
from typing import Any

from . import script, values
from .channel import Channel


def run_pytest(channel: Channel, job: dict[str, Any]) -> None:
    """Says `["collected", n]`, `["test", name, outcome, message]` for each, `["finished", status]`."""
    script.write_files({"solution.py": job["source"]})
    script.write_files(job.get("files") or {})
    script.write_files(job["tests"])
    directory = os.getcwd()
    sys.path.insert(0, directory)
    sys.path.extend(job["tools"])
    sys.argv = ["pytest"]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    reporter = _make_reporter(channel)
    files = sorted(path for path in job["tests"] if path.endswith(".py") and _is_test(path))
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", directory, "--color=no"]
    status = int(pytest.main([*options, *(files or ["."])], plugins=[reporter]))
    channel.send(values.dumps(["finished", status]))
    script.leave(status)


def _is_test(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("test_") or name.endswith("_test.py")


def _make_reporter(channel: Channel) -> object:
    import pytest

    send, dumps, explain = channel.send, values.dumps, script.explain
    excused = ("skip", "skipif", "xfail")

    class Reporter:
        def pytest_collection_finish(self, session: Any) -> None:
            send(dumps(["collected", len(session.items)]))

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_setup(self, item: Any) -> Any:
            outcome = yield
            if outcome.excinfo is not None:
                self.tell(item, outcome.excinfo[1])

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item: Any) -> Any:
            outcome = yield
            self.tell(item, outcome.excinfo[1] if outcome.excinfo is not None else None)

        def tell(self, item: Any, error: BaseException | None) -> None:
            result = "passed" if error is None else "failed"
            if error is not None and any(item.get_closest_marker(name) for name in excused):
                result = "excused"
            name, message, *_ = explain(error) if error is not None else ("", "")
            text = f"{name}: {message}" if error is not None else ""
            send(dumps(["test", str(item.nodeid)[:500], result, text[:2000]]))

    return Reporter()
