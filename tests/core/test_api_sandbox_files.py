"""Files of sandboxes over a real connection, with scripted sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from sandbox_server import ServerUnderTest, problem


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "a/b/c.txt",
        "with space",
        "ü/\U0001f600",
        "50%.txt",
        "a?b#c",
        "%2Fetc/x",
        "/etc/x",
        "..x",
    ],
)
def test_files_come_back_byte_by_byte(hotel: ServerUnderTest, sandbox: str, path: str) -> None:
    data = bytes(range(256)) * 10
    url = f"/sandboxes/{sandbox}/files/{quote(path)}"
    answer = hotel.client.put(url, content=data)
    assert (answer.status_code, answer.content) == (204, b"")
    assert hotel.guest.files == {path: data}
    answer = hotel.client.get(url)
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"] == "application/octet-stream"


def test_an_empty_file_is_a_file(hotel: ServerUnderTest, sandbox: str) -> None:
    url = f"/sandboxes/{sandbox}/files/x"
    assert hotel.client.put(url).status_code == 204
    assert hotel.client.get(url).content == b""


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("none", 404, "file_not_found"),
        ("", 422, "invalid_request"),
        ("a%00b", 422, "invalid_request"),
        ("%FF", 422, "invalid_request"),
        ("x" * 256, 422, "invalid_request"),
        ("a/" * 2100 + "b", 422, "invalid_request"),
        ("big", 422, "invalid_request"),
    ],
)
def test_files_that_cannot_be_read(
    hotel: ServerUnderTest, sandbox: str, path: str, status: int, reason: str
) -> None:
    hotel.guest.files = {"big": bytes((1 << 20) + 1), "\ufffd": b"not this one"}
    url = f"/sandboxes/{sandbox}/files/{path}"
    problem(hotel.client.get(url), status, reason)
    if reason == "invalid_request" and path != "big":
        problem(hotel.client.put(url, content=b"x"), 422, "invalid_request")
        assert len(hotel.guest.files) == 2


def test_a_file_that_is_too_large_or_has_no_room_is_refused(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    url = f"/sandboxes/{sandbox}/files"
    problem(hotel.client.put(f"{url}/full", content=b"x"), 422, "invalid_request")
    assert hotel.client.put(f"{url}/x", content=bytes(1 << 20)).status_code == 204
    too_large = hotel.client.put(f"{url}/y", content=bytes((1 << 20) + 1))
    problem(too_large, 413, "invalid_request")
    assert list(hotel.guest.files) == ["x"]


def test_a_ttl_does_not_pass_in_the_middle_of_an_upload(hotel: ServerUnderTest) -> None:
    clock = hotel.create(ttl_seconds=3)["id"]
    sandbox = hotel.create(ttl_seconds=2.5)["id"]
    registry = hotel.service.parts.core.registry

    def slowly() -> Iterator[bytes]:
        yield b"a"
        # The other sandbox's ttl is longer than this one's, and begins no later than this use.
        hotel.service.until(lambda: registry.find("local", clock).over)
        yield b"b"

    answer = hotel.client.put(f"/sandboxes/{sandbox}/files/x", content=slowly())
    assert answer.status_code == 204
    assert hotel.client.get(f"/sandboxes/{sandbox}/files/x").content == b"ab"
    hotel.service.until(lambda: registry.find("local", sandbox).over)
    message = problem(hotel.exec(sandbox, "true"), 410, "sandbox_stopped").message
    assert "its ttl of 2.5 s passed" in message


def test_a_sandbox_that_is_stopped_in_the_middle_of_an_upload(
    hotel: ServerUnderTest, sandbox: str
) -> None:
    def stopping() -> Iterator[bytes]:
        yield b"a"
        hotel.service.until(
            lambda: hotel.service.parts.core.registry.find("local", sandbox)._uses == 1
        )
        with hotel.service.client() as other:
            other.delete(f"/sandboxes/{sandbox}")
        yield b"b"

    answer = hotel.client.put(f"/sandboxes/{sandbox}/files/x", content=stopping())
    problem(answer, 410, "sandbox_stopped")
