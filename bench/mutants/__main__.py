"""A mutation run: the share of small faults in the service's code noticed by the tests.

    PYTHONPATH=bench .venv/bin/python -m mutants [--count 150] [--seed 1] [--jobs 2]

Runs the tests of `make test`, or those of the named folders, once for coverage by test, or takes
`--coverage` and `--durations` of an earlier run of the same tree. Draws mutants, or takes those of
`--list`, to compare two suites by the same faults. Tries each in a temporary copy of the
tree. A results file with some of the mutants is continued.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import TextIO

from mutants.copies import Copy
from mutants.mutant import Mutant, read_list, write_list
from mutants.operators import sample
from mutants.reach import Costs, Reach, select
from mutants.trial import ABSENT, KILLED, NOT_REACHED, OUTCOMES, Limits, Result, Trials

ROOT = Path(__file__).resolve().parents[2]
SERVICE = "service/proctor_service"
TARGETS = ("judge", "scheduling", "sandbox/local/idle.py", "evaluate.py")
COVERAGE_SETTINGS = """\
[run]
data_file = {data}
core = ctrace
disable_warnings = no-data-collected,module-not-measured,module-not-imported,couldnt-parse
include =
    */proctor_service/judge/*
    */proctor_service/scheduling/*
    */proctor_service/sandbox/local/idle.py
    */proctor_service/evaluate.py
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    root: Path = options.root.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    list_file: Path = options.list or options.folder / "list.json"
    results_file: Path = options.results or options.folder / "results.jsonl"
    if not list_file.exists():
        write_list(list_file, sample(_sources(root), options.count, options.seed))
    mutants = read_list(list_file)
    if not options.coverage:
        if options.results is None:
            results_file.unlink(missing_ok=True)  # results of other tests
        _run_suite(root, options.folder, options.jobs, options.tests)
    coverage_file = options.coverage or options.folder / "coverage"
    durations = options.durations or options.folder / "durations.xml"
    results = _read_results(results_file)
    waiting = [mutant for mutant in mutants if mutant.name not in results]
    print(f"{len(mutants)} mutants, {len(mutants) - len(waiting)} have results", flush=True)
    if waiting:
        limits = Limits(options.budget, options.limit)
        reach = Reach.read(root, coverage_file, durations)
        _try_all(root, reach, waiting, limits, options.jobs, results_file)
    print(_table(mutants, _read_results(results_file)))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("tests", nargs="*", help="folders of tests; by default those of make test")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree, with its .venv")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "mutants", help="for files")
    parser.add_argument("--list", type=Path, help="mutants to read, or to write if there is none")
    parser.add_argument("--results", type=Path, help="JSON lines; continued if there are some")
    parser.add_argument("--coverage", type=Path, help="data of a run with --cov-context=test")
    parser.add_argument("--durations", type=Path, help="the JUnit report of the same run")
    parser.add_argument("--budget", type=float, default=40, help="seconds of tests by duration")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a mutant at most")
    options = parser.parse_args(arguments)
    if bool(options.coverage) != bool(options.durations):
        parser.error("--coverage and --durations belong together")
    return options


def _sources(root: Path) -> dict[str, str]:
    service = root / SERVICE
    files = [file for name in TARGETS for file in (service / name).rglob("*.py")]
    files += [service / name for name in TARGETS if name.endswith(".py")]
    return {str(file.relative_to(root)): file.read_text() for file in sorted(files)}


def _run_suite(root: Path, folder: Path, jobs: int, tests: Sequence[str]) -> None:
    settings, data = folder / "settings.ini", folder / "coverage"
    settings.write_text(COVERAGE_SETTINGS.format(data=data.resolve()))
    command = [str(root / ".venv" / "bin" / "python"), "-m", "pytest", "-q"]
    command += ["-n", str(jobs), "--dist", "loadfile", "--cov", "--cov-context=test"]
    command += [f"--cov-config={settings.resolve()}", "--cov-report="]
    command += [f"--junitxml={(folder / 'durations.xml').resolve()}", *tests]
    status = subprocess.run(command, cwd=root).returncode
    if status not in (0, 1):  # 1: some test fails, and is left out
        raise SystemExit(f"the run of the suite ended with status {status}")


