"""The conversation between two interpreters: here two threads, or one side and a script of lines."""

import gc
import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proctor_service.inside.peer import Gone, Peer, Unusable
from proctor_service.inside.sides import Asking, SubmissionSide, TestSide


class Line:
    """One end of a line between threads."""

    def __init__(self, out: "queue.Queue[bytes | None]", into: "queue.Queue[bytes | None]") -> None:
        self._out = out
        self._into = into
        self.sent: list[Any] = []

    def send(self, line: bytes) -> None:
        self.sent.append(json.loads(line))
        self._out.put(line)

    def receive(self) -> bytes | None:
        return self._into.get(timeout=60)


Join = Callable[..., Asking]


@pytest.fixture
def join() -> Iterator[Join]:
    """Make a submission's side from source text; returns the tests' side."""
    joined: list[tuple[Line, threading.Thread]] = []

    def make(source: str) -> Asking:
        there: queue.Queue[bytes | None] = queue.Queue()
        back: queue.Queue[bytes | None] = queue.Queue()
        namespace: dict[str, Any] = {"__name__": "submission"}
        exec(source, namespace)
        served = Peer(Line(back, there), SubmissionSide(namespace), first=1)
        namespace["peer"] = served
        thread = threading.Thread(target=served.serve)
        thread.start()
        line = Line(there, back)
        joined.append((line, thread))
        return Asking(line, TestSide())

    yield make
    for line, thread in joined:
        line.send(b'["bye"]\n')
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_calls_nest(join: Join) -> None:
    peer = join("def f(g, n): return n if n == 0 else g(n - 1) + 1")
    f = peer.request("name", "f")

    def g(n: int) -> Any:
        return f(g, n)

    assert f(g, 20) == 20


def test_one_stand_in_for_one_object(join: Join) -> None:
    peer = join(
        "class C: pass\nc = C()\nd = [c, c]\ndef same(x): return x is c\ndef back(x): return x"
    )
    c = peer.request("name", "c")
    assert peer.request("name", "c") is c
    assert all(part is c for part in peer.request("name", "d"))
    assert type(c) is peer.request("name", "C")
    assert peer.request("name", "same")(c) is True
    own = [object(), lambda: 1]
    assert peer.request("name", "back")(own[1]) is own[1]


def test_what_is_no_longer_used_is_let_go(join: Join) -> None:
    peer = join(
        "import weakref\nclass C: pass\ndead = []\n"
        "def make():\n    c = C()\n    weakref.finalize(c, dead.append, 1)\n    return c\n"
        "def count(): return len(dead)\n"
    )
    made = [peer.request("name", "make")() for _ in range(5)]
    assert peer.request("name", "count")() == 0
    del made[1:]
    peer.forget_last()
    gc.collect()
    peer.request("name", "count")()
    assert peer.request("name", "count")() == 4


def test_containers_are_kept_alike_and_then_forgotten(join: Join) -> None:
    peer = join(
        "kept = {}\ndef keep(x): kept['x'] = x\ndef grow(): kept['x'].append([len(kept['x'])])"
    )
    mine: list[Any] = []
    peer.request("name", "keep")(mine)
    grow = peer.request("name", "grow")
    grow()
    assert mine == [[0]]
    mine[0].append("here")
    grow()
    assert mine == [[0, "here"], [1]]
    assert peer.request("name", "kept")["x"] is mine
    alive = len(peer.shared.unused())
    mine = []
    peer.request("name", "grow")
    assert alive <= 2


def test_a_stale_answer_is_taken_note_of_and_dropped(join: Join) -> None:
    peer = join(
        "class Stop(BaseException): pass\n"
        "def f(g):\n"
        "    receive = peer._channel.receive\n"
        "    def interrupted():\n"
        "        peer._channel.receive = receive\n"
        "        raise Stop\n"
        "    peer._channel.receive = interrupted\n"
        "    try: return g()\n"
        "    except Stop: return 'stopped'\n"
    )
    assert peer.request("name", "f")(lambda: [5]) == "stopped"
    assert peer.request("name", "f")(lambda: [5]) == "stopped"


def test_an_exception_crosses_back_and_forth(join: Join) -> None:
    peer = join("class E(Exception): pass\ndef f(g):\n    try: g()\n    except E as e: raise e\n")
    error = peer.request("name", "E")("mine")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        peer.request("name", "f")(fail)
    assert caught.value is error
    assert caught.value.args == ("mine",)


class Script:
    """The submission's end, played from a list of lines."""

    def __init__(self, *lines: str) -> None:
        self._lines = [line.encode() for line in lines]
        self.sent: list[Any] = []

    def send(self, line: bytes) -> None:
        self.sent.append(json.loads(line))

    def receive(self) -> bytes | None:
        return self._lines.pop(0) if self._lines else None


