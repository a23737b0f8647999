"""What the Aviato backend makes of settings, and of each of the SDK's exceptions; no sandbox needed."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import cwsandbox.exceptions
import pytest

from proctor_service.errors import SandboxLost, SandboxUnavailable, StartError
from proctor_service.features.aviato.failures import failure_of, meaning_of
from proctor_service.features.aviato.plan import Shape, make_plan
from proctor_service.sandbox.interface import Limits
from proctor_service.settings import Settings

KEY = "key-that-nobody-may-see"
LIMITS = Limits(
    cpu_seconds=10, wall_seconds=60, memory_mb=512, output_kb=64, processes=64, disk_mb=64
)

# Every exception class of the SDK: the reason, and whether asking again may help.
TABLE = {
    "CWSandboxAuthenticationError": ("refused_credentials", False),
    "CWSandboxValidationError": ("refused_request", False),
    "SandboxValidationError": ("refused_request", False),
    "SandboxResourceExhaustedError": ("capacity", True),
    "SandboxUnavailableError": ("unavailable", True),
    "SandboxTimeoutError": ("timeout", True),
    "SandboxRequestTimeoutError": ("timeout", True),
    "SandboxCommandTimeoutError": ("timeout", True),
    "SandboxProtocolError": ("protocol", True),
    "SandboxNotRunningError": ("not_running", True),
    "SandboxNotFoundError": ("not_found", True),
    "SandboxTerminatedError": ("terminated", True),
    "SandboxFailedError": ("failed", True),
    "SandboxTerminalStateUnavailableError": ("unknown_end", True),
    "SandboxExecutionError": ("no_exit_code", True),
    "SandboxStreamBackpressureError": ("output_lost", True),
    "SandboxStreamTruncatedError": ("output_lost", True),
    "SandboxFileError": ("file", True),
    "SandboxError": ("other", True),
    "CWSandboxError": ("other", True),
    # of services that are not used here; some are also one of the above
    "SandboxSnapshotError": ("other", True),
    "SnapshotBackendThrottledError": ("unavailable", True),
    "SnapshotBucketMismatchError": ("other", True),
    "SnapshotBucketProvisioningError": ("unavailable", True),
    "SnapshotNotFoundError": ("other", True),
    "SnapshotNotReadyError": ("other", True),
    "SnapshotNotSupportedError": ("other", True),
    "SnapshotOnStopConflictError": ("other", True),
    "SnapshotQuotaExceededError": ("other", True),
    "SnapshotSizeExceededError": ("other", True),
    "SnapshotWaitTimeoutError": ("timeout", True),
    "VolumeError": ("other", True),
    "VolumeBackendNotFoundError": ("other", True),
    "VolumeInUseError": ("other", True),
    "VolumeNotFoundError": ("other", True),
    "VolumeNotReadyError": ("other", True),
    "VolumeNotSnapshottableError": ("other", True),
    "VolumePlacementConflictError": ("other", True),
    "VolumeQuotaExceededError": ("other", True),
    "VolumeRunnerIneligibleError": ("other", True),
    "VolumeRunnerUnavailableError": ("unavailable", True),
    "VolumeTypeNotSupportedError": ("other", True),
    "VolumeWaitTimeoutError": ("timeout", True),
    "DiscoveryError": ("other", True),
    "DiscoveryValidationError": ("refused_request", False),
    "RunnerNotFoundError": ("other", True),
    "ProfileNotFoundError": ("other", True),
    "FunctionError": ("other", True),
    "AsyncFunctionError": ("other", True),
}


def raised(name: str) -> BaseException:
    """An exception of that class, without its own arguments."""
    cls: Any = getattr(cwsandbox.exceptions, name)
    error: BaseException = cls.__new__(cls)
    Exception.__init__(error, "Command env -i python3 -c secret-boot-code timed out")
    return error


def test_every_exception_of_the_sdk_has_a_row() -> None:
    classes = inspect.getmembers(cwsandbox.exceptions, inspect.isclass)
    names = {name for name, cls in classes if issubclass(cls, BaseException)}
    assert names == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_what_an_exception_means(name: str) -> None:
    error = raised(name)
    meaning = meaning_of(error)
    assert (meaning.reason, meaning.passing) == TABLE[name]
    for stage, failure in (("start", SandboxUnavailable), ("run", SandboxLost)):
        found = failure_of(error, stage)  # type: ignore[arg-type]
        assert type(found) is failure
        assert found.message.startswith(f"{meaning.reason}: {name}")
        assert "secret-boot-code" not in found.message


def test_what_is_none_of_the_sdk_is_a_failure_too() -> None:
    assert meaning_of(OSError("x")).reason == "other"
    assert type(failure_of(ConnectionResetError(), "run")) is SandboxLost
    lost = SandboxLost("known already")
    assert failure_of(lost, "start") is lost


def settings(**more: Any) -> Settings:
    return Settings(**{"backend": "aviato", "aviato_api_key": KEY, **more})


@pytest.mark.parametrize("name", ["CWSANDBOX_API_KEY", "AVIATO_API_KEY", "PROCTOR_AVIATO_API_KEY"])
def test_a_key_by_any_of_its_names(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in ("CWSANDBOX_API_KEY", "AVIATO_API_KEY", "PROCTOR_AVIATO_API_KEY"):
        monkeypatch.delenv(other, raising=False)
    with pytest.raises(StartError, match="CWSANDBOX_API_KEY"):
        make_plan(Settings(backend="aviato"))
    monkeypatch.setenv(name, KEY)
    plan = make_plan(Settings(backend="aviato"))
    assert plan.api_key.get_secret_value() == KEY
    assert KEY not in f"{plan!r} {plan} {Settings(backend='aviato')!r}"


@pytest.mark.parametrize("name", ["CWSANDBOX_BASE_URL", "AVIATO_BASE_URL"])
def test_an_address_by_any_of_its_names(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://elsewhere:1")
    assert make_plan(settings()).base_url == "http://elsewhere:1"


def test_more_evaluations_than_there_may_be_sandboxes_is_said_at_start() -> None:
    with pytest.raises(StartError, match="PROCTOR_MAX_SANDBOXES"):
        make_plan(settings(slots=300))


def test_what_a_sandbox_is_asked_for() -> None:
    plan = make_plan(settings(memory_mb=512, aviato_instance="a b"))
    assert plan.shape(LIMITS) == plan.pool_shape == Shape(768, False)
    small = Limits(1, 1, 64, 64, 1, 1)
    assert plan.shape(small) == plan.pool_shape
    large = Limits(1, 1, 4096, 64, 1, 1, network=True)
    assert plan.shape(large) == Shape(4352, True)
    order = plan.kept_order(large, ["mine", "proctor-instance-other", "x\n y"])
    assert order.tags == (
        "proctor",
        "proctor-instance-a_b",
        f"proctor-run-{plan.run}",
        f"proctor-start-{plan.start}",
        "proctor-worker-0",
        "mine",
        "x__y",
    )
    assert plan.warm_order(plan.pool_shape).lifetime_seconds > plan.max_age_seconds
    assert make_plan(settings()).run != plan.run


def test_a_call_is_given_up_long_after_the_limit_inside() -> None:
    assert make_plan(settings()).call_seconds(5) > 5 + 20


def said_by(program: str) -> str:
    """What a program in a fresh interpreter says."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_without_the_sdk_the_extra_is_named() -> None:
    said = said_by(
        "import sys; sys.path[:0] = " + repr(sys.path) + "\n"
        "sys.modules['cwsandbox'] = None\n"
        "from proctor_service.errors import StartError\n"
        "from proctor_service.composition import doctor, make_backend\n"
        "from proctor_service.settings import Settings\n"
        "for use in (make_backend, doctor):\n"
        "    try: use(Settings(backend='aviato', aviato_api_key='x'))\n"
        "    except StartError as error: print(error)\n"
    )
    assert said.count("install proctor-service[aviato]") == 2


def test_the_sdk_is_imported_only_where_it_is_used() -> None:
    said = said_by(
        "import sys; sys.path[:0] = " + repr(sys.path) + "\n"
        "import proctor_service.app, proctor_service.composition\n"
        "print([name for name in ('cwsandbox', 'grpc', 'google') if name in sys.modules])\n"
    )
    assert said.strip() == "[]"
