"""Settings from variables and from the file in PROCTOR_CONFIG."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from proctor_service.errors import StartError
from proctor_service.settings import GROUPS, Settings, start_warnings
from proctor_service.settings.groups import REMOVED_SETTINGS
from proctor_service.settings.sources import group_name, read_group

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "proctor.toml"
    path.touch(0o600)
    monkeypatch.setenv("PROCTOR_CONFIG", str(path))
    return path


def start() -> tuple[Settings, list[str]]:
    return Settings(), start_warnings()


class Weather(BaseModel):
    """Settings of a feature."""

    model_config = ConfigDict(frozen=True)

    weather_url: str = ""
    weather_cities: list[str] = []


def test_no_group_has_the_name_of_another_setting_that_is_a_table() -> None:
    names = [name for group in GROUPS for name in group.model_fields]
    assert sorted(names) == sorted(Settings.model_fields)
    assert len(names) <= 59
    assert not {group_name(group) for group in GROUPS} & set(names)
    assert not REMOVED_SETTINGS.keys() & set(names)


def test_arguments_win_over_variables_and_these_over_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("""
slots = 3
tenant_slots = {a = 1}
sandbox_paths = ["/opt/tools"]
[queue]
workers = 0
max_queued = 7
[server]
grace_seconds = 5
[access.tokens]
a = "hush"
[aviato.aviato_options]
cpu = "2"
""")
    monkeypatch.setenv("proctor_max_queued", "8")
    settings = Settings(slots=4)
    assert (settings.slots, settings.max_queued, settings.workers) == (4, 8, "0")
    assert settings.grace_seconds == 5.0
    assert settings.tenant_slots == {"a": 1}
    assert settings.sandbox_paths == [Path("/opt/tools")]
    assert settings.aviato_options.cpu == "2"
    assert settings.tokens_by_tenant() == {"a": "hush"}
    assert "hush" not in repr(settings)
    assert start_warnings() == []
    config.chmod(0o644)
    [warning] = start_warnings()
    assert warning.endswith("access.tokens, and others than its owner may read it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slots = ", "Invalid value"),
        ('slots = "3"', "slots: Input should be a valid integer"),
        ("[queue]\nslots = true", "queue.slots: Input should be a valid integer"),
        ("[tenant_slots]\na = 0", "tenant_slots.a: Input should be greater than 0"),
        ("aviato_options = {cpus = 2}", "aviato_options.cpus: Extra inputs"),
        ("slots = 1\n[queue]\nslots = 2", r"slots stands in \[queue\], too"),
        ("slot = 1", r"slot is no setting; did you mean queue\.slots\?"),
        ("[server]\nslots = 1", r"server\.slots is no setting; did you mean queue\.slots\?"),
        ("[servers]\nport = 1", r"servers is no setting; did you mean server\?"),
        ("xyzzy = 1", "xyzzy is no setting$"),
        ("[limits]\nflood_mb = 1", "limits.flood_mb is no setting any more: .* 64 MB"),
    ],
)
def test_a_wrong_file_ends_the_start_with_its_name_and_the_key(
    config: Path, text: str, message: str
) -> None:
    config.write_text(text)
    with pytest.raises(StartError, match=message) as refused:
        start()
    assert str(refused.value).startswith(f"PROCTOR_CONFIG {config}: ")


def test_a_file_that_is_not_there_ends_the_start(config: Path) -> None:
    config.unlink()
    with pytest.raises(StartError, match=r"PROCTOR_CONFIG .*No such file"):
        Settings()


def test_variables_that_are_no_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *("PROCTOR_PRT", "PROCTOR_MAX_QUEUE", "PROCTOR_XYZZY", "proctor_host", "PROCTOR_URL"),
        *("PROCTOR_TOKEN", "PROCTOR_AVIATO_API_KEY", "PROCTOR_CACHE_ENTRIES"),
    ):
        monkeypatch.setenv(name, "1")
    assert start_warnings() == [
        "PROCTOR_CACHE_ENTRIES is no setting any more: PROCTOR_CACHE_MB bounds the cache, and 0 turns "
        "it off",
        "PROCTOR_PRT is no setting; did you mean PROCTOR_PORT?",
        "PROCTOR_MAX_QUEUE is no setting; did you mean PROCTOR_MAX_QUEUED?",
        "PROCTOR_XYZZY is no setting",
    ]


def test_aviatos_own_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVIATO_API_KEY", "a")
    monkeypatch.setenv("CWSANDBOX_API_KEY", "c")
    assert Settings().aviato_api_key == SecretStr("c")
    monkeypatch.setenv("PROCTOR_AVIATO_API_KEY", "p")
    assert Settings().aviato_api_key == SecretStr("p")


def test_a_feature_has_settings_of_its_own(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('[weather]\nweather_url = "http://a"\nweather_cities = ["x"]\n')
    monkeypatch.setenv("PROCTOR_WEATHER_CITIES", '["y"]')
    assert read_group(Weather) == Weather(weather_url="http://a", weather_cities=["y"])
    assert start_warnings([Weather]) == []
    monkeypatch.setenv("PROCTOR_WEATHER_CITIES", '[{"a": 1}]')
    with pytest.raises(StartError, match=r"^PROCTOR_WEATHER_CITIES: 0: Input should be"):
        read_group(Weather)
    with pytest.raises(StartError, match=r"weather is no setting"):
        start_warnings()
