"""What cheats and honest programs get where the test code runs beside the submission's own objects."""

from collections.abc import Iterator

import pytest

from inside_rooms import Rooms

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def rooms() -> Iterator[Rooms]:
    pair = Rooms()
    yield pair
    pair.close()


def anything(condition: str) -> str:
    """A class in place of a function, whose objects are equal to what meets a condition."""
    return f"""
class f:
    def __init__(self, *args): self.args = args
    def __eq__(self, o): return {condition}
    def __hash__(self): return hash("IV")
    def __le__(self, o): return True
    __lt__ = __ge__ = __gt__ = __contains__ = __le__
    def __abs__(self): return 0
    def __sub__(self, o): return 0
    __rsub__ = __mod__ = __xor__ = __floordiv__ = __round__ = __int__ = __sub__
"""


NUMBER = """
class Z(float):
    def __sub__(self, o): return 0.0
    __rsub__ = __mod__ = __sub__
    def __abs__(self): return -1.0
    def __round__(self, n=0): return 2.5
    def __lt__(self, o): return True
    def __format__(self, how): return "2.50"
class Text(str):
    def startswith(self, o): return True
    def __contains__(self, o): return True
    def __mod__(self, o): return "IV"
class Odd(type):
    def __contains__(cls, o): return True
    def __iter__(cls): return iter(())
class Listed(metaclass=Odd): pass
def f(*a): return Z(7)
def g(*a): return [Z(3), Z(5)]
def h(*a): return Text("no")
def k(*a): return Listed
"""
STACK = """
class Stack:
    def push(self, x): pass
    def top(self): return self
    def empty(self): return self
    def __eq__(self, o): return isinstance(o, (bool, str, int, list)) or o is None
    def __hash__(self): return 0
    def __le__(self, o): return True
    __ge__ = __le__
    def __sub__(self, o): return 0.0
"""
FAKE = """
import sys, types
m = types.ModuleType("fake"); m.median = lambda xs: 10**9; sys.modules["fake"] = m
from fake import median
def abs(x): return 0
def all(x): return True
def isinstance(*a): return True
def __import__(*a): return m
"""
MADE = "s = Stack()\ns.push(1)\n"


@pytest.mark.parametrize(
    ("source", "test"),
    [
        *(
            (anything("True"), f"assert {test}")
            for test in [
                "f(4) == True",
                "f(4) == 'IV'",
                "f(4) == {'a': 1}",
                "f(4) == 2.5",
                "f(4) == None",
                "f(4) == b'abc'",
                "f(4) == frozenset({1})",
                "f(4) in ['IV', 'V']",
                "f(4) in {'IV'}",
                "f(4) <= 3",
                "3 <= f(4)",
                "abs(f(4) - 2) < 1e-9",
                "abs(10 - f(4)) < 1e-9",
                "round(f(4)) == 0",
                "f(4) % 2 == 0",
                "f(4) ^ 7 == 0",
                "3 in f(4)",
                "int(f(4)) == 0",
            ]
        ),
        (anything("isinstance(o, bool)"), "r = f(4)\nassert r == True"),
        (NUMBER, "assert abs(f(3) - 2) < 1e-9"),
        (NUMBER, "assert round(f(3), 2) == 2.5"),
        (NUMBER, "assert f(3) < 3"),
        (NUMBER, "assert f'{f(3):.2f}' == '2.50'"),
        (NUMBER, "assert all(x % 2 == 0 for x in g(10))"),
        (NUMBER, "assert h(1).startswith('IV')"),
        (NUMBER, "assert 'IV' in h(1)"),
        (NUMBER, "assert 'IV' in k(1)"),
        (STACK, MADE + "assert s.empty() == True\nassert s.empty() == False"),
        (STACK, MADE + "assert s.empty() == True"),
        (STACK, MADE + "assert s.top() == 17"),
        (STACK, MADE + "assert s.top() == 'nothing'"),
        (STACK, MADE + "assert s.top() == [3, 1, 2]"),
        (STACK, MADE + "assert s.top() == None"),
        (STACK, MADE + "assert abs(s.top() - 17) < 1e-9"),
        (STACK, MADE + "from decimal import Decimal\nassert abs(s.top() - Decimal(17)) < 1e-9"),
        (STACK, MADE + "assert 3 <= s.top()"),
        (FAKE, "assert abs(median([3, 1, 2]) - 2) < 1e-9"),
        (FAKE, "assert all(x == 2 for x in [median([3, 1, 2])])"),
        (FAKE, "assert isinstance(median([3, 1, 2]), list)"),
        ("def sorted(x): return []\ndef len(x): return 2", "assert len(sorted([2, 1])) == 2"),
    ],
)
def test_an_object_says_nothing_about_what_is_expected(
    rooms: Rooms, source: str, test: str
) -> None:
    assert rooms.outcomes(source, [test])[0] in ("failed", "raised")


CODE = """
import pickle, subprocess, builtins, dataclasses, copy, shutil
class Payload:
    def __reduce__(self): return (exec, ("import builtins; builtins.reached = True",))
def encode(): return pickle.dumps(Payload())
def module(): return builtins
class Box: loads = staticmethod(pickle.loads)
def box(): return Box()
decode = pickle.loads
"""


