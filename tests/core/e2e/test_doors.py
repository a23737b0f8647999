"""The same task, completion and reward by every door: forty-seven tasks, and completions in many shapes.

The table in docs/datasets.md says which forms each door takes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import re
import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import proctor
from harness import Service
from optional_programs import skip_without
from policy_server import policy_server, says
from waits import WAIT_SECONDS

from proctor_client import AsyncClient, Client
from proctor_client.tasks.forms import MAKERS, Format, task_from_ground_truth, task_from_row
from proctor_trainers.areal import async_reward_function
from proctor_trainers.batching import RewardBatcher
from proctor_trainers.episodes import Episodes
from proctor_trainers.ms_swift import orm_class
from proctor_trainers.nemo_gym import verify
from proctor_trainers.rewards import Settings
from proctor_trainers.trl import reward_function
from proctor_trainers.trl.environment import Rules
from proctor_trainers.trl.workplaces import Order, Workplaces
from proctor_trainers.verl import compute_score_function

_NAMES = ("task_id", "name")
TRUTHS = ("ground_truth", "label", "reward_model", "verification_info")
DOCUMENT = Path(__file__).parents[3] / "docs" / "datasets.md"


OF_OPEN_R1 = """
import sys
n = int(open(sys.argv[1]).read())
with open(sys.argv[3]) as file:
    lines = file.read().splitlines()
a, b = map(int, lines[0].split())
print(100 if len(lines) == 1 and min(a, b) > 0 and a + b == n else 0)
"""
OF_HARDTESTS = """
def output_judging_function(input_str: str, candidate_output: str, reference_output: str) -> bool:
    a, b = map(int, candidate_output.split())
    print(json.dumps(reference_output), file=sys.stdout)
    return min(a, b) > 0 and a + b == int(input_str)
"""
OF_VERIFIER = """
def verify(submission, params):
    for n in params["numbers"]:
        a, b = map(int, submission.run(stdin=str(n)).stdout.split())
        if min(a, b) < 1 or a + b != n:
            return 0.0
    return 1.0
"""
IN_CPP = """
#include <fstream>
int main(int argc, char* argv[]) {
    std::ifstream input(argv[1]), output(argv[2]);
    int n = 0, a = 0, b = 0;
    input >> n;
    output >> a >> b;
    return a > 0 && b > 0 && a + b == n ? 0 : 1;
}
"""


@dataclass(frozen=True)
class Function:
    """A function with its parameters, a right body and a wrong one, and calls with what they return."""

    name: str
    parameters: str
    right: str
    wrong: str
    calls: Sequence[tuple[list[Any], Any]]


TWICE = Function("twice", "x", "return x + x", "return x * x", [([3], 6), ([0.5], 1.0)])
TOTAL = Function(
    "total", "xs, k",
    "queue = deque(xs)\nfound = 0\nwhile queue:\n    found += queue.popleft()\nreturn found * k",
    "return len(deque(xs))", [([[1, 2], 2], 6), ([[], 1], 0)],
)  # fmt: skip
PAIRS = Function(
    "pairs", "xs", "return [(x, x) for x in xs]", "return [(x,) for x in xs]",
    [([[1, 2]], [[1, 1], [2, 2]]), ([[]], [])],
)  # fmt: skip
SWAP = Function(
    "swap", "d", "return {v: k for k, v in d.items()}", "return d", [([{"1": 2}], {"2": 1})]
)
DEEP = Function(
    "deep", "n", "return n and 1 + deep(n - 1)", "return n and deep(n - 1)", [([2000], 2000)]
)


def written(function: Function, body: str, *, as_method: bool = False) -> str:
    """The source of a function, or of a method of `class Solution`."""
    lines = textwrap.indent(body, "    ")
    if not as_method:
        return f"def {function.name}({function.parameters}):\n{lines}\n"
    lines = re.sub(r"\bdeep\(", "self.deep(", lines)
    whole = f"def {function.name}(self, {function.parameters}):\n{lines}\n"
    return "class Solution:\n" + textwrap.indent(whole, "    ")


def statements(function: Function) -> list[str]:
    """Python tests; JSON's lists stand for tuples there."""
    return [
        f"assert json.loads(json.dumps({function.name}(*{args!r}))) == {value!r}"
        for args, value in function.calls
    ]


def check(function: Function) -> str:
    """HumanEval's test."""
    lines = [f"    assert candidate(*{args!r}) == {value!r}" for args, value in function.calls]
    return "def check(candidate):\n" + "\n".join(lines) + "\n"


