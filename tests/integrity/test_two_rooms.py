"""Objects that tests hand over, and calls that end without an answer: what goes, and what does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inside_rooms import Rooms
from proctor_service.inside.decoys import decoys_of


@pytest.fixture(scope="module")
def rooms() -> Iterator[Rooms]:
    pair = Rooms()
    yield pair
    pair.close()


STOPS = """
def first(items): return next(iter(items))
def stop(*ignored): raise StopIteration
class Few:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.n
    def take(self): return next(self)
def sub():
    got = yield 1
    yield got
"""


@pytest.mark.parametrize(
    "test",
    [
        "assert list(Few(3)) == [2, 1, 0] and [*map(first, [[1], [2]])] == [1, 2]",
        "f = Few(1)\nassert next(f) == 0 and next(f, None) is None",
        "try: first([])\nexcept StopIteration: pass\nelse: assert False",
        "f = Few(0)\ntry: f.take()\nexcept StopIteration as stop: assert stop.value is None\nelse: assert 0",
        "g = sub()\nassert next(g) == 1 and g.send(5) == 5 and list(g) == []",
        "try: first([])\nexcept Exception as error: assert type(error).__name__ == 'RuntimeError'",
    ],
)
def test_iterators_stop_where_they_may(rooms: Rooms, test: str) -> None:
    rooms.passes(STOPS, [test])


@pytest.mark.parametrize(
    "test",
    [
        "assert all(map(stop, [2, 3]))",
        "assert sum(map(stop, [2, 3])) == 0",
        "assert [*filter(stop, [2, 3])] == []",
        "for x in map(stop, [1]): assert False",
    ],
)
def test_a_call_ends_no_loop_of_the_tests(rooms: Rooms, test: str) -> None:
    reports = rooms.judge(STOPS, [test])
    assert reports[0][2] == "raised"
    assert "RuntimeError" in reports[0][3]


HANDED = """
def note(thing, name, value): setattr(thing, name, value)
def forget(thing, name): delattr(thing, name)
"""
THING = """
class Thing:
    color = "red"
    parent = None
    def __init__(self): self._size = 1
    def answer(self): return 42
    @staticmethod
    def fixed(): return 7
    @classmethod
    def made(cls): return cls
    @property
    def size(self): return self._size
    @size.setter
    def size(self, value): self._size = value
t = Thing()
"""


@pytest.mark.parametrize(
    "test",
    [
        "note(t, 'color', 'blue')\nassert t.color == 'blue'",
        "note(t, 'parent', t)\nassert t.parent is t",
        "note(t, 'size', 5)\nassert t.size == 5",
        "note(t, 'new', [1])\nassert t.new == [1]\nforget(t, 'new')\nassert not hasattr(t, 'new')",
        *(
            f"try: note(t, {name!r}, lambda: 0)\nexcept AttributeError: pass\nelse: assert False\n"
            f"assert t.{name}() == {answer}"
            for name, answer in [("answer", 42), ("fixed", 7), ("made", "Thing")]
        ),
    ],
)
def test_fields_of_the_tests_objects_may_be_set_and_methods_may_not(
    rooms: Rooms, test: str
) -> None:
    rooms.passes(HANDED, [THING + test])


MOCKS = """
def tell(send, deed=None):
    send.now('wrong')
    if deed: exec(deed)
def show(deed=None):
    print('wrong')
    if deed: exec(deed)
nothing = lambda *ignored: None
"""


@pytest.mark.parametrize(
    "deed",
    [
        "{0}.configure_mock(assert_called_once_with=nothing)",
        "{0}.attach_mock(nothing, 'assert_called_once_with')",
        "{0}.assert_called_once_with = nothing",
        "{0}.reset_mock(); {0}('right')",
        "{0}.mock_calls.clear(); {0}.call_args_list.clear()",
        "{0}.side_effect.clear()",
    ],
)
def test_a_submission_calls_mocks_and_does_not_set_them_up(rooms: Rooms, deed: str) -> None:
    handed = """
from unittest.mock import Mock, patch
send = Mock()
try: tell(send, %r)
except AttributeError as error: refused = error
send.now.assert_called_once_with(%r)
"""
    patched = """
from unittest.mock import patch
with patch('builtins.print') as put:
    try: show(%r)
    except AttributeError as error: refused = error
put.assert_called_once_with(%r)
"""
    for test, name in ((handed, "send.now"), (patched, "print")):
        said = deed.format(name)
        refused = "assert 'for the tests' in str(refused)"
        rooms.passes(MOCKS, [test % (said, "wrong") + refused])
        assert rooms.outcomes(MOCKS, [test % (said, "right")]) == ["failed"]


# What is evaluated in a room says so there.
EVALUATED = """
import builtins, inspect
MARK = "vars(__import__('builtins')).update(evaluated=True)"
def f(x: "int", y: "list[Node]" = None) -> None: pass
class Node: pass
class Text(str):
    def isidentifier(self): return True
    def __str__(self): return f"g(): pass\\n{MARK}\\ndef f"
class Forged:
    def __call__(self): return 5
    __globals__ = {}
    __code__, __signature__, __defaults__, __kwdefaults__ = f.__code__, inspect.signature(f), None, None
Forged.__module__, Forged.__qualname__ = 'builtins', 'function'
forged = Forged()
forged.__name__ = Text('f')
forged.__annotations__ = {'x': MARK, 'y': Text(MARK), 'z': 'not ' + MARK}
def plain(x): pass
plain.__annotations__ = {'x': 'no_such_name or ' + MARK}
"""


@pytest.mark.parametrize(
    "use",
    [
        "typing.get_type_hints(forged)",
        "inspect.get_annotations(forged, eval_str=True)",
        "functools.singledispatch(forged)",
        "functools.singledispatch(lambda x: 0).register(forged)",
        "typing.get_type_hints(plain)",
        "unittest.mock.create_autospec(forged)",
        "unittest.mock.create_autospec(functools.wraps(forged)(lambda x: 0))",
    ],
)
def test_no_code_of_the_tests_is_made_of_what_a_submission_says(rooms: Rooms, use: str) -> None:
    test = f"""
import builtins, functools, inspect, typing, unittest.mock
try: {use}
except (TypeError, AttributeError, NameError): pass
assert not hasattr(builtins, 'evaluated')
"""
    rooms.passes(EVALUATED, [test])


def test_annotations_are_evaluated_beside_the_submission(rooms: Rooms) -> None:
    test = """
import inspect, typing
hints = typing.get_type_hints(f)
assert (hints['x'], hints['return']) == (int, type(None)) and inspect.get_annotations(f)['x'] is int
assert f.__annotations__['return'] is None and 'y' in f.__annotations__ and f.__name__ == 'f'
"""
    rooms.passes(EVALUATED, [test])


@pytest.mark.parametrize(
    "value", [17, 0, 2.5, "nothing", [3, 1, 2], (1, 2), {"a": 1}, {1, 2}, b"ab"]
)
def test_a_value_hides_among_many(value: object) -> None:
    decoys = decoys_of(value, ["something", 3, 99])
    assert len(decoys) >= 6
    assert value not in decoys
    assert all(type(decoy) is type(value) for decoy in decoys)
