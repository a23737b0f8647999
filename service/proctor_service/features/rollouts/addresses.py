"""Access policy for policy URLs: allowed hosts, and refused addresses.

A policy URL comes with a request and makes the service open a connection. Without a check, the URL
could lead to the metadata service of a cloud, and so to the credentials of the machine. So this
module resolves the host name and checks every address. The connection goes to a checked address,
never to the name (`policy.py`), so later changes of the DNS entry are harmless. Link-local
addresses and metadata services are always refused, in every notation and inside the IPv6 ranges
with IPv4 addresses. Loopback and private addresses are allowed, since policies run there.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from fnmatch import fnmatchcase

import httpx

from proctor_service.errors import InvalidRequest, PolicyUnavailable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a host. Raises OSError if the host has none."""

REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",
        "fe80::/10",
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::254/128",  # Amazon
        "fd20:ce::254/128",  # Google
        "fd00:c1::a9fe:a9fe/128",  # Oracle
    )
)
IPV4_IN_LAST_BITS = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv6 ranges with an IPv4 address in the last 32 bits: mapped, translated, NAT64 and others."""


def check_url(text: str, patterns: Sequence[str], where: str) -> None:
    """Raise InvalidRequest if the text of a policy URL decides its refusal."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"{where}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequest(f"{where}: not an http or https URL")
    if url.userinfo or url.query or url.fragment or "?" in text or "#" in text:
        raise InvalidRequest(f"{where}: no user, query or fragment; the key goes into api_key")
    wrong = wrong_host(host_of(url), patterns)
    if wrong:
        raise InvalidRequest(f"{where}: {wrong}")


def host_of(url: httpx.URL) -> str:
    """Return the host in ASCII and lower case, without a final dot, as used for the lookup."""
    return url.raw_host.decode("ascii").rstrip(".").lower()


def wrong_host(host: str, patterns: Sequence[str]) -> str:
    """Return the reason to refuse this host by its text; empty if the host is allowed."""
    if not any(fnmatchcase(host, pattern.lower()) for pattern in patterns):
        return f"the host {host} is none of those that PROCTOR_POLICY_HOSTS allows"
    address = _literal(host)
    return "" if address is None else _wrong_address(address)


async def allowed_addresses(host: str, port: int, resolve: Resolve) -> list[str]:
    """Return the addresses to connect to for this host.

    Raises PolicyUnavailable if any address is refused, and OSError for a host without addresses.
    """
    address = _literal(host)
    found = [str(address)] if address is not None else list(await resolve(host, port))
    for each in found:
        wrong = _wrong_address(ipaddress.ip_address(each.partition("%")[0]))
        if wrong:
            raise PolicyUnavailable(f"policy: {host}: {wrong}")
    return found


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Return the addresses from the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _literal(host: str) -> Address | None:
    """Return the address if the host is an address literal in any notation, or None.

    Notations such as 0xa9fea9fe and 0251.0376.43518 count as literals.
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _wrong_address(address: Address) -> str:
    for each in (address, *_within(address)):
        if any(each in network for network in REFUSED):
            return f"{address} is link-local or a metadata service, which no policy is"
    return ""


def _within(address: Address) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses behind an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return
    if any(address in network for network in IPV4_IN_LAST_BITS):
        yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()
