"""Imports of the helper modules in `support/`, the selection of `make test-fast`, and Ctrl-C in tests."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# A service in a process of its own starts from compiled modules, as users have it: without them each start
# compiles all of them, which takes seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_TESTS = Path(__file__).parent
sys.path[:0] = [str(_TESTS / "support"), str(_TESTS)]

from event_loop import pytest_pyfunc_call  # noqa: E402  found by the path above
from fast_selection import SERVICES, SLOW_FOLDERS, STARTERS  # noqa: E402

__all__ = ["pytest_pyfunc_call"]

# Ctrl-C in Thread.start() breaks a lock of the new thread, which CPython reports when that ends.
_THREAD_BROKEN_OFF = (
    "ignore:Exception ignored in thread started by:pytest.PytestUnraisableExceptionWarning"
)

_RUNNING = pytest.StashKey[pytest.Item]()

if importlib.util.find_spec("hypothesis") is not None:  # not in a trainer's environment
    from hypothesis import HealthCheck, settings

    # How fast the machine draws its cases fails no test.
    settings.register_profile(
        "tests", max_examples=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
    settings.load_profile("tests")

if importlib.util.find_spec("proctor_service") is not None:
    from proctor_service.settings import prepared_folder

    # The prepared files of the installation are for its services; a test makes those that it needs.
    prepared_folder.FOLDER = Path("/nonexistent")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW_FOLDERS & set(item.path.relative_to(_TESTS).parts):
            item.add_marker("slow")
        names = vars(item.module).keys() if isinstance(item, pytest.Function) else ()
        if STARTERS & set(names) or SERVICES & set(getattr(item, "fixturenames", ())):
            item.add_marker("service")
        if "interruptible" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(_THREAD_BROKEN_OFF))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    item.config.stash[_RUNNING] = item


@pytest.fixture(scope="session", autouse=True)
def _real_sandboxes_are_slow(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fails a test that starts real sandboxes without the marker `slow`."""
    if importlib.util.find_spec("proctor_service") is None:  # in a trainer's environment
        yield
        return
    from proctor_service.errors import StartError
    from proctor_service.sandbox.local import LocalBackend

    start_backend = LocalBackend.start

    async def checked(backend: LocalBackend) -> None:
        test = pytestconfig.stash[_RUNNING]
        if test.get_closest_marker("slow") is None:
            raise StartError(f"{test.name} starts real sandboxes: mark it slow")
        await start_backend(backend)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalBackend, "start", checked)
        yield


@pytest.fixture(autouse=True)
def _sigpipe_stays_ignored() -> Iterator[None]:
    """Fails the test that leaves the default: a closed connection would end the process of tests later."""
    yield
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


@pytest.fixture(scope="session", autouse=True)
def _no_journal_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails the run if a service of the tests kept its journal where a user has it by default."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield
    assert list(folder.iterdir()) == [], "a test's service needs PROCTOR_JOURNAL=off"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Has Ctrl-C interrupt this process, and those that it starts meanwhile.

    A job in the background of a shell begins with SIGINT ignored, and so do all processes below it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
