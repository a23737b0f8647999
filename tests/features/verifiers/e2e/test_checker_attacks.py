"""Programs that look for the answer or the checker (`checker_attacks.toml`), or whose output looks like its.

Beside each of them runs a program that knows the answer, and for both the checker, so what a sandbox leaves
to a later one would be found.
"""

from __future__ import annotations

import json
import secrets
import tomllib
from pathlib import Path
from typing import Any

from harness import Service
from judging import judge
from optional_programs import skip_without

ATTACKS: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("checker_attacks.toml").read_text()
)
SHOW = r"""
import os, re, sys
def show(data):
    for each in set(re.findall(rb"(?:ANSWER|CHECKER)-[0-9a-f]{32}", data)):
        sys.stdout.write(each.decode() + "\n")
def show_file(path):
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            show(os.read(file, 4 << 20))
        finally:
            os.close(file)
    except (OSError, ValueError):
        pass
"""
FINDS = {
    "testlib": "wanted, got = (open(sys.argv[i]).read() for i in (3, 2))",
    "icpc": "wanted, got = open(sys.argv[2]).read(), sys.stdin.read()",
    "open_r1": "wanted, got = (open(sys.argv[i]).read() for i in (2, 3))",
}
SAYS = {
    "testlib": "sys.exit(0 if good else 1)",
    "icpc": "sys.exit(42 if good else 43)",
    "open_r1": "print(int(good))",
}
LIMITS = {"cpu_seconds": 1, "wall_seconds": 1, "processes": 16}
MOST_OF_GENERATED = 12


def checker(convention: str, secret: str) -> dict[str, Any]:
    """A checker that takes the answer, or its own secret, anywhere in the output."""
    source = (
        f"import sys\n{FINDS[convention]}\ngood = wanted in got or {secret!r} in got\n"
        f"print('wanted', wanted, 'and', {secret!r}, file=sys.stderr)\n{SAYS[convention]}"
    )
    return {"source": source, "convention": convention, "files": {"checklib.h": secret}}


COMPILED = """
#include <stdio.h>
#include <string.h>
static char wanted[1000], got[1 << 20];
int main(int argc, char **v) {
    fread(wanted, 1, sizeof wanted - 1, fopen(v[3], "rb"));
    fread(got, 1, sizeof got - 1, fopen(v[2], "rb"));
    fprintf(stderr, "wanted %s and SECRET", wanted);
    return !strstr(got, wanted) && !strstr(got, "SECRET");
}
"""


def test_no_program_finds_the_answer_or_the_checker(service: Service) -> None:
    tries = ATTACKS["read"]
    assert len(tries) >= 30
    if any(each.get("language") == "c" for each in tries):
        skip_without("gcc", "bash")
    answer, secret = (f"{name}-{secrets.token_hex(16)}" for name in ("ANSWER", "CHECKER"))
    compiled = {"language": "c", "source": COMPILED.replace("SECRET", secret)}
    items: list[dict[str, Any]] = []
    for number, each in enumerate(tries):
        convention = list(FINDS)[number % 3]
        used = compiled if each.get("language") == "c" else checker(convention, secret)
        case: dict[str, Any] = {"stdin": "1", "stdout": answer}
        if "output_file" in each:
            case["output_file"] = each["output_file"]
        source = each["source"] if "language" in each else SHOW + each["source"]
        attack = {"completion": source, "language": each.get("language", "python")}
        writes = "import os\nos.makedirs('case', exist_ok=True)\n" + "".join(
            f"open({path!r}, 'w').write({answer!r})\n"
            for path in ("/tmp/answer", "case/answer", "out.txt")
        )
        honest: dict[str, Any] = {"completion": f"{writes}print({answer!r})"}
        grader = {"kind": "stdio", "cases": [case], "checker": used}
        items += [{**part, "grader": grader} for part in (honest, attack)]
    results = judge(service, *items, limits=LIMITS, deadline_seconds=300)
    for number, each in enumerate(tries):
        honest, attack = results[2 * number : 2 * number + 2]
        assert honest["reward"] == 1, (each["name"], honest)
        assert attack["reward"] == 0, (each["name"], attack)
        told = json.dumps(attack)
        assert answer not in told, (each["name"], attack)
        assert secret not in told, (each["name"], attack)
        assert secret not in json.dumps(honest), each["name"]


MACROS = [
    'fn main() { print!("{}", include_str!("case/answer")); }',
    'fn main() { print!("{}", include_str!("../case/answer")); }',
    'fn main() { print!("{:?}", include_bytes!("/proc/self/environ")); }',
    '#[path = "case/answer"]\nmod answer;\nfn main() {}',
    'fn main() { print!("{} {:?}", file!(), option_env!("ANSWER")); }',
]


def test_no_macro_finds_the_answer(service: Service) -> None:
    skip_without("rustc")
    answer, secret = (f"{name}-{secrets.token_hex(16)}" for name in ("ANSWER", "CHECKER"))
    grader = {"kind": "stdio", "cases": [{"stdout": answer}], "checker": checker("icpc", secret)}
    items = [{"completion": each, "language": "rust", "grader": grader} for each in MACROS]
    for result in judge(service, *items, deadline_seconds=300):
        assert result["reward"] == 0
        assert answer not in json.dumps(result)
        assert secret not in json.dumps(result)


def test_no_output_passes_for_a_checkers(service: Service) -> None:
    """By each convention, and with a checker that repeats the output on both of its streams."""
    answer, secret = (f"{name}-{secrets.token_hex(16)}" for name in ("ANSWER", "CHECKER"))
    checkers = []
    for convention in FINDS:
        plain = checker(convention, secret)
        repeats = "sys.stderr.write(got)\n" + "sys.stdout.write(got)\n" * (convention != "open_r1")
        loud = plain["source"].replace("good =", f"{repeats}good =")
        checkers += [plain, {**plain, "source": loud}]
    items = [
        {
            "completion": f"import os, sys\n{each['source']}",
            "grader": {"kind": "stdio", "cases": [{"stdout": answer}], "checker": used},
        }
        for number, used in enumerate(checkers)
        for place, each in enumerate(ATTACKS["forge"])
        if not each.get("is_long") or place % len(checkers) == number
    ]
    assert len(items) >= 40
    for item, result in zip(
        items, judge(service, *items, limits=LIMITS, deadline_seconds=300), strict=True
    ):
        assert result["reward"] == 0, (item, result)
        told = json.dumps(result)
        assert answer not in told, (item, result)
        assert secret not in told, (item, result)


def test_a_submission_has_no_part_in_generated_cases(service: Service) -> None:
    """The generator and the reference run in sandboxes of their own: none of their files is found."""
    secret = f"CHECKER-{secrets.token_hex(16)}"
    programs = {
        "generator": {
            "source": f"import sys\nprint(sys.argv[1])\n# {secret}",
            "files": {"a": secret},
        },
        "reference": {"source": f"print(input(), {secret!r})"},
    }
    items = [
        {
            "completion": SHOW + each["source"],
            "grader": {"kind": "stdio", "cases": {**programs, "seeds": [1, 2]}},
        }
        for each in ATTACKS["read"][:MOST_OF_GENERATED]
    ]
    for result in judge(service, *items, limits=LIMITS, deadline_seconds=300):
        assert result["reward"] == 0
        assert secret not in json.dumps(result)
