"""Who the other replicas are: configured, or all that the DNS knows of a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection

import pytest

from proctor_service.errors import StartError
from proctor_service.features.replicas.identity import Identity, address_in, address_of
from proctor_service.features.replicas.peers import Peers, base_url
from proctor_service.sandboxes.registry import new_id

OWN = "http://10.0.0.1:8080"


class Dns:
    """Answers as it is told, and counts."""

    def __init__(self, *hosts: str) -> None:
        self.hosts: Collection[str] = hosts
        self.fails = False
        self.asked: list[tuple[str, socket.AddressFamily]] = []
        self.now = 100.0

    async def look_up(self, name: str, family: socket.AddressFamily) -> Collection[str]:
        self.asked.append((name, family))
        await asyncio.sleep(0)
        if self.fails:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return set(self.hosts)

    def clock(self) -> float:
        return self.now


async def test_all_that_a_name_has_but_this_one() -> None:
    dns = Dns("10.0.0.1", "10.0.0.3", "10.0.0.2")
    peers = Peers(["dns://replicas:8080", "http://far.example:9"], OWN, dns.look_up, dns.clock)
    expected = ["http://far.example:9", "http://10.0.0.2:8080", "http://10.0.0.3:8080"]
    assert await peers.urls() == expected
    assert await peers.urls() == expected
    assert dns.asked == [("replicas", socket.AF_INET)]
    dns.hosts = ("10.0.0.1",)
    dns.now += 2.0
    assert await peers.urls() == ["http://far.example:9"]


async def test_of_two_families_only_the_own_is_asked_for() -> None:
    dns = Dns("fd00::2", "fd00::1")
    peers = Peers(["dns://replicas:8080"], "http://[fd00::1]:8080", dns.look_up, dns.clock)
    assert await peers.urls() == ["http://[fd00::2]:8080"]
    assert dns.asked == [("replicas", socket.AF_INET6)]


async def test_a_dns_that_fails_makes_nobody_disappear() -> None:
    dns = Dns("10.0.0.2")
    peers = Peers(["dns://replicas:8080"], OWN, dns.look_up, dns.clock)
    there = address_of("http://10.0.0.2:8080")
    assert await peers.at(there) == "http://10.0.0.2:8080"
    dns.fails = True
    dns.now += 1000.0
    assert await peers.at(there) == "http://10.0.0.2:8080"
    dns.fails, dns.hosts = False, ()
    dns.now += 2.0
    assert await peers.at(there) is None


async def test_one_that_has_just_come_is_found_and_strangers_cost_no_flood_of_questions() -> None:
    dns = Dns("10.0.0.2")
    peers = Peers(["dns://replicas:8080"], OWN, dns.look_up, dns.clock)
    assert len(await peers.urls()) == 1
    dns.hosts = ("10.0.0.2", "10.0.0.3")
    dns.now += 0.5
    assert await peers.at(address_of("http://10.0.0.3:8080")) == "http://10.0.0.3:8080"
    before = len(dns.asked)
    for _ in range(100):
        assert await peers.at("00000000") is None
    await asyncio.gather(*(peers.at("11111111") for _ in range(100)))
    assert len(dns.asked) == before


def test_an_id_tells_its_replica_and_its_life() -> None:
    first, again, other = Identity(OWN), Identity(OWN), Identity("http://10.0.0.2:8080")
    made = new_id(first.id_prefix)
    assert len(made) == 35
    assert first.holds(made)
    assert not again.holds(made)
    assert not other.holds(made)
    assert address_in(made) == address_of(OWN)
    for no_id in ("", "sb_1", made.upper(), made + "0", f" {made}", "\ud800"):
        assert other.holds(no_id)  # it may say itself that there is no such thing
        assert address_in(no_id) == ""
    assert len({new_id(first.id_prefix) for _ in range(1000)}) == 1000


def test_an_address_is_compared_in_one_form() -> None:
    assert base_url("http://EXAMPLE:80/", "x") == "http://example:80"
    assert base_url("http://[FD00::1]:80", "x") == "http://[fd00::1]:80"
    for wrong in ("http://x:99999", "http://:80", "x", "http://x:80?y", "http://x:80#y"):
        with pytest.raises(StartError, match="x:"):
            base_url(wrong, "x")
