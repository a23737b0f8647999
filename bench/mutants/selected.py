"""Runs selected tests in the interpreter of a copy of the tree, and writes lines about them.

A script of its own, without imports of this package. Its argument is a JSON file: the names of the
`tests`, the `report` to write and `stop_after_seconds`, after which no further test starts. Lines of the
report, as JSON: `{"started": test, "at": seconds}`, `{"failed": test}`, and `{"ended": status,
"imported": path}` with the service's place.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest


class Selection:
    """The plugin to keep the selected tests alone, in their order, and report each."""

    def __init__(self, tests: list[str], report: Path, stop_after_seconds: float) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self._report = report.open("w")
        self._begin = time.monotonic()
        self._stop_after_seconds = stop_after_seconds

    def _seconds(self) -> float:
        return time.monotonic() - self._begin

    def write(self, **line: object) -> None:
        print(json.dumps(line), file=self._report, flush=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(failed=report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(started=nodeid, at=self._seconds())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.write(failed=report.nodeid)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if self._seconds() > self._stop_after_seconds:
            item.session.shouldstop = "the time is over"


def main() -> int:
    order = json.loads(Path(sys.argv[1]).read_text())
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
    selection = Selection(order["tests"], Path(order["report"]), order["stop_after_seconds"])
    files = list(dict.fromkeys(test.partition("::")[0] for test in order["tests"]))
    status = int(pytest.main(["-x", "-q", "--hypothesis-seed=0", *files], plugins=[selection]))
    imported = getattr(sys.modules.get("proctor_service"), "__file__", None)
    selection.write(ended=status, imported=imported)
    return status


if __name__ == "__main__":
    sys.exit(main())