def prompt(function: Function) -> str:
    """HumanEval's prompt."""
    imports = "from collections import deque\n"
    return f'{imports}\ndef {function.name}({function.parameters}):\n    """Do it."""\n'


# ---------------------------------------------------------------- forty-seven tasks


@dataclass(frozen=True)
class Problem:
    """A row in its form, and completions with their rewards."""

    form: Format
    row: dict[str, Any]
    completions: Sequence[tuple[str, float]]


def shaped(right: Sequence[str], wrong: Sequence[str], language: str = "python") -> list[Any]:
    """Programs in their shapes: fenced, behind thoughts, and bare if they are Python."""
    found: list[tuple[str, float]] = []
    for programs, reward in ((right, 1.0), (wrong, 0.0)):
        for program in programs:
            found.append((f"```{language}\n{program}```", reward))
            found.append((f"<think>\nHm.\n</think>\nSo:\n```{language}\n{program}```\n", reward))
            if language == "python":
                found.append((program, reward))
    return found


def of_functions(form: Format, function: Function, row: dict[str, Any]) -> Problem:
    """A task that takes a function or a method."""
    kinds = (False, True)
    right = [written(function, function.right, as_method=each) for each in kinds]
    wrong = [written(function, function.wrong, as_method=each) for each in kinds]
    return Problem(form, row, shaped(right, wrong))


def of_prompt(form: Format, function: Function, row: dict[str, Any]) -> Problem:
    """A task whose prompt a completion may go on with."""
    bodies = [textwrap.indent(each, "    ") + "\n" for each in (function.right, function.wrong)]
    right, wrong = written(function, function.right), written(function, function.wrong)
    more = [(bodies[0], 1.0), (bodies[1], 0.0)]
    return Problem(form, row, [*shaped([right], [wrong]), *more])


def functions() -> Iterator[Problem]:
    """Tasks whose functions are called with JSON."""
    for function in (TWICE, TOTAL, PAIRS):
        name = function.name
        lines = [
            ("\n".join(map(json.dumps, args)), json.dumps(value)) for args, value in function.calls
        ]
        inputs, outputs = [each for each, _ in lines], [each for _, each in lines]
        truth = {"inputs": inputs, "outputs": outputs, "fn_name": name}
        listed = {
            "inputs": [args for args, _ in function.calls],
            "outputs": [[value] for _, value in function.calls],
            "fn_name": name,
        }
        cases = [
            {"type": "function_call", "fn_name": name, "input": args, "output": value}
            for args, value in function.calls
        ]
        tests = [
            {"input": a, "output": b, "testtype": "functional"}
            for a, b in zip(inputs, outputs, strict=True)
        ]
        lcb = {
            "public_test_cases": json.dumps(tests),
            "private_test_cases": "[]",
            "starter_code": "class Solution:",
            "metadata": json.dumps({"func_name": name}),
        }
        info = json.dumps({"language": "python", "test_cases": cases})
        yield of_functions("columns", function, {"ground_truth": json.dumps(truth)})
        yield of_functions("apps", function, {"input_output": json.dumps(listed)})
        yield of_functions("livecodebench", function, lcb)
        yield of_functions("verification", function, {"verification_info": info})
    swap = {"inputs": ['{"1": 2}'], "outputs": ['{"2": 1}'], "fn_name": "swap"}
    deep = {"inputs": ["2000"], "outputs": ["2000"], "fn_name": "deep"}
    yield of_functions("columns", SWAP, {"label": swap})
    yield of_functions("columns", DEEP, {"reward_model": {"ground_truth": json.dumps(deep)}})


