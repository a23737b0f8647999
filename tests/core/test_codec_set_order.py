"""A set iterates on the receiving side as on the sending side, when both have the same hash seed."""

from __future__ import annotations

import os
import random
import socket
from typing import Any

import pytest

from proctor_service.codec import set_order, values
from proctor_service.guest.channel import Channel

SETS = 2500


def item(chance: random.Random) -> Any:
    """Something hashable: a number, a text, a tuple, a frozenset."""
    kind = chance.random()
    if kind < 0.4:
        return chance.randrange(-10, 10 ** chance.randrange(1, 20))
    if kind < 0.7:
        return "".join(chance.choice("abcdé") for _ in range(chance.randrange(6)))
    if kind < 0.8:
        return chance.random() * 100
    if kind < 0.95:
        return chance.randrange(50), str(chance.randrange(9))
    return frozenset(range(chance.randrange(5)))


def items(chance: random.Random) -> list[Any]:
    count = int(2 ** chance.uniform(0, 9))
    kind = chance.randrange(3)
    if kind == 0:
        return [chance.randrange(count * 4 + 1) for _ in range(count)]
    if kind == 1:
        return [chance.randrange(2**62) for _ in range(count)]
    return [item(chance) for _ in range(count)]


def some_set(chance: random.Random) -> Any:
    """A set with a history: grown, shrunk, copied, or made by an operation."""
    base = items(chance)
    count = len(base)
    found = set(base)
    history = chance.randrange(7)
    if history == 1:
        found = set()
        for each in base:
            found.add(each)
    elif history == 2:
        found = {*base}
        for each in base:
            if chance.random() < 0.6:
                found.discard(each)
    elif history == 3:
        found = set(base[: count // 2]) | set(base[count // 3 :])
    elif history == 4:
        found = set(base) - set(base[count // 2 :])
    elif history == 5:
        found ^= {*base[count // 4 : count // 2], 1, 2, 3}
        found.difference_update(base[: count // 4])
        found.update(dict.fromkeys(base[::5]))
    elif history == 6:
        found = found.copy()
        while len(found) > count // 3:
            found.pop()
    if chance.random() < 0.3:
        return frozenset(found) if chance.random() < 0.5 else frozenset([*found]) | set(base[:3])
    return found


def sends(descriptor: int, seed: int) -> None:
    """Sends sets, and the order of each; takes each back, and says whether it is as it was."""
    channel, chance = Channel(descriptor), random.Random(seed)
    for _ in range(SETS):
        value = some_set(chance)
        channel.send(values.dumps(values.encode([value, [*value]])))
        back = values.decode(values.loads(channel.receive() or b""))
        alike = type(back) is type(value) and [*back] == [*value]
        channel.send(values.dumps(alike))


@pytest.fixture(autouse=True)
def no_threads_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that some other test left behind would keep a sender from reading tables."""
    monkeypatch.setattr(set_order, "_threads", lambda: 0)


def test_two_forks_see_every_set_in_the_same_order() -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            sends(theirs.fileno(), 7)
        finally:
            os._exit(0)
    theirs.close()
    channel, different, returned = Channel(ours.fileno()), 0, 0
    for _ in range(SETS):
        value, order = values.decode(values.loads(channel.receive() or b""))
        assert type(value) in (set, frozenset)
        assert len(value) == len(order)
        different += [*value] != order
        channel.send(values.dumps(values.encode(value)))
        returned += channel.receive() == b"true"
    ours.close()
    os.waitpid(pid, 0)
    # A frozenset's table cannot always be brought to the same size; see `set_order.freeze`.
    assert different <= SETS // 500
    assert returned >= SETS - SETS // 500


def test_no_item_with_code_of_its_own_is_hashed() -> None:
    class Loud:
        armed = False

        def __hash__(self) -> int:
            if Loud.armed:
                raise RuntimeError("asked")
            return 1

    value = {Loud(), 1, 2, 2**61}
    Loud.armed = True
    assert values.encode(value)[0] == "s"
    assert set_order.layout_of({(1, Loud)}) is None


@pytest.mark.parametrize(
    "layout",
    [[8, [0, 1]], [1 << 20, [1, 0]], [64, [0, -1, -2, -3, -64, 1]], [8, [-2, 1, -1, 0, -3]]],
)
def test_a_forged_layout_changes_no_content(layout: list[Any]) -> None:
    for tag, cls in (("so", set), ("fso", frozenset)):
        back = values.decode([tag, layout, 1, "x"])
        assert type(back) is cls
        assert back == {1, "x"}
        assert all(type(each) in (int, str) for each in back)


def test_a_layout_of_a_huge_table_counts_as_size() -> None:
    with pytest.raises(values.Malformed, match="large"):
        values.decode(["l", *[["so", [1 << 20, [0, 1]], 1, 2]] * 16])


def test_a_receiver_without_ctypes_gets_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_order, "ctypes", None)
    value = {n * 64 for n in range(20)}
    for number in range(15):
        value.discard(number * 64)
    assert values.decode(values.encode(value)) == value
