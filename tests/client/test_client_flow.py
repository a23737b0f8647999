"""The protocol by itself: the flows driven by hand, without a client, a server or a wait."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import httpx
import pytest

from proctor_client import errors, wire
from proctor_client._answers import Lines
from proctor_client._flow import (
    LONGEST_RETRY_AFTER_SECONDS,
    Answer,
    Call,
    Emit,
    Flow,
    Policy,
    Read,
    Reply,
    Send,
    Sleep,
    answer_flow,
    stream_flow,
)
from proctor_client.testing import FakeClock

T = TypeVar("T")

GET = Call("GET", "/capacity", answer_seconds=30.0)
POST = Call("POST", "/reward", answer_seconds=630.0, content=b"{}", key="k-1")
ONCE = Call("POST", "/sandboxes/sb_1/exec", 90.0, content=b"{}", repeatable=False)
FINE = Answer(200, {}, b"fine")


def down() -> errors.ProctorError:
    """What a transport reports while the service is away."""
    return errors.ProctorConnectionError("refused", retryable=True)


def unreachable() -> errors.ProctorError:
    """What a transport reports of a port where nobody listens."""
    return errors.from_transport(httpx.ConnectError("refused"))


def refusal(status: int, reason: str = "busy", **headers: str) -> Answer:
    body = json.dumps({"error": {"reason": reason, "message": "no"}}).encode()
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def drive(flow: Flow[T], replies: Iterable[Reply], clock: FakeClock) -> tuple[list[Send], list[T]]:
    """Answer each Send and Read by the next of `replies`; the sends, and what was emitted."""
    sends: list[Send] = []
    emitted: list[T] = []
    script = iter(replies)
    reply: Reply = None
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return sends, emitted
        reply = None
        if isinstance(step, Sleep):
            clock.sleep(step.seconds)
        elif isinstance(step, Emit):
            emitted.append(step.item)
        elif isinstance(step, Send):
            sends.append(step)
            reply = next(script)
        else:
            assert isinstance(step, Read)
            reply = next(script)


def ask(
    replies: Iterable[Reply], clock: FakeClock, call: Call = POST, policy: Policy | None = None
) -> list[Send]:
    """The sends of one call whose answers are `replies`."""
    flow = answer_flow(call, bytes.decode, policy or Policy(), clock)
    sends, emitted = drive(flow, replies, clock)
    assert emitted == ["fine"]
    return sends


@pytest.mark.parametrize(
    ("seconds", "chance", "waited"),
    [(1, 0.0, 1.0), (5, 0.0, 5.0), (40, 0.0, 40.0), (5, 0.5, 5.5), (86400, 0.0, LONGEST_RETRY_AFTER_SECONDS)],
)  # fmt: skip
def test_retry_after_is_waited_for_with_a_chance_added_and_up_to_a_cap(
    seconds: int, chance: float, waited: float
) -> None:
    clock = FakeClock(fixed_chance=chance)
    ask([refusal(429, retry_after=str(seconds)), FINE], clock)
    assert clock.sleeps == [waited]


def test_no_wait_when_more_is_asked_for_than_is_left() -> None:
    clock = FakeClock()
    policy = Policy(retry_budget_seconds=10.0)
    with pytest.raises(errors.BusyError) as caught:
        ask([refusal(503, retry_after="11")], clock, policy=policy)
    assert clock.sleeps == []
    assert caught.value.retry_after_seconds == 11.0


@pytest.mark.parametrize(
    "failure", [down(), refusal(408), refusal(429), refusal(502), refusal(503), refusal(504)]
)
def test_one_key_over_all_attempts(failure: Reply) -> None:
    sends = ask([failure, failure, failure, FINE], FakeClock())
    assert [send.headers["Idempotency-Key"] for send in sends] == ["k-1"] * 4
    assert {send.content for send in sends} == {b"{}"}


@pytest.mark.parametrize("call", [GET, ONCE])
def test_a_call_without_a_key_carries_none(call: Call) -> None:
    [send] = ask([FINE], FakeClock(), call)
    assert "Idempotency-Key" not in send.headers


@pytest.mark.parametrize(
    "turned_away",
    [refusal(429), refusal(429, "quota_exceeded"), refusal(503, "draining"), unreachable()],
)
def test_what_must_run_once_is_sent_again_when_it_surely_did_not_begin(turned_away: Reply) -> None:
    clock = FakeClock()
    assert len(ask([turned_away, turned_away, FINE], clock, ONCE)) == 3
    assert len(clock.sleeps) == 2


@pytest.mark.parametrize(
    "failure",
    [
        down(),
        errors.ProctorTimeoutError("slow", retryable=True),
        refusal(500, "internal"),
        refusal(502),
        refusal(504),
        Answer(503, {}, b"<html>a proxy's page</html>"),
        refusal(503, "sandbox_lost"),
    ],
)
def test_what_must_run_once_is_never_sent_again_when_it_may_have(failure: Reply) -> None:
    clock = FakeClock()
    with pytest.raises(errors.ProctorError):
        ask([failure], clock, ONCE)
    assert clock.sleeps == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 500, 501, 301])
def test_what_is_not_retried(status: int) -> None:
    clock = FakeClock()
    with pytest.raises(errors.ProctorError) as caught:
        ask([refusal(status)], clock)
    assert caught.value.status_code == status
    assert clock.sleeps == []


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
def test_the_defaults_outlive_a_restart_however_the_dice_fall(chance: float) -> None:
    clock = FakeClock(fixed_chance=chance)
    with pytest.raises(errors.ProctorConnectionError) as caught:
        ask([down() for _ in range(8)], clock)
    assert caught.value.__notes__ == ["Gave up after 8 attempts."]
    assert len(clock.sleeps) == 7
    assert 45.0 <= sum(clock.sleeps) <= 60.0
    assert max(clock.sleeps) <= 30.0


def test_each_attempt_falls_into_its_own_part_of_the_outage() -> None:
    clock = FakeClock(fixed_chance=0.25)
    ask([down(), down(), down(), down(), FINE], clock)
    moments = [sum(clock.sleeps[: count + 1]) for count in range(4)]
    assert moments == [0.25, 1.5, 4.0, 9.0]


def test_attempts_are_bounded() -> None:
    clock = FakeClock()
    with pytest.raises(errors.ProctorConnectionError):
        ask([down() for _ in range(3)], clock, policy=Policy(max_attempts=3))
    assert len(clock.sleeps) == 2
    with pytest.raises(errors.ProctorConnectionError):
        ask([down()], FakeClock(), policy=Policy(max_attempts=1))


def test_waits_together_stay_within_the_budget() -> None:
    clock = FakeClock(fixed_chance=0.5)
    with pytest.raises(errors.ProctorConnectionError):
        ask([down() for _ in range(8)], clock, policy=Policy(retry_budget_seconds=5.0))
    assert clock.sleeps == [0.5, 1.5, 3.0]


def test_no_attempt_may_wait_longer_than_what_is_left() -> None:
    clock = FakeClock(fixed_chance=0.5)
    policy = Policy(retry_budget_seconds=20.0, connect_timeout_seconds=10.0)
    flow = answer_flow(GET, bytes.decode, policy, clock)
    first = next(flow)
    assert isinstance(first, Send)
    assert (first.connect_seconds, first.read_seconds) == (10.0, 30.0)
    clock.now += 44.0  # a hung attempt: 6 of 50 seconds are left
    sleep = flow.send(errors.ProctorTimeoutError("slow", retryable=True))
    assert sleep == Sleep(0.5)
    clock.now += 0.5
    second = flow.send(None)
    assert isinstance(second, Send)
    assert (second.connect_seconds, second.read_seconds) == (5.5, 5.5)


def test_an_attempt_after_an_overslept_wait_still_has_some_time() -> None:
    clock = FakeClock(fixed_chance=0.5)
    flow = answer_flow(GET, bytes.decode, Policy(retry_budget_seconds=20.0), clock)
    next(flow)
    clock.now += 44.0
    assert isinstance(flow.send(errors.ProctorTimeoutError("slow", retryable=True)), Sleep)
    clock.now += 7.0  # instead of half a second; the call ended a second ago
    last = flow.send(None)
    assert isinstance(last, Send)
    assert 0 < last.connect_seconds <= last.read_seconds < 1
    with pytest.raises(errors.ProctorTimeoutError):
        flow.send(errors.ProctorTimeoutError("slow", retryable=True))


def test_the_time_of_a_call_ends() -> None:
    clock = FakeClock(fixed_chance=0.5)
    flow = answer_flow(GET, bytes.decode, Policy(), clock)
    next(flow)
    clock.now += 90.0
    with pytest.raises(errors.ProctorTimeoutError):
        flow.send(errors.ProctorTimeoutError("slow", retryable=True))


# ---------------------------------------------------------------- streams


def line(index: int, **more: object) -> bytes:
    said = {
        "index": index,
        "evaluation_id": f"ev_{index}",
        "reward": 1.0,
        "verdict": "passed",
        "integrity": "separated",
        "cache": "miss",
    }
    return json.dumps({**said, **more}, ensure_ascii=False).encode() + b"\n"


def summary(count: int) -> bytes:
    counts = {"count": count, "judged": count, "passed": count, "no_code": 0, "errors": 0}
    return json.dumps({"summary": {**counts, "mean_reward": 1.0}}).encode() + b"\n"


OPEN = Answer(200, {}, b"")


def noting(flow: Flow[Any], found: list[int]) -> Flow[Any]:
    """The same flow; `found` gets the index of each result."""
    reply: Reply = None
    try:
        while True:
            step = flow.send(reply)
            if isinstance(step, Emit):
                found.append(step.item.index)
            reply = yield step
    except StopIteration:
        return


def stream(
    replies: Iterable[Reply], count: int, clock: FakeClock, policy: Policy | None = None
) -> tuple[list[Send], list[int], wire.Summary]:
    """The sends of one stream, the indices in the order of their coming, and the summary."""
    flow = stream_flow(POST, count, policy or Policy(), clock)
    sends, emitted = drive(flow, replies, clock)
    *results, last = emitted
    assert isinstance(last, wire.Summary)
    return sends, [each.index for each in results if isinstance(each, wire.Result)], last


def test_a_broken_stream_is_resumed_with_the_same_key_and_without_duplicates() -> None:
    clock = FakeClock()
    replies: list[Reply] = [OPEN, line(2), line(0), down()]
    replies += [OPEN, line(0) + line(2) + line(1), line(3), summary(4), None]
    sends, indices, last = stream(replies, 4, clock)
    assert indices == [2, 0, 1, 3]
    assert last.count == 4
    assert len({send.headers["Idempotency-Key"] for send in sends}) == 1
    assert len(sends) == 2


def test_a_line_cut_in_two_by_a_lost_connection_is_no_result() -> None:
    replies: list[Reply] = [
        OPEN,
        line(0) + line(1)[:20],
        None,
        OPEN,
        line(0),
        line(1),
        summary(2),
        None,
    ]
    _, indices, _ = stream(replies, 2, FakeClock())
    assert indices == [0, 1]


def test_progress_starts_the_count_of_attempts_anew() -> None:
    replies: list[Reply] = []
    for index in range(5):
        replies += [OPEN, line(index), down()]
    replies += [OPEN, summary(5), None]
    sends, indices, _ = stream(replies, 5, FakeClock(), Policy(max_attempts=2))
    assert indices == [0, 1, 2, 3, 4]
    assert len(sends) == 6


def test_a_stream_without_progress_gives_up() -> None:
    replies: list[Reply] = [OPEN, line(0), down(), OPEN, line(0), down(), OPEN, line(0), down()]
    with pytest.raises(errors.ProctorConnectionError):
        stream(replies, 2, FakeClock(), Policy(max_attempts=2))


def test_a_stream_ends_with_the_time_of_its_call_although_results_still_arrive() -> None:
    """A service that was restarted gives the batch a new deadline: 630 s and 60 s are over."""
    clock = FakeClock()

    def replies() -> Iterator[Reply]:
        yield OPEN
        yield line(0)
        clock.now += 300.0
        yield down()
        yield OPEN
        yield line(0)
        for index in range(1, 5):
            clock.now += 100.0
            yield line(index)

    found: list[int] = []
    with pytest.raises(errors.ProctorTimeoutError, match="incomplete after 690 s") as caught:
        drive(noting(stream_flow(POST, 9, Policy(), clock), found), replies(), clock)
    assert not caught.value.retryable
    assert found == [0, 1, 2, 3, 4]  # what arrived with the last data counts
    assert clock.now == 700.0


def test_a_stream_that_is_complete_needs_no_more_time() -> None:
    clock = FakeClock()

    def replies() -> Iterator[Reply]:
        yield OPEN
        clock.now += 700.0
        yield line(0) + summary(1)
        yield None

    _, indices, _ = stream(replies(), 1, clock)
    assert indices == [0]


def test_no_read_of_a_stream_may_wait_longer_than_what_is_left() -> None:
    clock = FakeClock()
    flow = stream_flow(POST, 2, Policy(), clock)
    next(flow)
    clock.now += 100.0
    assert flow.send(OPEN) == Read(590.0)
    clock.now += 589.0
    assert isinstance(flow.send(line(0)), Emit)
    assert flow.send(None) == Read(1.0)


def test_the_time_for_which_the_caller_holds_a_result_does_not_count() -> None:
    clock = FakeClock()
    flow = stream_flow(POST, 2, Policy(), clock)
    next(flow)
    flow.send(OPEN)
    assert isinstance(flow.send(line(0)), Emit)
    clock.now += 3600.0
    assert flow.send(None) == Read(690.0)


def test_a_problem_in_the_stream_is_raised_or_retried_by_its_word() -> None:
    def said(retryable: bool) -> bytes:
        problem = {"reason": "draining", "message": "bye", "retryable": retryable}
        return json.dumps({"error": problem}).encode() + b"\n"

    _, indices, _ = stream([OPEN, said(True), OPEN, line(0), summary(1), None], 1, FakeClock())
    assert indices == [0]
    with pytest.raises(errors.DrainingError):
        stream([OPEN, said(False)], 1, FakeClock())


@pytest.mark.parametrize(
    "text",
    [
        b"<html>\n",
        b"[1]\n",
        b'{"index": "first"}\n',
        line(2),  # of two
        line(-1),
        line(0) + summary(2),  # one is missing
    ],
)
def test_a_stream_that_breaks_the_contract(text: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        stream([OPEN, text], 2, FakeClock())


def test_lines_end_at_newlines_alone() -> None:
    text = line(0, stdout="a\u2028b\x85c\x1cd") + b"\n" + line(1, stdout="\u00e9\r")
    lines = Lines()
    cut = [whole for byte in text for whole in lines.feed(bytes([byte]))]
    assert [json.loads(each)["stdout"] for each in cut] == ["a\u2028b\x85c\x1cd", "\u00e9\r"]


def test_a_last_line_needs_no_newline_if_it_is_whole() -> None:
    replies: list[Reply] = [OPEN, line(0), summary(1).rstrip(), None, None]
    _, indices, last = stream(replies, 1, FakeClock())
    assert (indices, last.count) == ([0], 1)
