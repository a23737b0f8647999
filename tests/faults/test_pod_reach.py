"""`proctor doctor --kubernetes` asks the Redis and the PostgreSQL of the settings."""

from __future__ import annotations

from pydantic import SecretStr

from fault_rig.postgres import postgres_server
from fault_rig.programs import redis_server
from proctor_service.cli.pod.pod_check import PodCheck
from proctor_service.cli.pod.reach import reach_checks
from proctor_service.settings import Settings

PASSWORD = "hush"


def reached(redis_url: str = "", journal: str = "off") -> dict[str, PodCheck]:
    """What is said of these addresses."""
    settings = Settings(redis_url=SecretStr(redis_url), journal=SecretStr(journal))
    return {check.name: check for check in reach_checks(settings)}


def test_redis_answers_or_not() -> None:
    with redis_server() as server:
        assert reached(redis_url=server.url)["redis"].ok
        server.stop()
        assert not reached(redis_url=server.url)["redis"].ok
        server.start("--requirepass", PASSWORD)
        url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"
        assert reached(redis_url=url)["redis"].ok
        for wrong in (server.url, url.replace(PASSWORD, "loud")):
            found = reached(redis_url=wrong)["redis"]
            assert not found.ok
            assert "password" in found.detail
            assert not found.components


def test_postgresql_answers_or_not() -> None:
    with postgres_server() as server:
        assert reached(journal=server.url)["postgresql"].ok
        other = server.url.replace("/postgres", "/another")
        assert not reached(journal=other)["postgresql"].ok
        server.stop()
        assert not reached(journal=server.url)["postgresql"].ok