def _read_results(file: Path) -> dict[str, str]:
    """The outcomes by mutant; the last line is dropped after a stop during a write."""
    outcomes = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        if line.endswith("}"):
            record = json.loads(line)
            outcomes[record["name"]] = record["outcome"]
    return outcomes


def _try_all(
    root: Path, reach: Reach, mutants: list[Mutant], limits: Limits, jobs: int, results: Path
) -> None:
    """Try as many mutants at a time as there are jobs, and write each result at once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copies are removed
    costs = Costs.of(reach.tests.values())
    with (
        tempfile.TemporaryDirectory(prefix="mu-", ignore_cleanup_errors=True) as folder,
        results.open("a") as file,
    ):
        Path(folder).chmod(0o755)
        progress = _Progress(len(mutants), file)
        selections = {}
        for mutant in mutants:
            path = root / mutant.path
            line = mutant.line_in(path.read_text()) if path.is_file() else None
            tests = [] if line is None else reach.tests_of(mutant, line)
            if tests:
                selected = select(tests, costs, limits.budget_seconds)
                selections[mutant] = [test.name for test in selected]
            else:
                progress.write(mutant, Result(ABSENT if line is None else NOT_REACHED))
        if selections:
            copies: SimpleQueue[Trials] = SimpleQueue()
            for number in range(jobs):
                copies.put(Trials(Copy(root, Path(folder) / str(number)), limits))
            _try_selections(selections, copies, jobs, progress)


def _try_selections(
    selections: dict[Mutant, list[str]],
    copies: SimpleQueue[Trials],
    jobs: int,
    progress: _Progress,
) -> None:
    def attempt(mutant: Mutant, tests: list[str]) -> Result:
        trials = copies.get()
        try:
            return trials.outcome(mutant, tests)
        finally:
            copies.put(trials)

    with ThreadPoolExecutor(jobs) as pool:
        running: dict[Future[Result], Mutant] = {
            pool.submit(attempt, mutant, tests): mutant for mutant, tests in selections.items()
        }
        try:
            for future in as_completed(running):
                progress.write(running[future], future.result())
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Progress:
    """Writes results to the file, and a line about each."""

    def __init__(self, count: int, file: TextIO) -> None:
        self._count = count
        self._file = file
        self._written = 0

    def write(self, mutant: Mutant, result: Result) -> None:
        self._written += 1
        record = {"name": mutant.name, **asdict(result), "mutant": asdict(mutant)}
        print(json.dumps(record, ensure_ascii=False), file=self._file, flush=True)
        print(
            f"{self._written}/{self._count} {result.outcome}: {mutant.path}:{mutant.line}"
            f" {mutant.operator}, {result.seconds:.0f} s, {result.killing_test or ''}",
            flush=True,
        )


def _folder_of(path: str) -> str:
    inside = PurePosixPath(path).relative_to(SERVICE)
    return inside.name if inside.parent == PurePosixPath(".") else str(inside.parent)


def _table(mutants: list[Mutant], outcomes: dict[str, str]) -> str:
    """Mutants by folder and outcome. The share leaves out absent mutants."""
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        if mutant.name in outcomes:
            for folder in (_folder_of(mutant.path), "all"):
                counts.setdefault(folder, Counter())[outcomes[mutant.name]] += 1
    titles = ("folder", *OUTCOMES, "share killed")
    rows: list[tuple[str, ...]] = [titles]
    for folder in sorted(counts, key=lambda each: (each == "all", each)):
        found = counts[folder]
        tried = found.total() - found[ABSENT]
        share = f"{found[KILLED] / tried:.0%}" if tried else ""
        rows.append((folder, *(str(found[outcome]) for outcome in OUTCOMES), share))
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