def with_python_tests() -> Iterator[Problem]:
    """Tasks with tests in Python."""
    for function in (TWICE, TOTAL):
        name, right = function.name, written(function, function.right)
        tests = ["import json", *statements(function)]
        humaneval = {
            "task_id": name,
            "prompt": prompt(function),
            "entry_point": name,
            "test": check(function),
        }
        imports = ["from collections import deque"]
        mbpp = {"task_id": 1, "test_list": tests[1:], "test_imports": [*imports, "import json"]}
        own = {"tests": tests, "prelude": imports[0], "prompt_code": prompt(function)}
        leetcode = {
            "prompt": "from collections import *\n",
            "starter_code": "class Solution:",
            "entry_point": f"Solution().{name}",
            "test": check(function),
        }
        yield of_prompt("humaneval", function, humaneval)
        programs = [written(function, each) for each in (function.right, function.wrong)]
        yield Problem("mbpp", mbpp, shaped(programs[:1], programs[1:]))
        yield of_prompt("columns", function, own)
        methods = [
            written(function, each, as_method=True) for each in (function.right, function.wrong)
        ]
        yield Problem("leetcode", leetcode, shaped(methods[:1], methods[1:]))
        body = textwrap.indent(function.right, "    ").splitlines(keepends=True)
        infilling = {
            **humaneval,
            "prompt": prompt(function),
            "suffix": "".join(body[1:]) + "\n    return None\n",
        }
        yield Problem("infilling", infilling, [(body[0], 1.0), ("    return None\n", 0.0)])
        wrong = written(function, function.wrong)
        with_imports = [f"{imports[0]}\n{each}" for each in (right, wrong)]
        ace = {"question": "q", "test_cases": ["\n".join(tests)], "inferences": []}
        yield Problem("acecoder", ace, shaped(with_imports[:1], with_imports[1:]))
        lines = textwrap.indent("\n".join(statements(function)), "    ")
        test = f"import json\nfrom solution import {name}\n\ndef test_it():\n{lines}\n"
        kod = {"question": "q", "test": test, "test_info": [{}]}
        yield Problem("kodcode", kod, shaped(with_imports[:1], with_imports[1:]))


def programs() -> Iterator[Problem]:
    """Tasks of programs, in Python and in other languages."""
    right = "n = int(input())\nq = deque([n])\nprint(q.pop() / 3)\n"
    wrong = "n = int(input())\nq = deque([n])\nprint(round(q.pop() / 3, 2))\n"
    told = {"inputs": ["2\n", "9\n"], "outputs": ["0.66666667\n", "3.0\n"]}
    cases = [
        {"input": a, "output": b, "testtype": "stdin"}
        for a, b in zip(told["inputs"], told["outputs"], strict=True)
    ]
    completions = shaped([right], [wrong])
    yield Problem("columns", {"ground_truth": told}, completions)
    yield Problem("apps", {"input_output": json.dumps(told)}, completions)
    info = {
        "language": "python",
        "test_cases": [{**each, "type": "stdin_stdout"} for each in cases],
    }
    yield Problem("verification", {"verification_info": info}, completions)
    whole = [
        ("from collections import deque\n" + right.replace("q.pop() / 3", "q.pop() * 2"), 1.0),
        ("print(4)\n", 0.0),
    ]
    tests = [{"input": "2\n", "output": "4\n"}, {"input": "3\n", "output": "6\n"}]
    lcb = {
        "public_test_cases": [{**each, "testtype": "stdin"} for each in tests],
        "private_test_cases": "[]",
    }
    yield Problem("livecodebench", lcb, whole)
    yield Problem("codeforces", {"official_tests": tests, "time_limit": 2.0}, whole)
    contest = {
        "public_tests": {"input": ["2\n"], "output": ["4\n"]},
        "private_tests": {"input": [], "output": []},
        "generated_tests": {"input": ["3\n"], "output": ["6\n"]},
    }
    yield Problem("codecontests", contest, whole)
    lines = [{"stdin": each["input"], "stdout": each["output"]} for each in tests]
    own: dict[str, Any] = {"grader": {"kind": "stdio", "cases": lines}}
    yield Problem("columns", own, whole)
    bash = ["read n\necho $((2 * n))\n", "read n\necho $((3 * n))\n"]
    yield Problem("columns", {**own, "language": "bash"}, shaped(bash[:1], bash[1:], "bash"))
    case = {"args": [[1, 2]], "expected": [[1, 1], [2, 2]]}
    calls = {
        "kind": "calls",
        "entry_point": "Solution().pairs",
        "method": "either",
        "cases": [case],
    }
    yield of_functions("columns", PAIRS, {"grader": json.dumps(calls)})
    cpp = {
        "task_id": "CPP/0",
        "prompt": "#include<vector>\nusing namespace std;\nint twice(int x){\n",
        "declaration": "int twice(int x){\n",
        "test": "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (twice(3) == 6);\n}\n",
    }
    body = "    return 2 * x;\n}\n"
    functions_ = [f"int twice(int x) {{\n{each}" for each in (body, body.replace("2 *", "3 *"))]
    parts = [(body, 1.0), (body.replace("2 *", "3 *"), 0.0)]
    yield Problem("humanevalx", cpp, [*shaped(functions_[:1], functions_[1:], "cpp"), *parts])
    multiple = {
        "name": "HumanEval_0_twice",
        "language": "cpp",
        "prompt": "#include<assert.h>\n#include<bits/stdc++.h>\nlong twice(long x) {\n",
        "tests": "}\nint main() {\n    auto candidate = twice;\n    assert(candidate((3)) == (6));\n}\n",
        "stop_tokens": ["\n}"],
    }
    parts = [("    return 2 * x;", 1.0), ("    return 3 * x;", 0.0)]
    longs = [each.replace("int ", "long ") for each in functions_]
    yield Problem("multiple", multiple, [*shaped(longs[:1], longs[1:], "cpp"), *parts])
    js = {
        "task_id": "MBJSP/1",
        "language": "javascript",
        "prompt": "function twice(x) {\n",
        "entry_point": "twice",
        "test": "if (twice(3) !== 6) { throw 'Error' }\n",
    }
    arrows = [f"const twice = (x) => {n} * x;\n" for n in (2, 3)]
    parts = [("    return 2 * x\n}", 1.0), ("    return 3 * x\n}", 0.0)]
    yield Problem("mbxp", js, [*shaped(arrows[:1], arrows[1:], "javascript"), *parts])


