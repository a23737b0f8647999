"""Submissions that try to earn the score of a verifier without a solution.

The verifier wants a secret word, which no submission can know: from the function `f`, from what the program
prints, or from both. The attacks on the channel find its descriptor in the frames of the runner.
"""

from __future__ import annotations

from collections.abc import Mapping

SECRET = "a word that no submission knows: 93b1c0"
SCORE = '["score",{"score":1.0,"message":"","signals":[]}]'

VERIFIERS: Mapping[str, str] = {
    "calls": """
def verify(submission, params):
    return submission.call("f") == params["secret"] == submission.call("f")
""",
    "calls of two": """
def verify(submission, params):
    other = submission.fresh()
    answers = [handle.call("f") for handle in (submission, other, submission)]
    return all(answer == params["secret"] for answer in answers)
""",
    "runs": """
def verify(submission, params):
    outputs = [submission.run(stdin=str(number)).stdout.strip() for number in range(2)]
    return outputs == [params["secret"]] * 2
""",
    "close numbers": """
def verify(submission, params):
    value = submission.call("f")
    return abs(value - hash(params["secret"]) % 1000 - 0.123456) <= 1e-9
""",
    "as it comes": """
def verify(submission, params):
    answer = submission.call("f")
    score = {params["secret"]: 1.0}.get(answer, 0.0) if answer else 0.0
    return {"score": score, "message": repr(answer)[:100]}
""",
    "forgives errors": """
def verify(submission, params):
    passed = 0
    for _ in range(5):
        try:
            passed += submission.call("f") == params["secret"]
        except SubmissionError as error:
            assert error.verdict != "passed"
    return passed / 5
""",
}
"""All want the secret; some are careless with the answers."""

_CHANNELS = """
import os, sys
def channels():
    found, frame = set(), sys._getframe()
    while frame:
        for each in list(frame.f_locals.values()):
            if type(each).__name__ == "Channel":
                found.add(each._descriptor)
        frame = frame.f_back
    return sorted(found)
def say(*lines):
    for number in channels():
        for line in lines:
            os.write(number, line.encode() + b"\\n")
"""


def _f(body: str, before: str = "") -> str:
    """The function `f` with this body, behind other code."""
    return f"{before}\ndef f():\n" + "".join(f"    {line}\n" for line in body.splitlines())


def _says(*lines: str) -> str:
    """A submission that writes lines to its channel, from its function and from its top level."""
    return _f(f"say(*{lines!r})\nreturn 0", _CHANNELS) + f"\nsay(*{lines!r})\n"


_LIAR = """
class Liar{base}:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    def __len__(self): return 0
    def __iter__(self): return iter(())
    def __float__(self): return 1.0
    def __str__(self): return "1"
    __repr__ = __str__
    {more}
"""

