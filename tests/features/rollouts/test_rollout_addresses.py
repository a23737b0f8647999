"""Where a policy's URL may lead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from proctor_service.errors import InvalidRequest, PolicyUnavailable
from proctor_service.features.rollouts.addresses import (
    allowed_addresses,
    check_url,
    resolve_by_system,
    wrong_host,
)

ANY = ["*"]

REFUSED = [
    "169.254.169.254",
    "169.254.0.1",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "169.254.169.254.",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[::ffff:0:169.254.169.254]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:a9fe:a9fe::]",
    "[fe80::1]",
    "[febf::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "100.100.100.200",
    "168.63.129.16",
    "[::ffff:168.63.129.16]",
]


@pytest.mark.parametrize("host", REFUSED)
def test_metadata_addresses_are_refused_however_they_are_written(host: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^policy\.base_url: "):
        check_url(f"http://{host}/v1", ANY, "policy.base_url")
    with pytest.raises(InvalidRequest):
        check_url(f"https://{host}:8443/v1", ANY, "policy.base_url")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/v1",
        "http://localhost:8000/v1",
        "http://[::1]:8000/v1",
        "http://10.1.2.3/v1",
        "http://0x7f000001/v1",
        "https://api.openai.com/v1",
        "https://API.openai.com./v1",
        "http://169.253.255.255/v1",
        "http://[2001:db8::1]/v1",
        "http://vllm/v1",
    ],
)
def test_where_policies_live_is_allowed(url: str) -> None:
    check_url(url, ANY, "policy.base_url")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "vllm:8000/v1",
        "//vllm/v1",
        "file:///etc/passwd",
        "ftp://vllm/v1",
        "http:///v1",
        "http://user:secret@vllm/v1",
        "http://vllm/v1?key=secret",
        "http://vllm/v1?",
        "http://vllm/v1#there",
        "http://vllm:port/v1",
        "http://[::1/v1",
        "http://1.2.3.256/v1",
        "http://vllm/\0",
    ],
)
def test_what_is_no_plain_url_is_refused_without_quoting_a_secret(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^policy\.base_url: ") as caught:
        check_url(url, ANY, "policy.base_url")
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("vllm.internal", True),
        ("api.openai.com", True),
        ("a.b.openai.com", True),
        ("10.0.0.5", True),
        ("openai.com", False),
        ("evil-openai.com", False),
        ("openai.com.evil.org", False),
        ("vllm.internal.evil.org", False),
        ("xvllm.internal", False),
        ("10.0.0.50", False),
        ("127.0.0.1", False),
    ],
)
def test_only_hosts_of_the_setting_may_be_named(host: str, allowed: bool) -> None:
    patterns = ["vllm.internal", "*.OpenAI.com", "10.0.0.5"]
    assert (wrong_host(host, patterns) == "") is allowed
    for written in (host, host.upper(), f"{host}."):
        if allowed:
            check_url(f"http://{written}/v1", patterns, "x")
        else:
            with pytest.raises(InvalidRequest, match="PROCTOR_POLICY_HOSTS"):
                check_url(f"http://{written}/v1", patterns, "x")


def test_no_host_at_all_may_be_allowed() -> None:
    with pytest.raises(InvalidRequest, match="PROCTOR_POLICY_HOSTS"):
        check_url("http://127.0.0.1/v1", [], "x")


def addresses(host: str, *found: str) -> list[str]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return found

    return asyncio.run(allowed_addresses(host, 80, resolve))


def test_a_name_is_refused_for_one_of_its_addresses() -> None:
    assert addresses("vllm", "10.0.0.1", "fd00::1") == ["10.0.0.1", "fd00::1"]
    for bad in ("169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "fd00:ec2::254"):
        with pytest.raises(PolicyUnavailable, match=r"vllm: .* metadata"):
            addresses("vllm", "10.0.0.1", bad)


def test_a_literal_address_is_never_looked_up() -> None:
    assert addresses("10.0.0.1", "10.9.9.9") == ["10.0.0.1"]
    assert addresses("::1", "10.9.9.9") == ["::1"]
    assert addresses("0x0a000001", "10.9.9.9") == ["10.0.0.1"]
    with pytest.raises(PolicyUnavailable):
        addresses("0xa9fea9fe", "10.0.0.1")


def test_the_system_knows_this_machine() -> None:
    found = asyncio.run(resolve_by_system("localhost", 80))
    assert set(found) <= {"127.0.0.1", "::1"}
    assert found
    with pytest.raises(OSError, match=r"."):
        asyncio.run(resolve_by_system("no-such-host.invalid", 80))
