"""JSON with integers of any length, under each limit of Python's own conversions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor_client._requests import encode
from proctor_client.testing import FakeProctor
from proctor_client.wire import CallsGrader, RewardRequest, long_integers

LONG = 7**20_000  # 16,902 digits


@pytest.fixture(params=[640, 4300], autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield
    sys.set_int_max_str_digits(before)


def unlimited(value: int) -> str:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return str(value)
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("bits", [1, 1989, 1990, 1991, 2126, 2127, 14_283, 20_000, 50_001])
def test_there_and_back(bits: int) -> None:
    for value in (2**bits - 1, 2**bits, 2**bits + 1, -(2**bits)):
        digits = long_integers.digits_of(value)
        assert digits == unlimited(value)
        assert long_integers.integer(digits) == value
        text = long_integers.dumps({"a": [value, 0.5, "x", None]})
        assert text == f'{{"a": [{digits}, 0.5, "x", null]}}'
        assert long_integers.loads(text) == {"a": [value, 0.5, "x", None]}


@given(st.integers(0, 10**9), st.integers(1, 40))
def test_zeros_stay_where_they_are(end: int, times: int) -> None:
    text = "1" + "0" * (times * 97) + str(end)
    assert long_integers.digits_of(long_integers.integer(text)) == text


def test_only_what_is_no_json_is_refused() -> None:
    for text in ("", "[1", "1" * 5000 + "x", "--1", "1" * 100_001):
        with pytest.raises(ValueError):  # noqa: PT011
            long_integers.loads(text)
    with pytest.raises(ValueError, match="not JSON compliant"):
        long_integers.dumps([float("nan"), LONG], json.JSONEncoder(allow_nan=False))


def test_a_request_has_them() -> None:
    grader = CallsGrader(
        kind="calls", entry_point="f", cases=[{"args": [[LONG]], "expected": -LONG}]
    )
    request = RewardRequest(submissions=[{"completion": "x"}], grader=grader)
    sent = long_integers.loads(encode(request))
    assert sent["grader"]["cases"] == [{"args": [[LONG]], "expected": -LONG}]


def test_the_fake_service_takes_them() -> None:
    cases = [{"args": [LONG], "expected": -LONG}]
    with FakeProctor(lambda submission: 1.0).client() as client:
        result = client.reward(["x"], grader={"kind": "calls", "entry_point": "f", "cases": cases})
    assert [each.reward for each in result.results] == [1.0]
