"""The error tree: every reason has a class, and a foreign page never passes for the service."""

from __future__ import annotations

import json
import pickle
from typing import get_args

import httpx
import pytest

from proctor_client import errors, wire

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def problem(reason: str, **more: object) -> bytes:
    return json.dumps({"error": {"reason": reason, "message": "said", **more}}).encode()


# Failures of the service that are a whole answer, for a sandbox, and not an item's error.
LOST = {"sandbox_lost", "sandbox_unavailable"}


def test_every_reason_of_the_wire_has_one_class() -> None:
    assert set(errors.CLASS_BY_REASON) == set(get_args(wire.RefusalReason)) | LOST
    assert set(get_args(wire.ErrorReason)) >= LOST
    assert len(set(errors.CLASS_BY_REASON.values())) == len(errors.CLASS_BY_REASON)


@pytest.mark.parametrize("reason", [*get_args(wire.RefusalReason), *sorted(LOST)])
def test_a_problem_becomes_the_class_of_its_reason(reason: str) -> None:
    error = errors.from_answer(418, problem(reason), {})
    assert type(error) is errors.CLASS_BY_REASON[reason]
    assert (error.reason, error.message, error.status_code) == (reason, "said", 418)


def test_an_unknown_reason_falls_back_to_the_base_class() -> None:
    error = errors.from_answer(409, problem("on_holiday", since="may"), {})
    assert type(error) is errors.ProctorError
    assert (error.reason, str(error)) == ("on_holiday", "on_holiday (HTTP 409): said")


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(502, True), (503, True), (504, True), (429, True), (500, False), (404, False), (200, False)],
)
def test_a_foreign_page_is_a_protocol_error_retried_by_its_status(
    status: int, retryable: bool
) -> None:
    page = b"<html><h1>Bad  Gateway</h1>" + b"x" * 5000
    error = errors.from_answer(status, page, {"content-type": "text/html; charset=utf-8"})
    assert type(error) is errors.ProtocolError
    assert error.retryable is retryable
    assert "text/html, '<html><h1>Bad Gateway</h1>" in error.message
    assert len(error.message) < 400


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"{}", b'{"error": "nope"}', b"[]"])
def test_a_body_without_our_problem_is_foreign(body: bytes) -> None:
    assert type(errors.from_answer(503, body, {})) is errors.ProtocolError


@pytest.mark.parametrize(
    ("status", "said", "retryable"),
    [
        (500, True, True),
        (500, False, False),
        (429, False, True),
        (408, True, True),
        (503, False, True),
        (422, True, False),
        (404, True, False),
    ],
)
def test_whether_a_problem_is_retried(status: int, said: bool, retryable: bool) -> None:
    error = errors.from_answer(status, problem("internal", retryable=said), {})
    assert error.retryable is retryable


def test_a_lost_sandbox_is_not_asked_again_but_one_that_could_not_be_had_is() -> None:
    lost = errors.from_answer(503, problem("sandbox_lost", retryable=True), {})
    assert not lost.retryable
    assert errors.from_answer(503, problem("sandbox_unavailable"), {}).retryable


@pytest.mark.parametrize(
    ("header", "body_seconds", "expected"),
    [
        ("7", None, 7.0),
        ("7", 2.5, 7.0),
        ("2", 2.5, 2.5),
        (None, 2.5, 2.5),
        (None, None, None),
        ("Tue, 14 Nov 2023 22:13:50 GMT", None, 30.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", None, 0.0),
        ("soon", None, None),
        ("-3", None, None),
        ("9" * 400, None, None),
        (None, float("inf"), None),
        (None, float("nan"), None),
        (None, -1.0, None),
    ],
)
def test_retry_after(
    header: str | None, body_seconds: float | None, expected: float | None
) -> None:
    headers = {} if header is None else {"retry-after": header}
    body = problem("busy", retry_after_seconds=body_seconds)
    assert errors.from_answer(429, body, headers, now=NOW).retry_after_seconds == expected


def test_a_retry_after_date_is_measured_by_the_answers_own_clock() -> None:
    headers = {
        "retry-after": "Tue, 14 Nov 2023 22:13:50 GMT",
        "date": "Tue, 14 Nov 2023 22:13:45 GMT",
    }
    assert errors.from_answer(503, b"", headers, now=0.0).retry_after_seconds == 5.0


@pytest.mark.parametrize(
    ("cause", "kind", "retryable"),
    [
        (httpx.ConnectError("refused"), errors.ProctorConnectionError, True),
        (httpx.RemoteProtocolError("cut"), errors.ProctorConnectionError, True),
        (httpx.ReadTimeout("slow"), errors.ProctorTimeoutError, True),
        (httpx.ConnectTimeout("slow"), errors.ProctorTimeoutError, True),
        (httpx.LocalProtocolError("bad header"), errors.ProctorConnectionError, False),
        (httpx.DecodingError("bad gzip"), errors.ProctorConnectionError, True),
    ],
)
def test_what_the_transport_raises(
    cause: httpx.RequestError, kind: type[errors.ProctorError], retryable: bool
) -> None:
    error = errors.from_transport(cause)
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.status_code is None
    assert error.__cause__ is cause


def test_errors_survive_pickling_between_processes() -> None:
    error = errors.from_answer(429, problem("busy", retry_after_seconds=3), {})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.BusyError
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


def test_a_timeout_survives_pickling_with_its_output() -> None:
    result = wire.ExecResult(stdout="half", ending="wall_limit")
    error = errors.SandboxTimeoutError("command timed out after 1 second", result)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.result == result
    assert str(copy) == "sandbox_timeout: command timed out after 1 second"
    assert not copy.retryable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.from_transport(httpx.ConnectError("refused")), True),
        (errors.from_transport(httpx.ConnectTimeout("slow")), True),
        (errors.from_transport(httpx.PoolTimeout("full")), True),
        (errors.from_transport(httpx.ReadTimeout("slow")), False),
        (errors.from_transport(httpx.ReadError("reset")), False),
        (errors.from_transport(httpx.RemoteProtocolError("cut")), False),
        (errors.from_answer(429, problem("busy"), {}), True),
        (errors.from_answer(429, problem("quota_exceeded"), {}), True),
        (errors.from_answer(503, problem("draining"), {}), True),
        (errors.from_answer(408, problem("invalid_request"), {}), True),
        (errors.from_answer(408, b"<html>", {}), False),
        (errors.from_answer(503, problem("sandbox_unavailable"), {}), False),
        (errors.from_answer(500, problem("internal", retryable=True), {}), False),
        (errors.from_answer(503, b"<html>", {}), False),
        (errors.from_answer(502, b"<html>", {}), False),
        (errors.from_problem(wire.Problem(reason="draining", message=""), status=None), False),
    ],
)
def test_what_surely_did_not_begin(error: errors.ProctorError, expected: bool) -> None:
    assert errors.surely_unbegun(error) is expected


def test_a_reason_of_ones_own_is_kept_by_each_class() -> None:
    assert errors.SandboxStoppedError("gone").reason == "sandbox_stopped"
    assert issubclass(errors.SandboxFileError, errors.SandboxError)