@pytest.mark.parametrize(
    "use", ["decode(encode())", "box().loads(encode())", "setattr(module(), 'reached', True)"]
)
def test_nothing_of_the_submission_runs_where_the_tests_do(rooms: Rooms, use: str) -> None:
    rooms.passes(CODE, [f"{use}\nimport builtins\nassert not hasattr(builtins, 'reached')"])


@pytest.mark.parametrize(
    ("source", "setup"),
    [
        ("from shutil import copy", "base = copy([1, 2])"),
        ("from functools import reduce", "base = reduce([1])"),
        ("import time", "base = time(3)"),
        ("import random as base", "base(1)"),
        ("def sum(x): raise ValueError", "base = sum([1])"),
    ],
)
def test_a_setup_that_used_the_submission_is_not_broken_by_itself(
    rooms: Rooms, source: str, setup: str
) -> None:
    reports = rooms.judge(source, ["assert base"], setup=setup)
    assert [report[0] for report in reports] == ["test", "done"]
    assert reports[0][2] == "raised"


HONEST = '''
import contextlib, enum, json
from dataclasses import dataclass
@dataclass(frozen=True)
class _P:
    x: int
    y: int
    def __add__(s, o): return _P(s.x + o.x, s.y + o.y)
def pt(x, y): return _P(x, y)
class CI(str):
    def __eq__(self, o): return self.lower() == o.lower()
    __hash__ = str.__hash__
class Money:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return self.v == (o.v if isinstance(o, Money) else o)
    def __lt__(self, o): return self.v < (o.v if isinstance(o, Money) else o)
    def __add__(self, o): return Money(self.v + (o.v if isinstance(o, Money) else o))
    def __iadd__(self, o): self.v += o; return self
class Permission(enum.IntFlag):
    R = 1
    W = 2
class E(Exception):
    def __init__(self, text, code): super().__init__(text); self.code = code
class Swallow:
    def __init__(self): self.seen = []
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        self.seen.append((kind.__name__, str(error)))
        return kind is ZeroDivisionError
@contextlib.contextmanager
def noting(log):
    try: yield
    except ValueError as error: log.append(str(error))
    finally: log.append('end')
def fail(x):
    if x == 0:
        try: 1 / 0
        except ZeroDivisionError as zero: raise E('a', 4) from zero
    if x == 1:
        error = KeyError('k'); error.add_note('n'); raise error
    if x == 2: json.loads('{"a":')
    if x == 3: open('/nonexistent/q')
    if x == 4:
        error = E('s', 1); raise error from error
def told(x):
    """Doc."""
    return x
def doc_of(f): return f.__doc__
def fix(g): return lambda n: g(fix(g), n)
'''


def caught(number: int, kind: str, condition: str) -> str:
    return f"try: fail({number})\nexcept {kind} as e: assert {condition}\nelse: assert False"


@pytest.mark.parametrize(
    "test",
    [
        "assert pt(1, 2) == pt(1, 2) and pt(1, 2) != pt(2, 1) and pt(1, 2) + pt(1, 1) == pt(2, 3)",
        "assert len({pt(1, 2), pt(1, 2), pt(2, 1)}) == 2 and pt(1, 2) in [pt(1, 2)]",
        "assert CI('ABC') == CI('abc') and CI('a') == 'a'",
        "m = Money(5)\nassert m.v == 5 and m == 5 and m != 6 and m + 2 == 7 and m < 9 and not m < 5",
        "m = Money(5)\nm += 2\nassert m.v == 7 and m + Money(1) == Money(8)",
        "p = Permission.R | Permission.W\nassert Permission.R in p and p == 3",
        caught(0, "E", "type(e.__cause__) is ZeroDivisionError and e.code == 4"),
        caught(1, "KeyError", "e.__notes__ == ['n']"),
        caught(2, "ValueError", "(e.pos, e.lineno, e.doc) == (5, 1, '{\"a\":')"),
        caught(3, "OSError", "(e.errno, e.filename) == (2, '/nonexistent/q')"),
        caught(4, "E", "e.code == 1"),
        "with Swallow() as s: 1 / 0\nassert s.seen == [('ZeroDivisionError', 'division by zero')]",
        "s = Swallow()\ntry:\n    with s: raise KeyError('q')\nexcept KeyError: pass\n"
        "assert s.seen == [('KeyError', \"'q'\")]",
        "m = Money(5)\nassert vars(m) == m.__dict__ == {'v': 5} and 'v' in dir(m)",
        "assert told.__doc__ == 'Doc.' and told(Money).__doc__ is None",
        "def f(): 'D'\nassert doc_of(f) == 'D'",
        "log = []\nwith noting(log): raise ValueError('z')\nassert log == ['z', 'end']",
        "assert fix(lambda self, n: 0 if n == 0 else 1 + self(n - 1))(400) == 400",
    ],
)
def test_honest_code_passes_without_a_signal(rooms: Rooms, test: str) -> None:
    rooms.passes(HONEST, [test])
