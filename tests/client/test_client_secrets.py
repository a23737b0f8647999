"""The token shows nowhere, whatever goes wrong."""

from __future__ import annotations

import traceback

import pytest

from proctor_client import AsyncClient, Client, ProctorError
from proctor_client._flow import Policy
from proctor_client.testing import FakeProctor

TOKEN = "correct-horse-battery-staple"
URL = "http://proctor.test"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_clients_repr_and_str(kind: type[Client] | type[AsyncClient]) -> None:
    client = kind(URL, token=TOKEN)
    assert repr(client) == f"{kind.__name__}('http://proctor.test', token=set)"
    assert TOKEN not in repr(vars(client)) + str(client)
    assert TOKEN not in repr(Policy(secret=TOKEN))


@pytest.mark.parametrize("body", [b"your header: Bearer " + TOKEN.encode(), b"<p>" * 9])
def test_an_error_for_which_a_proxy_echoes_the_request(body: bytes) -> None:
    proctor = FakeProctor(token=TOKEN)
    proctor.answer_next(body, status=400, headers={"Content-Type": "text/plain"})
    with proctor.client() as client, pytest.raises(ProctorError) as caught:
        client.capacity()
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert TOKEN not in repr(vars(caught.value))


def test_a_problem_that_repeats_the_token() -> None:
    proctor = FakeProctor(token=TOKEN)
    proctor.fail_next(status=401, reason="unauthorized", message=f"no tenant has {TOKEN}")
    with proctor.client() as client, pytest.raises(ProctorError) as caught:
        client.capacity()
    assert str(caught.value) == "unauthorized (HTTP 401): no tenant has [secret]"


def test_a_problem_within_a_stream_that_repeats_the_token() -> None:
    proctor = FakeProctor(token=TOKEN)
    problem = b'{"error": {"reason": "internal", "message": "%s"}}\n' % TOKEN.encode()
    proctor.answer_next(problem, headers={"Content-Type": "application/x-ndjson"})
    with proctor.client() as client, pytest.raises(ProctorError) as caught:
        list(client.reward_stream(["a"]))
    assert str(caught.value) == "internal: [secret]"


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "tökén", "tab\tbed", "nul\0"])
def test_a_token_that_no_header_can_carry_is_refused_unseen(token: str) -> None:
    with pytest.raises(ValueError, match="token: it must be visible ASCII") as caught:
        Client(URL, token=token)
    assert token not in "".join(traceback.format_exception(caught.value))


def test_white_space_around_a_token_is_a_files_last_newline() -> None:
    proctor = FakeProctor(token=TOKEN)
    with Client(URL, token=f" {TOKEN}\n", transport=proctor) as client:
        client.capacity()


@pytest.mark.parametrize(
    "url", ["http://user:secret@proctor.test", "ftp://proctor.test", "proctor.test", "", "http://"]
)
def test_a_url_that_will_not_do(url: str) -> None:
    with pytest.raises(ValueError, match="url: it must") as caught:
        Client(url)
    assert "secret" not in str(caught.value)
