"""Addresses of the other replicas: configured URLs, or all addresses of a DNS name.

DNS names are resolved again after 2 s, and once more if a sandbox id names an unknown replica. If
the DNS fails, the last answer stays valid, since a DNS failure says little about the replicas.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from urllib.parse import urlsplit

from proctor_service.errors import StartError
from proctor_service.features.replicas.identity import address_of

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 2.0
"""Validity of a DNS answer."""
LATELY_SECONDS = 0.2
"""Age of a DNS answer after which a missing replica causes another query."""
SCHEMES = ("http", "https", "dns")
NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)

LookUp = Callable[[str, socket.AddressFamily], Awaitable[Collection[str]]]
"""Return all addresses of a name. Raises OSError if the query fails."""


async def look_up_by_system(name: str, family: socket.AddressFamily) -> Collection[str]:
    """Resolve a name with the system's resolver; an unknown name has an empty result."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(name, None, family=family, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno not in NO_SUCH_NAME:
            raise
        return ()
    return {str(address[0]) for *_, address in found}


def base_url(url: str, where: str) -> str:
    """Return the URL in normal form. Raises StartError for a URL without host and port."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    rest = parts.path.strip("/") or parts.query or parts.fragment or parts.username
    if parts.scheme not in SCHEMES or not parts.hostname or port is None or rest:
        raise StartError(f"{where}: {url!r} is not like http://10.0.0.7:8080, with scheme and port")
    return _url(parts.scheme, parts.hostname, port)


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Peers:
    """Known peers; `own` is the URL under which peers know this replica."""

    def __init__(
        self,
        peers: Sequence[str],
        own: str,
        look_up: LookUp = look_up_by_system,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the list. Raises StartError for an invalid address."""
        found = [base_url(each, "PROCTOR_PEERS") for each in peers]
        self._own = own
        self._fixed = [url for url in found if not url.startswith("dns:")]
        self._names = [url for url in found if url.startswith("dns:")]
        self._resolved: dict[str, list[str]] = {}
        self._ask_dns = look_up
        self._clock = clock
        self._looked_up = -LOOKUP_SECONDS
        self._looking = asyncio.Lock()

    async def urls(self) -> list[str]:
        """Return the URLs of all other replicas."""
        if self._names and self._clock() - self._looked_up >= LOOKUP_SECONDS:
            await self._look_up()
        found = [*self._fixed, *(url for urls in self._resolved.values() for url in urls)]
        return [url for url in dict.fromkeys(found) if url != self._own]

    async def at(self, address: str) -> str | None:
        """Return the URL of the replica with this address in its ids; None if unknown."""
        found = await self._known_at(address)
        if found is None and self._names and self._clock() - self._looked_up > LATELY_SECONDS:
            await self._look_up()
            found = await self._known_at(address)
        return found

    async def _known_at(self, address: str) -> str | None:
        return next((url for url in await self.urls() if address_of(url) == address), None)

    async def _look_up(self) -> None:
        begun = self._clock()
        async with self._looking:
            if self._looked_up >= begun:  # another task has just resolved the names
                return
            for name in self._names:
                await self._resolve(name)
            self._looked_up = self._clock()

    async def _resolve(self, name: str) -> None:
        parts = urlsplit(name)
        host, port = parts.hostname or "", parts.port
        assert port is not None, "it was checked"
        try:
            found = await self._ask_dns(host, self._family())
        except OSError as error:
            log.warning("the DNS does not answer", extra={"host": host, "why": str(error)})
            return
        self._resolved[name] = [_url("http", each, port) for each in sorted(found)]

    def _family(self) -> socket.AddressFamily:
        """Return the address family of this replica's own URL.

        With both families, a replica with two addresses would appear twice.
        """
        try:
            address = ipaddress.ip_address(urlsplit(self._own).hostname or "")
        except ValueError:
            return socket.AF_UNSPEC
        return socket.AF_INET if address.version == 4 else socket.AF_INET6
