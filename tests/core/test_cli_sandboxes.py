"""`proctor sandboxes` against the real app over HTTP, with scripted sandboxes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from command_line import proctor
from harness import Service, running_service
from scripted_sandboxes import FakeBackend

from proctor_client import Client, Sandbox
from proctor_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")

NOBODY = "http://127.0.0.1:1"


@pytest.fixture
def service() -> Iterator[Service]:
    with running_service(backend=FakeBackend()) as running:
        yield running


@pytest.fixture
def made(service: Service) -> Iterator[list[Sandbox]]:
    """Three sandboxes: one of run a, one of run b, and one of both that has ended."""
    with Client(service.url) as client:
        sandboxes = [client.sandbox(tags=tags) for tags in (["a"], ["b", "[red]"], ["a", "b"])]
        for each in sandboxes:
            each.start()
        sandboxes[0].exec(["true"])
        sandboxes[0].exec(["false"])
        sandboxes[2].stop()
        yield sandboxes


def listed(text: str) -> list[str]:
    """The ids that a table shows."""
    return re.findall(r"sb_[0-9a-f]{32}", text)


def test_list_shows_those_that_live(service: Service, made: list[Sandbox]) -> None:
    said = proctor("sandboxes", "list", PROCTOR_URL=service.url)
    assert said.exit_code == 0, said.output
    assert listed(said.stdout) == [made[0].id, made[1].id]
    head, first, second = said.stdout.splitlines()
    assert head.split() == ["id", "status", "age", "expires", "execs", "tags"]
    assert re.search(r"running +\d+ s +in (9|10) min +2  a$", first.rstrip())
    assert second.rstrip().endswith("0  b, [red]")


def test_list_goes_by_tags_and_statuses(service: Service, made: list[Sandbox]) -> None:
    def ids(*options: str) -> list[str]:
        said = proctor("sandboxes", "list", *options, PROCTOR_URL=service.url)
        assert said.exit_code == 0, said.output
        return listed(said.stdout)

    assert ids("--tag", "a") == [made[0].id]
    assert ids("--tag", "a", "--tag", "b") == []
    assert ids("--status", "stopped") == [made[2].id]
    assert len(ids("--tag", "b", "--status", "stopped", "--status", "running")) == 2
    assert (
        "no sandboxes" in proctor("sandboxes", "list", "--tag", "c", PROCTOR_URL=service.url).stdout
    )


def test_json_is_what_the_service_says(service: Service, made: list[Sandbox]) -> None:
    said = proctor("sandboxes", "list", "--json", "--tag", "a", PROCTOR_URL=service.url)
    [found] = json.loads(said.stdout)["sandboxes"]
    assert (found["id"], found["tags"]) == (made[0].id, ["a"])
    assert found["exec_stats"] == {"total": 2, "successes": 1, "failures": 1, "errors": 0}
    none = proctor("sandboxes", "list", "--json", "--tag", "c", PROCTOR_URL=service.url)
    assert json.loads(none.stdout) == {"sandboxes": []}


def test_stop_ends_those_with_all_the_tags(service: Service, made: list[Sandbox]) -> None:
    def stop(*options: str) -> str:
        said = proctor("sandboxes", "stop", *options, PROCTOR_URL=service.url)
        assert said.exit_code == 0, said.output
        return said.stdout

    assert stop("--tag", "a", "--tag", "[red]") == "stopped 0 sandboxes\n"
    assert stop("--tag", "b") == "stopped 1 sandbox\n"
    assert made[0].refresh().status == "running"
    assert made[1].refresh().status == "stopped"


def test_stop_without_a_tag_stops_nothing(service: Service, made: list[Sandbox]) -> None:
    said = proctor("sandboxes", "stop", PROCTOR_URL=service.url)
    assert said.exit_code == 2
    assert "--tag is missing" in said.stderr
    assert made[0].refresh().status == "running"


def test_the_environment_says_where_and_who(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {"a": "token-a", "b": "token-b"}
    settings = Settings(tokens=json.dumps(tokens))
    with running_service(settings, backend=FakeBackend()) as service:
        monkeypatch.setenv("PROCTOR_URL", service.url)
        monkeypatch.setenv("PROCTOR_TOKEN", "token-a")
        with Client(service.url, token="token-a") as client, client.sandbox(tags=["x"]) as mine:
            assert listed(proctor("sandboxes", "list").stdout) == [mine.id]
            monkeypatch.setenv("PROCTOR_TOKEN", "token-b")
            assert listed(proctor("sandboxes", "list").stdout) == []
            assert "stopped 0" in proctor("sandboxes", "stop", "--tag", "x").stdout
            monkeypatch.delenv("PROCTOR_TOKEN")
            refused = proctor("sandboxes", "list")
    assert refused.exit_code == 2
    assert "set PROCTOR_TOKEN" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "url", "said"),
    [
        (["list"], NOBODY, "no service answers at http://127.0.0.1:1"),
        (["stop", "--tag", "a"], NOBODY, "no service answers"),
        (["list"], "nonsense", "url: it must begin with http"),
        (["list", "--status", "asleep"], NOBODY, "--status asleep: it is one of pending"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], url: str, said: str) -> None:
    result = proctor("sandboxes", *arguments, PROCTOR_URL=url)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--help"], ["stop", "--help"]])
def test_each_explains_itself(arguments: list[str]) -> None:
    said = proctor("sandboxes", *arguments)
    assert said.exit_code == 0
    assert "sandboxes" in said.stdout
