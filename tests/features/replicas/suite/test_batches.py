"""A batch over several replicas with real sandboxes: all of it is judged, rightly and by all."""

from __future__ import annotations

import signal

import pytest

from fault_rig.batches import attempts, batch, judged, replicas, send
from fault_rig.processes import Process
from fault_rig.programs import wait_until

LOGGED = {"PROCTOR_LOG_LEVEL": "debug", "PROCTOR_LOG_FORMAT": "json"}


def assert_shared(found: list[Process], size: int, least: int, most: int) -> None:
    """Each replica judges between `least` and `most` items of a batch to the first, each item once.

    A machine that stops a peer for seconds has others judge its part, some of it once more, so
    another batch may follow.
    """
    seen = []
    for number in range(5):
        before = [judged(each) for each in found]
        answer = send(found[0], batch(size, number))
        assert (answer.lost, answer.wrong) == (0, 0)
        counts = [judged(each) - old for each, old in zip(found, before, strict=True)]
        if sum(counts) == size and all(least <= count <= most for count in counts):
            return
        seen.append(counts)
    raise AssertionError(seen)


def test_three_replicas_share_one_request() -> None:
    with replicas(3) as found:
        assert_shared(found, 1200, 300, 500)


def test_replicas_with_judge_processes_share_a_request() -> None:
    with replicas(2, {"PROCTOR_WORKERS": "2", "PROCTOR_SLOTS": "4"}) as found:
        assert_shared(found, 600, 150, 600)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_peer_that_is_lost_in_the_middle_loses_no_reward(sign: signal.Signals) -> None:
    with replicas(2, LOGGED) as found:
        answer = send(found[0], batch(400, 0), 60, lambda: found[1].send(sign))
        wait_until(lambda: len(attempts(found)) == 400, "not all is logged")
        counts = attempts(found)
    assert (answer.lost, answer.wrong) == (0, 0)
    assert max(counts.values()) <= 2


def test_a_peer_that_comes_back_takes_part_again() -> None:
    with replicas(2) as found:
        found[1].kill()
        assert send(found[0], batch(50, 0)).lost == 0

        def start() -> None:
            found[1].start()

        answer = send(found[0], batch(1500, 1), 20, start)
        assert (answer.lost, answer.wrong) == (0, 0)
        for number in range(2, 12):  # on a slow machine the start outlasts a batch
            if judged(found[1]) > 0:
                break
            answer = send(found[0], batch(500, number))
            assert (answer.lost, answer.wrong) == (0, 0)
        assert judged(found[1]) > 0