def with_checkers() -> Iterator[Problem]:
    """Tasks of programs with several right outputs: two positive numbers that add up to the input."""
    right = "n = int(input())\nprint(1, n - 1)\n"
    completions = shaped([right, right.replace("1, n - 1", "n - 1, 1")], ["print(2, 3)\n"])
    tests = [{"input": "3\n", "output": "1 2\n"}, {"input": "5\n", "output": "2 3\n"}]
    yield Problem(
        "codeforces", {"official_tests": tests, "generated_checker": OF_OPEN_R1}, completions
    )
    plus = {"checker": IN_CPP, "correct_submissions": [], "test_cases": tests, "time_limit": 2000}
    yield Problem("codecontestsplus", plus, completions)
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()
    kit = {"output_judging_function": OF_HARDTESTS, "LLMGen": ["3\n"]}
    yield Problem("hardtests", {"test_cases_kit": kit, "test_cases": packed}, completions)
    lines = [{"stdin": each["input"]} for each in tests]
    checker = {"source": OF_OPEN_R1.replace("100", "1"), "convention": "open_r1"}
    yield Problem("columns", {"tests": lines, "checker": checker}, completions)
    sides = {"inputs": ["3\n", "5\n"], "outputs": ["1 2\n", "4 1\n"]}
    truth = {"ground_truth": {**sides, "checker": {**checker, "argv": ["-q"]}}}
    yield Problem("columns", truth, completions)
    named = [({**each, "output": "2\n1\n"} if n == 0 else each) for n, each in enumerate(tests)]
    lines = [{"stdin": each["input"], "stdout": each["output"]} for each in named]
    program = "print({'3': '1 2', '5': '3 2'}[input()])\n"
    row = {"test_cases": lines, "checker": "unordered_tokens"}
    yield Problem("columns", row, shaped([program], ["print(1, 4)\n"]))
    verifier: dict[str, Any] = {"verifier": OF_VERIFIER, "params": {"numbers": [3, 5]}}
    yield Problem("columns", verifier, completions)


PROBLEMS = [*functions(), *with_python_tests(), *programs(), *with_checkers()]

# ---------------------------------------------------------------- doors

Pairs = Sequence[tuple[dict[str, Any], str]]
Door = Callable[[str, Pairs, Path], list[float | None]]


def columns_of(pairs: Pairs) -> dict[str, list[Any]]:
    """The rows as columns of one data set: a row without a column has None there."""
    names = dict.fromkeys(name for row, _ in pairs for name in row)
    return {name: [row.get(name) for row, _ in pairs] for name in names}