def asked(*lines: str) -> Any:
    return Asking(Script(*lines), TestSide()).request("name", "f")


def test_an_honest_answer() -> None:
    assert asked('["a",1,"v",["t",1,2],{"k":1}]') == (1, 2)


def test_the_end_of_the_line_is_no_exception_that_tests_catch() -> None:
    peer = Asking(Script(), TestSide())
    for _ in range(2):
        with pytest.raises(Gone):
            peer.request("name", "f")
    assert peer.gone
    assert not issubclass(Gone, Exception)


def test_answers_to_other_questions_do_not_count() -> None:
    answer = '["a",%s,"v",5,{"k":1}]'
    assert asked(*(answer % number for number in ('"1"', 7, "null", "[1]")), answer % 1) == 5
    with pytest.raises(Unusable):
        asked(*[answer % 7] * 20_000)


CLASS = '["h",2,{"k":"class","name":"C","mod":"m","bases":[],"data":%s,"flags":%s,"own":%s}]'


# For telemetry it is asked once whether it equals a decoy.
SAYS_YES = ('["a",2,"v",["h",9,{"c":["h",2]}],{"k":1}]', '["a",3,"v",true,{"k":1}]')


@pytest.mark.parametrize(
    "reference",
    [
        '["h",1]',
        '["h",1,{"c":["h",2]}]',
        '["h",1,{"c":["l"]}]',
        '["h",1,{"c":["h",2,{"k":"class","bases":[["h",2]],"data":null}]}]',
        '["h",1,{"c":%s,"base":5}]' % (CLASS % ('["T","str"]', "[]", "[]")),
        '["h",1,{"c":%s}]' % (CLASS % ('["T","list"]', "[]", "[]")),
        '["o",5]',
        '["p",5]',
        '["e",["T","int"],["t"]]',
        '["e",["T","ValueError"],["l"]]',
    ],
)
def test_references_to_nothing_are_unusable(reference: str) -> None:
    with pytest.raises((Unusable, Gone)):
        asked(f'["a",1,"v",{reference},{{"k":1}}]')


def test_a_described_class_has_only_the_methods_that_exist() -> None:
    wire = '["h",1,{"c":%s}]' % (CLASS % ("null", '["__call__","__evil__","__len__",5]', "[]"))
    found = asked(f'["a",1,"v",{wire},{{"k":1}}]', *SAYS_YES)
    assert callable(found)
    assert hasattr(type(found), "__len__")
    assert not hasattr(found.__class__.__dict__, "__evil__")
    assert found == found
    assert found != 5


def test_equality_that_the_tests_do_not_trust_is_identity() -> None:
    wire = '["h",1,{"c":%s}]' % (CLASS % ("null", '["__eq__","__lt__","__contains__"]', "[]"))
    found = asked(f'["a",1,"v",{wire},{{"k":1}}]', *SAYS_YES)
    assert found not in (5, "x", [])
    assert len({found, found}) == 1
    with pytest.raises(TypeError):
        _ = found < 3
    with pytest.raises(TypeError):
        _ = 3 in found


def test_the_content_of_a_built_in_base_decides() -> None:
    own = '["__eq__","__ne__","__len__","__iter__","__contains__","__hash__","__lt__","__bool__"]'
    wire = '["h",1,{"c":%s,"base":["t",7,9]}]' % (CLASS % ('["T","tuple"]', own, own))
    found = asked(f'["a",1,"v",{wire},{{"k":1}}]', *SAYS_YES)
    assert found == (7, 9)
    assert found != (1, 2)
    assert len(found) == 2
    assert [*found] == [7, 9]
    assert 7 in found
    assert 4 not in found
    assert sorted([found, (1, 2)]) == [(1, 2), (7, 9)]
    assert isinstance(found, tuple)


def test_requests_of_the_submission_meet_the_guard() -> None:
    script = Script(
        '["q",1,"get",["t",["o",1],"__globals__"],{"k":1}]',
        '["q",2,"call",["t",["o",1],["t",4],["t"]],{"k":1}]',
        '["q",3,"call",["t",["o",99],["t"],["t"]],{"k":1}]',
        '["q",4,"len",["t",["m",2]],{"k":1}]',
        '["a",1,"v",null,{"k":1}]',
    )
    peer = Asking(script, TestSide())
    peer.request("call", lambda x: x + 1, (), ())
    answers = [frame[:4] for frame in script.sent if frame[0] == "a"]
    assert [answer[2] for answer in answers] == ["x", "v", "x", "x"]
    assert answers[1] == ["a", 2, "v", 5]
