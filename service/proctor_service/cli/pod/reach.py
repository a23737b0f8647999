"""Whether a pod reaches what its settings name: by DNS, Redis and PostgreSQL."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from proctor_service.cli.pod.pod_check import (
    DNS_NODELOCAL,
    DNS_OPENSHIFT,
    POSTGRESQL,
    POSTGRESQL_EXTERNAL,
    REDIS,
    REDIS_EXTERNAL,
    PodCheck,
)
from proctor_service.errors import StartError
from proctor_service.features.journal.address import checked
from proctor_service.features.journal.database import connect
from proctor_service.settings import Settings

ANSWER_SECONDS = 5.0
_OFF = ("", "off")
_SLIM = "an image with this client: build it without SLIM=1"
_POLICY = "the NetworkPolicy of the overlay must let the pods through"


def reach_checks(settings: Settings) -> Iterator[PodCheck]:
    """Yield what of the network the settings need and the pod does not reach. Blocks for seconds."""
    redis_url = settings.redis_url.get_secret_value()
    journal = settings.journal.get_secret_value() if settings.journal else ""
    names = [urlsplit(peer).hostname for peer in settings.peers if peer.startswith("dns://")]
    names.append(urlsplit(redis_url).hostname if redis_url else None)
    if journal.startswith("postgresql"):
        names.append(urlsplit(journal).hostname)
    wanted = list(dict.fromkeys(name for name in names if name))
    if wanted:
        yield _dns(wanted)
    if redis_url:
        yield _redis(redis_url)
    if journal not in _OFF and not journal.startswith("sqlite"):
        yield _postgresql(journal)


def _dns(names: list[str]) -> PodCheck:
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except socket.gaierror as error:
            silent = error.errno == socket.EAI_AGAIN
            return PodCheck(
                "dns",
                False,
                f"{name}: {error.strerror}",
                ((DNS_NODELOCAL,), (DNS_OPENSHIFT,)) if silent else (),
                _POLICY if silent else "a Service of this name",
                required=True,
            )
    return PodCheck("dns", True, f"finds {', '.join(names)}")


def _redis(url: str) -> PodCheck:
    try:
        from redis import Redis
        from redis.exceptions import AuthenticationError, RedisError
    except ModuleNotFoundError:
        return _without_client("redis", "PROCTOR_REDIS_URL")
    where = urlsplit(url).hostname
    try:
        with Redis.from_url(
            url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS, retry=None
        ) as client:
            client.ping()
    except ValueError:  # its message may contain a part of the password
        return PodCheck("redis", False, "PROCTOR_REDIS_URL is no address", required=True)
    except AuthenticationError:
        return PodCheck("redis", False, f"{where} refuses the password", mend="PROCTOR_REDIS_URL")
    except RedisError as error:
        cause = type(error).__name__
        components = ((REDIS,), (REDIS_EXTERNAL,))
        return PodCheck("redis", False, f"{where} does not answer ({cause})", components, _POLICY)
    return PodCheck("redis", True, f"{where} answers")


def _postgresql(url: str) -> PodCheck:
    try:
        address = checked(url)
        engine = connect(address)
    except StartError as error:
        return PodCheck("postgresql", False, str(error), required=True)
    except ModuleNotFoundError:
        return _without_client("postgresql", "PROCTOR_JOURNAL")
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError as error:
        cause = type(getattr(error, "orig", None) or error).__name__
        return PodCheck(
            "postgresql",
            False,
            f"{address.host} lets nobody in ({cause})",
            ((POSTGRESQL,), (POSTGRESQL_EXTERNAL,)),
            f"{_POLICY}; PROCTOR_JOURNAL must have the right user and password",
        )
    finally:
        engine.dispose()
    return PodCheck("postgresql", True, f"{address.host} answers")


def _without_client(name: str, setting: str) -> PodCheck:
    detail = f"{setting} is set, and the image has no client for it"
    return PodCheck(name, False, detail, mend=_SLIM, required=True)
