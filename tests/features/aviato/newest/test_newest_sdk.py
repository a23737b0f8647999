"""The newest SDK against the stand-in, which may be newer than the pin: what is not in other tests."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Iterator

import cwsandbox
import cwsandbox.exceptions
import pytest
from harness import running_service

from aviato_gateway.stand_in import StandIn, stand_in
from core.e2e.test_corpora import judge
from proctor_service.errors import StartError
from proctor_service.features.aviato.failures import meaning_of

KEY = "0123456789" * 4
GRADER = {"kind": "asserts", "tests": ["assert f(2) == 4"]}


@pytest.fixture(scope="module")
def gateway() -> Iterator[StandIn]:
    with stand_in() as running:
        running.order("key", KEY)
        yield running


@pytest.fixture(autouse=True)
def _no_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing of the user's own log-in, and a session of wandb that knows nothing yet."""
    for name in ("WANDB_API_KEY", "WANDB_ENTITY", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    import wandb

    wandb.teardown()


def test_the_version_is_said() -> None:
    print(f"cwsandbox {cwsandbox.__version__}, wandb {importlib.metadata.version('wandb')}")
    assert cwsandbox.__version__ == importlib.metadata.version("cwsandbox")


def test_every_exception_of_the_sdk_has_a_meaning() -> None:
    for name, cls in inspect.getmembers(cwsandbox.exceptions, inspect.isclass):
        if issubclass(cls, cwsandbox.CWSandboxError):
            error = cls.__new__(cls)
            assert meaning_of(error).reason, name


def test_credentials_of_wandb_are_enough(gateway: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    settings = gateway.settings(aviato_auth="wandb", aviato_api_key="", pool_size=2)
    with running_service(settings, judge=None) as service:
        item = {"completion": "def f(x): return x * x", "grader": GRADER}
        [result] = judge(service, [item])
    assert result["reward"] == 1.0
    assert gateway.alive() == []


@pytest.mark.parametrize(
    ("key", "said"), [("", "W&B credentials"), ("9" * 40, "refuses the credentials of W&B")]
)
def test_credentials_that_are_missing_or_refused_end_the_start(
    gateway: StandIn, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    if key:
        monkeypatch.setenv("WANDB_API_KEY", key)
    settings = gateway.settings(aviato_auth="wandb", aviato_api_key="", pool_size=2)
    with (
        pytest.raises(StartError, match=said) as raised,
        running_service(settings, judge=None),
    ):
        pass
    assert not key or key not in str(raised.value)