def by_trl(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    columns = columns_of(pairs)
    prompts = columns.pop("prompt")
    with Client(url) as client:
        reward = reward_function(client=client, say=None)
        return reward(prompts, [each for _, each in pairs], **columns)


def by_ms_swift(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    with Client(url) as client:
        orm = orm_class(client=client)()
        rewards: list[float | None] = orm([each for _, each in pairs], **columns_of(pairs))
    return rewards


def by_areal(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    batcher = RewardBatcher(async_client=AsyncClient(url))
    reward = async_reward_function(batcher=batcher)

    async def all_of_them() -> list[float | None]:
        calls = (
            reward(row.get("prompt"), each, **{k: v for k, v in row.items() if k != "prompt"})
            for row, each in pairs
        )
        rewards: list[float | None] = list(await asyncio.gather(*calls))
        await batcher.aclose()
        return rewards

    return asyncio.run(all_of_them())


def ground_truth(row: dict[str, Any]) -> Any:
    """The row as one value: its ground truth if it has one, else the fields of its task."""
    value = next((row[name] for name in TRUTHS if name in row), None)
    return json.dumps(task_from_row(row).fields) if value is None else value


def by_verl(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    with Client(url) as client:
        settings = Settings(task=task_from_ground_truth, say=None)
        compute: Any = compute_score_function(
            batcher=RewardBatcher(client=client, settings=settings)
        )
        return [compute("mine", each, ground_truth(row)) for row, each in pairs]


def by_nemo_gym(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    async def all_of_them() -> list[float | None]:
        batcher = RewardBatcher(async_client=AsyncClient(url))
        bodies = [
            {
                "response": {"output": [{"role": "assistant", "content": each}]},
                "verifier_metadata": {"ground_truth": ground_truth(row)},
            }
            for row, each in pairs
        ]
        answers = await asyncio.gather(*(verify(batcher, body) for body in bodies))
        await batcher.aclose()
        return [each["reward"] for each in answers]

    return asyncio.run(all_of_them())


def by_slime(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    with httpx.Client(base_url=url, timeout=WAIT_SECONDS) as client:
        return [
            client.post(
                "/compat/remote_rm",
                json={"prompt": "p", "response": each, "label": ground_truth(row)},
            ).json()
            for row, each in pairs
        ]


def by_openrlhf(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    body = {
        "query": [f"P\n{each}" for _, each in pairs],
        "prompts": ["P\n"] * len(pairs),
        "labels": [ground_truth(row) for row, _ in pairs],
    }
    answer = httpx.post(f"{url}/compat/get_reward", json=body, timeout=WAIT_SECONDS).json()
    rewards: list[float | None] = answer["rewards"]
    return rewards


def by_eval(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    return evaluated(url, pairs, folder, "columns")


def evaluated(url: str, pairs: Pairs, folder: Path, form: Format) -> list[float | None]:
    rows, completions, output = (folder / name for name in ("rows", "completions", "results"))
    named = [
        {"task_id": str(n), **row, **{key: f"{row[key]}/{n}" for key in _NAMES if key in row}}
        for n, (row, _) in enumerate(pairs)
    ]
    names = [MAKERS[form](row, f"{rows}:{n}").id for n, row in enumerate(named, 1)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in named))
    told = [{"id": name, "completion": each} for name, (_, each) in zip(names, pairs, strict=True)]
    completions.write_text("".join(json.dumps(each) + "\n" for each in told))
    arguments = ["eval", str(rows), "--format", form, "--completions", str(completions)]
    said = proctor(*arguments, "--output", output, PROCTOR_URL=url)
    assert output.exists(), said.output
    results = {each["task_id"]: each for each in map(json.loads, output.read_text().splitlines())}
    assert results.keys() == set(names), said.output
    return [results[name]["reward"] for name in names]


def by_episodes(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    """OpenEnv and ORS: a solution is a file, so only whole programs of Python are submitted."""
    found = []
    with Client(url) as client:
        episodes = Episodes(Workplaces(client, client, Order()), Rules(task=task_from_row))
        for row, code in pairs:
            episode = episodes.new()
            episode.begin(row)
            found.append(episode.call("submit_solution", {"code": code}).reward)
    return found


def by_grade(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    """POST /sandboxes/{id}/grade, in which the completion is the sandbox's `solution.py`."""

    async def one(client: AsyncClient, row: dict[str, Any], code: str) -> float | None:
        fields = _without(task_from_row(row).fields, "language")
        files = {**fields.pop("files", {}), "solution.py": code}
        async with client.sandbox(files=files) as sandbox:
            return (await sandbox.grade(**fields)).reward

    async def all_of_them() -> list[float | None]:
        async with AsyncClient(url) as client:
            rewards = await asyncio.gather(*(one(client, *pair) for pair in pairs))
        return list(rewards)

    return asyncio.run(all_of_them())


def by_rollout(url: str, pairs: Pairs, folder: Path) -> list[float | None]:
    """POST /rollout, of a policy that says each completion once."""
    fields = [task_from_row(row).fields for row, _ in pairs]
    rewards: list[float | None] = [None] * len(pairs)
    with policy_server(lambda asked: says(pairs[int(asked.task)][1])) as server:
        for limits in {json.dumps(each.get("limits")) for each in fields}:
            tasks = [
                {**_without(each, "limits", "language"), "id": str(n), "prompt": str(n)}
                for n, each in enumerate(fields)
                if json.dumps(each.get("limits")) == limits
            ]
            body = {
                "tasks": tasks,
                "policy": {"base_url": server.url, "model": "policy"},
                "agent": {"kind": "refine", "max_attempts": 1},
                "limits": json.loads(limits),
            }
            answer = httpx.post(f"{url}/rollout", json=body, timeout=WAIT_SECONDS).json()
            for each in answer["trajectories"]:
                rewards[int(each["task_id"])] = each["reward"]
    return rewards


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


DOORS: dict[str, Door] = {
    "eval": by_eval,
    "trl": by_trl,
    "ms-swift": by_ms_swift,
    "areal": by_areal,
    "verl": by_verl,
    "nemo-gym": by_nemo_gym,
    "slime": by_slime,
    "openrlhf": by_openrlhf,
}


def test_there_are_forty_seven_tasks_of_many_forms() -> None:
    assert len(PROBLEMS) == 47
    assert len({each.form for each in PROBLEMS}) >= 12


@pytest.mark.parametrize("door", DOORS)
def test_a_completion_has_the_same_reward_by_every_door(
    service: Service, tmp_path: Path, door: str
) -> None:
    skip_without("g++", "node")
    pairs = [(each.row, text) for each in PROBLEMS for text, _ in each.completions]
    expected = [(each.form, text, reward) for each in PROBLEMS for text, reward in each.completions]
    rewards = DOORS[door](service.url, pairs, tmp_path)
    wrong = [
        (form, text, reward)
        for (form, text, wanted), reward in zip(expected, rewards, strict=True)
        if reward != wanted
    ]
    assert wrong == []


def in_files(problem: Problem) -> list[tuple[str, float]]:
    """The completions that are whole files of Python."""
    if task_from_row(problem.row).language != "python":
        return []
    return [(text, reward) for text, reward in problem.completions if "```" not in text]


DOORS_OF_FILES: dict[str, Door] = {
    "episodes": by_episodes,
    "grade": by_grade,
    "rollout": by_rollout,
}


@pytest.mark.parametrize("door", DOORS_OF_FILES)
def test_a_file_of_python_has_the_same_reward_by_every_door(
    service: Service, tmp_path: Path, door: str
) -> None:
    found = [(each, *pair) for each in PROBLEMS for pair in in_files(each)]
    pairs = [(each.row, text) for each, text, _ in found]
    rewards = DOORS_OF_FILES[door](service.url, pairs, tmp_path)
    wrong = [
        (each.form, text, got)
        for (each, text, reward), got in zip(found, rewards, strict=True)
        if got != reward
    ]
    assert wrong == []


def table() -> str:
    """The table of docs/datasets.md: how the tasks of each form come through each group of doors."""
    groups = {
        "eval, audit, TRL, Unsloth, ms-swift, AReaL": lambda _: "its row",
        "verl, NeMo Gym, slime, miles, OpenRLHF": lambda each: (
            "its fields" if each.row.keys().isdisjoint(TRUTHS) else "its ground truth"
        ),
        "`/rollout`, `/grade`, OpenEnv, ORS": lambda each: "its row" if in_files(each) else "",
    }
    lines = ["| form | tasks | right, wrong | " + " | ".join(groups) + " |"]
    lines.append("|---" * (3 + len(groups)) + "|")
    for form in sorted({each.form for each in PROBLEMS}):
        tasks = [each for each in PROBLEMS if each.form == form]
        rewards = [reward for each in tasks for _, reward in each.completions]
        counts = f"{len(tasks)} | {rewards.count(1.0)}, {rewards.count(0.0)}"
        ways = [
            " or ".join(sorted({way for way in map(told, tasks) if way}, reverse=True))
            for told in groups.values()
        ]
        lines.append(f"| `{form}` | {counts} | " + " | ".join(ways) + " |")
    return "\n".join(lines).replace("|  |", "| |") + "\n"


def test_the_document_has_the_table_of_doors_and_forms() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8"), f"docs/datasets.md, please:\n{table()}"
