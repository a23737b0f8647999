"""Whatever a submission says on the judge's channel, it gets a verdict: an error would be a way out."""

from __future__ import annotations

import pytest
from harness import Service
from judging import judge

from proctor_service.features.evaluation.scoreboard.corpus import corpus

VALUES = [
    *('["decimal","sNaN"]', '["decimal","1E+999999"]', '["range",0,"x",1]', '["fraction",1,0]'),
    *('["dq",-5]', '["dq",99999999999999999999]', '["zone","../../etc/passwd"]', '["date",1,1]'),
    *('["array","u"]', '["slice",1,2,3]', '["nd","<i4",[2],["l",1]]', '["ns","<i4",5]', '["ni"]'),
    *('["h",1,{"base":["nd"]}]', '["c",1,2]', '["h"]', '["l",["r",0]]', '["t",["r",0]]', "1e999"),
    *('["datetime",1,1,1,0,0,0,0,0,5]', '["dk",["l"]]', '["T","int"]', '["timezone",5]', "NaN"),
    *('["uuid","x"]', '["path","PosixPath","\\u0000"]', '["l",["decimal","sNaN"]]', '"\\ud800"'),
]
LINES = [
    *("[]", "{}", "null", '["value"]', '["value",0,]', "[" * 5000, "NaN", "x" * 100_000),
    *('["unfit"]', '["unfit","x"]', '["no pytest","x"]', '["not started"]', '["compiled",0,{}]'),
    *('["exit","load",99999999999999999999]', '["exit",0,true]', '["raised","load",1,2,3,4]'),
    *('["raised","load","","\\ud800","",["MemoryError"]]', '["syntax","\\ud800",""]', '["bye"]'),
    *('["reached",5]', '!["done",{}]', '!["setup_failed","x"]', '["q",1,"name",["t","x"],{}]'),
    *('["a",2,"v",["h",1],{"u":[],"d":[],"m":[],"k":1}]', '["a",2,"x",5,{"k":1}]', "\xff"),
    *(f'["value",0,{value}]' for value in VALUES),
    *(f'["a",2,"v",{value},{{"u":[],"d":[],"m":[],"k":1}}]' for value in VALUES),
]
PROGRAM = """
import os
LINE = {line!r}.encode("latin-1") + b"\\n"
def say():
    for number in range(3, 1024):
        try:
            os.write(number, LINE)
        except OSError:
            pass
"""
AT_ONCE = "say()\ndef {name}(*ignored): return []\n"
WHEN_CALLED = "def {name}(*ignored):\n    say()\n    return []\n"


@pytest.mark.parametrize("when", [AT_ONCE, WHEN_CALLED], ids=["at once", "when called"])
@pytest.mark.parametrize("form", ["asserts", "calls", "rooms", "exec", "pytest"])
def test_garbage_gets_a_verdict(service: Service, form: str, when: str) -> None:
    problem = "primes" if form == "rooms" else "digits"
    name = "is_prime" if form == "rooms" else "digit_sum"
    [entry] = [each for each in corpus() if each.id == f"references/{problem}/{form}"]
    program = PROGRAM + when.format(name=name) + entry.tests
    lines = LINES if form != "pytest" else LINES[:30:3]
    items = [{"completion": program.replace("{line!r}", repr(line))} for line in lines]
    limits = {"cpu_seconds": 5, "wall_seconds": 10}
    for line, result in zip(
        lines, judge(service, *items, grader=dict(entry.grader), limits=limits), strict=True
    ):
        assert (line, result["reward"]) == (line, 0.0)