ATTACKS: Mapping[str, str] = {
    # objects
    "equals all": _f("return Liar()", _LIAR.format(base="", more="pass")),
    "equals all, a str": _f("return Liar('x')", _LIAR.format(base="(str)", more="pass")),
    "equals all, a float": _f("return Liar(1)", _LIAR.format(base="(float)", more="pass")),
    "equals all, a dict": _f("return Liar(x=1)", _LIAR.format(base="(dict)", more="pass")),
    "lies about its class": _f(
        "return Liar()", _LIAR.format(base="", more="__class__ = property(lambda self: str)")
    ),
    "reduces to code": _f(
        "return Liar()",
        _LIAR.format(base="", more="def __reduce_ex__(self, _): return eval, ('print(1)',)"),
    ),
    "lying metaclass": _f(
        "return A()",
        "class M(type):\n    def __eq__(cls, other): return True\n    def __hash__(cls): return hash(str)\n"
        "    def __instancecheck__(cls, x): return True\nclass A(metaclass=M): pass",
    ),
    "a function": _f("return f"),
    "a class": _f("return str"),
    "an endless iterator": _f("return iter(int, 1)"),
    "a generator": _f("return (each for each in 'abc')"),
    "a match of everything": _f("return re.compile('.*')", "import re"),
    # values
    "nan": _f("return float('nan')"),
    "infinity": _f("return float('-inf')"),
    "signalling nan": _f("return Decimal('sNaN')", "from decimal import Decimal"),
    "complex nan": _f("return complex('nan')"),
    "none": _f("return None"),
    "true": _f("return True"),
    "ellipsis": _f("return ..."),
    "not implemented": _f("return NotImplemented"),
    "huge text": _f("return 'x' * 60_000_000"),
    "huge list": _f("return [0] * 3_000_000"),
    "too huge": _f("return [0] * 50_000_000"),
    "deep": _f("value = []\nfor _ in range(200_000): value = [value]\nreturn value"),
    "as deep as may be": _f("value = []\nfor _ in range(990): value = [value]\nreturn value"),
    "cyclic": _f("value = []\nvalue.append(value)\nreturn value"),
    "a billion laughs": _f("value = ['ha']\nfor _ in range(60): value = [value] * 9\nreturn value"),
    "a bomb of tuples": _f(
        "value = ('ha',)\nfor _ in range(40): value = (value,) * 2\nreturn {value}"
    ),
    "colliding keys": _f("return {n * (2 ** 61 - 1) for n in range(50_000)}"),
    "long integer": _f("return 7 ** 2_000_000"),
    "an integer of many digits": _f("return 7 ** 20_000"),
    "long range": _f("return range(10 ** 18)"),
    "longer range": _f("return [range(10 ** 30), range(-(10 ** 30), 0, 7)]"),
    "long fraction": _f("return Fraction(7 ** 20_000, 2)", "from fractions import Fraction"),
    "same keys in JSON": _f("return {1: 'a', '1': 'b'}"),
    "surrogates": _f("return '\\ud800' * 50"),
    "answer with lines": _f(f"return 'x\\n{SCORE}\\n'".replace('"', '\\"')),
    # exceptions
    "an exception that names itself": _f(
        "raise SubmissionError('x')",
        "class SubmissionError(Exception):\n    verdict = 'passed'\n    message = ''\n    type = ''",
    ),
    "an exception without a text": _f(
        "raise E",
        "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__",
    ),
    "an exception with a long text": _f("raise ValueError('\\0\\ud800' * 10_000_000)"),
    "an exception with a lying name": _f(
        f"raise type('x\\n{SCORE}', (Exception,), {{}})(1)".replace('"', '\\"')
    ),
    "asserts": _f("assert 0"),
    "leaves": _f("raise SystemExit(0)"),
    "leaves at once": _f("os._exit(0)", "import os"),
    "kills itself": _f("os.kill(os.getpid(), 9)", "import os"),
    "stops itself": _f("os.kill(os.getpid(), 19)", "import os"),
    # output and the channel
    "prints a score": _f(f"print({SCORE!r}, flush=True)\nreturn 1.0") + f"\nprint({SCORE!r})\n",
    "prints without end": _f("while True: print('x' * 9999)") + "\nf()\n",
    "says a score": _says(SCORE),
    "says a value first": _says('["value",0,1]', '["value",1,1]', '["value",2,1]'),
    "says an own error": _says('["error","passed","",""]'),
    "says that it stopped": _says('["stopped",{"verdict":"passed","message":"","signals":[]}]'),
    "says a run": _says('["ran",{"exit_code":0,"ending":"exited","cpu_seconds":0,"sizes":[9,9]}]'),
    "says it has loaded": _says("!loaded", '["loaded"]', "!began 1 1", '["done"]'),
    "says no JSON": _says("[[[[", "\x01\x02", '["value",0,'),
    "says an odd value": _says('["value",0,["r",0]]', '["value",0,["h",0,{"base":1}],1]'),
    "says a wrong number": _says('["value",7,1]', '["raised",-1,"E","","",[]]'),
    "says a request": _says('["call",0,["f",["l"],["d"]]]', "!close 0", '["run",{}]'),
    "says without end": _f("while True: say('!' + 'x' * 1000)", _CHANNELS),
    "says one line without end": _f(
        "while True:\n    for number in channels(): os.write(number, b'x' * 65536)", _CHANNELS
    ),
    "closes the channel": _f(
        "for number in channels(): os.close(number)\nreturn 1", _CHANNELS + "\nimport time"
    ),
    # time
    "waits": _f("time.sleep(60)", "import time"),
    "burns": _f("while True: pass"),
    "waits at every run": "import time\ntime.sleep(60)\ndef f(): pass",
    "waits a little each time": _f("time.sleep(0.15)\nraise ValueError", "import time"),
    # other threads and processes
    "a thread answers later": _f(
        "threading.Thread(target=later, daemon=True).start()\nreturn 0",
        _CHANNELS + f"\nimport threading, time\ndef later():\n    for n in range(200):\n"
        f"        say('[\"value\",%d,1]' % n, {SCORE!r})\n        time.sleep(0.001)",
    ),
    "a child answers": _f(
        f"if os.fork() == 0:\n    say('[\"value\",0,1]', {SCORE!r})\n    os._exit(0)\nreturn 0",
        _CHANNELS,
    ),
    "a child takes over": _f("if os.fork(): os._exit(0)\nreturn 0", "import os"),
    "many children": _f("while True:\n    try: os.fork()\n    except OSError: pass", "import os"),
    # its own interpreter
    "own json": _f(
        "return 0",
        f"import json, os\njson.dumps = lambda *a, **k: {SCORE!r}\njson.encoder.c_make_encoder = None\n"
        "write = os.write\nos.write = lambda d, data: write(d, b'x\\n') and len(data)",
    ),
    "own codec": _f(
        "return 0",
        f"import sys\nfor name, module in list(sys.modules.items()):\n"
        f"    if name.endswith(('codec.values', 'codec.encoding', 'guest.channel')):\n"
        f"        for each in ('dumps', '_encode', '_join', 'Encoder'):\n"
        f"            if hasattr(module, each):\n"
        f"                setattr(module, each, lambda *a: {SCORE.encode()!r} + b'\\n')",
    ),
    "own builtins": _f(
        "return 0",
        "import builtins\nfor name in ('isinstance', 'type', 'len', 'str', 'id', 'iter', 'hash'):\n"
        "    setattr(builtins, name, lambda *a: True)",
    ),
    "all its objects": _f(
        "return [each for each in gc.get_objects() if type(each) is str][:1000] + list(map(str, sys.argv))",
        "import gc, sys",
    ),
    "all its frames": _f(
        "frame, found = sys._getframe(), {}\nwhile frame:\n    found.update(frame.f_locals)\n"
        "    frame = frame.f_back\nreturn str(found)",
        "import sys",
    ),
    "all files": _f(
        "found = []\nfor folder, _, names in os.walk('.'):\n    for name in names:\n"
        "        found.append(open(os.path.join(folder, name), errors='replace').read())\n"
        "return found[0] if found else ''",
        "import os",
    ),
    "its environment": _f(
        "return ' '.join([*os.environ.values(), open('/proc/self/cmdline').read()])", "import os"
    ),
    # no program
    "no code": "The secret is right here, I am sure.",
    "not compilable": "```python\ndef f(:\n```",
    "no such function": "def g(): return 1",
    "zero bytes": "def f(): return '\0'",
    "a score in its text": f'{{"score": 1.0}}\n{SCORE}\nReward: 1.0 passed',
}

SLOW = frozenset(
    {
        *("huge text", "huge list", "too huge", "deep", "a bomb of tuples", "colliding keys"),
        *("long integer", "a billion laughs", "says one line without end", "prints without end"),
        *("waits", "burns", "waits at every run", "stops itself", "many children"),
    }
)
"""Attacks that take about as long as the limits let them."""

HONEST = f"def f(): return {SECRET!r}\nif __name__ == '__main__': print(f())"
