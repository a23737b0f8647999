"""What fails inside a sandbox before the submission's first statement is our error, and no verdict."""

from __future__ import annotations

import asyncio
import logging
import venv
from pathlib import Path
from typing import Any

import pytest
from broken_runners import TEXT, WORD, broken_inside, broken_service
from harness import Service, running_service
from judging import ask, calls, one, stdio
from optional_programs import skip_without
from shared_judging import shared_judge
from visible_folder import visible_folder

from proctor_client.wire import ExecGrader
from proctor_service.composition import all_graders, make_backend
from proctor_service.judge.judge import Judge
from proctor_service.judge.run import RunnerFailed
from proctor_service.judge.submission import Submission
from proctor_service.sandbox.interface import Limits
from proctor_service.settings import Settings

SOURCE = f"def f(x): return 2 * x  # {WORD}"
PYTEST = {
    "kind": "pytest",
    "files": {"test_it.py": "from solution import f\ndef test(): assert f(1) == 2\n"},
}
GRADERS: dict[str, dict[str, Any]] = {
    "asserts": {"kind": "asserts", "tests": ["assert f(1) == 2"]},
    "objects": {"kind": "asserts", "tests": ["for x in (1,):\n    assert f(x) == 2"]},
    "calls": calls(([1], 2)),
    "stdio": stdio(("", "")),
    "exec": {"kind": "exec"},
    "pytest": PYTEST,
}
BREAKS = {
    **{f"prepare, {name}": ("guest/script", "prepare", GRADERS[name])
       for name in ("asserts", "objects", "calls", "stdio", "exec")},
    "files, pytest": ("guest/work_files", "write_files", PYTEST),
    "load": ("guest/script", "load_job", GRADERS["asserts"]),
    "a decoder": ("codec/decoding", "decode", {"kind": "asserts", "tests": [f"assert f('{WORD}')"]}),
    "pytest, options": ("guest/same_process/pytest_run", "_options", PYTEST),
    "pytest, reporter": ("guest/same_process/pytest_reporter", "make_reporter", PYTEST),
    "pytest, start": ("guest/same_process/pytest_run", "_clear_folders", PYTEST),
    "command": ("guest/command", "place", {"kind": "command", "argv": ["true"]}),
}  # fmt: skip
ALWAYS = ("_options", "make_reporter", "_clear_folders")


def is_our_error(
    service: Service,
    caplog: pytest.LogCaptureFixture,
    item: dict[str, Any] | None = None,
    **asked: Any,
) -> None:
    """Asks, and checks the error and its log line."""
    with caplog.at_level(logging.ERROR):
        [result] = ask(service, {"completion": SOURCE, **(item or {})}, **asked)
    assert (result["verdict"], result["reward"]) == (None, None), result
    assert result["error"]["reason"] == "judge_failed"
    assert TEXT not in str(result["error"])
    [logged] = [record for record in caplog.records if record.exc_info]
    assert logged.exc_info is not None
    assert TEXT in str(logged.exc_info[1])
    assert "Traceback" in str(logged.exc_info[1])


@pytest.mark.parametrize("name", BREAKS)
def test_a_runner_that_fails_at_the_start_is_our_error(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module, function, grader = BREAKS[name]
    with broken_service(tmp_path, module, function, always=function in ALWAYS) as service:
        is_our_error(service, caplog, grader=grader)


def test_a_test_sandbox_that_fails_before_its_first_question_is_our_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tests = [f"word = '{WORD}'\nfor x in (1,):\n    assert f(x) == 2"]
    with broken_service(tmp_path, "guest/separated/suite_runner", "judge_tests") as service:
        [result] = ask(service, {"completion": SOURCE}, grader={"kind": "asserts", "tests": tests})
    assert (result["reward"], result["error"]["reason"]) == (None, "judge_failed")
    assert TEXT not in str(result["error"])
    assert TEXT in caplog.text


def test_a_state_that_our_code_fails_to_restore_is_our_error(tmp_path: Path) -> None:
    async def judged(settings: Settings) -> None:
        backend = make_backend(settings)
        await backend.start()
        try:
            limits = Limits(2, 10, 256, 64, 16, 64)
            grader = ExecGrader(kind="exec")
            await Judge(all_graders({}))(Submission("x = 1", grader, limits, state=b"tar"), backend)
        finally:
            await backend.close()

    broken = broken_inside(tmp_path, "guest/session/file_operations", "restore", always=True)
    with broken, pytest.raises(RunnerFailed, match=TEXT):
        asyncio.run(judged(Settings()))


def test_the_runner_of_the_level_shared_that_fails_is_our_error(tmp_path: Path) -> None:
    for module, name in (
        ("guest/same_process/suite_code", "compile_tests"),
        ("guest/origins", "failure_texts"),
    ):
        broken = broken_inside(tmp_path / name, module, name, always=True)
        with broken, shared_judge() as judge:
            if name == "failure_texts":  # the submission has begun, as far as anybody can tell
                assert judge(SOURCE, "assert f(1) == 2").verdict == "early_exit"
                continue
            with pytest.raises(RunnerFailed, match=TEXT):
                judge(SOURCE, "assert f(1) == 2")


@pytest.mark.parametrize("function", ["place", "_exit_code_of", "_made_since"])
def test_a_compiler_s_runner_that_fails_is_our_error(
    function: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skip_without("gcc")
    always = function != "place"
    with broken_service(tmp_path, "guest/command", function, always=always) as service:
        item = {"completion": f"int main(void) {{ return 0; }} // {WORD}", "language": "c"}
        is_our_error(service, caplog, grader=stdio(("", "")), item=item)


def test_a_limit_of_processes_is_meant_for_the_program_and_not_for_its_compiler(
    service: Service,
) -> None:
    skip_without("gcc")
    item = {"completion": "int main(void) { return 0; }", "language": "c"}
    limits = {"limits": {"processes": 1}}
    [result] = ask(service, {**item, **limits}, grader=stdio(("", "")))
    assert result["verdict"] == "passed", result


def test_a_pytest_that_cannot_be_imported_is_our_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with visible_folder() as folder:
        venv.create(folder / "venv", with_pip=False)
        [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
        for name in ("_pytest.py", "pytest.py"):
            (packages / name).write_text(f"raise RuntimeError({TEXT!r})\n")
        python = folder / "venv" / "bin" / "python"
        with running_service(Settings(sandbox_python=python), judge=None) as service:
            is_our_error(service, caplog, grader=PYTEST)


FORGERIES = {
    "at the start": "import os\nfor n in range(3, 600):\n    try: os.write(n, LINE)\n"
    "    except OSError: pass\nos._exit(1)\n",
    "in a call": "import os\ndef f(x):\n    for n in range(3, 600):\n"
    "        try: os.write(n, LINE)\n        except OSError: pass\n    os._exit(1)\n",
}


DEEP = '["broken", ' + "[" * 2000 + "]" * 2000 + "]"


@pytest.mark.parametrize(
    "line",
    ['["broken", "no"]', '["unfit", "no"]', '["unusable", "no"]', DEEP],
    ids=["broken", "unfit", "unusable", "deep"],
)
def test_a_submission_cannot_ask_for_an_error(service: Service, line: str) -> None:
    for name, grader in GRADERS.items():
        for where, source in FORGERIES.items():
            if name in ("stdio", "exec"):
                source += "f(1)" if where == "in a call" else ""
            text = f"LINE = {line!r}.replace(', ', ',').encode() + b'\\n'\n{source}"
            result = one(service, text, grader)
            assert (name, where, result["reward"]) == (name, where, 0.0)


def test_an_end_without_a_report_is_a_verdict_and_is_told(
    service: Service,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = unreported_ends(service)
    for name, grader in GRADERS.items():
        if name not in ("stdio", "objects"):
            caplog.clear()
            result = one(service, "import os\ndef f(x): os._exit(3)\nf(1)", grader)
            assert (name, result["reward"]) == (name, 0.0)
            [told] = [r.getMessage() for r in caplog.records if "without a report" in r.msg]
            assert "exited, code 3" in told
    assert unreported_ends(service) - before == 4


def unreported_ends(service: Service) -> float:
    with service.client() as client:
        lines = client.get("/metrics").text.splitlines()
    [line] = [each for each in lines if each.startswith("proctor_unreported_ends_total ")]
    return float(line.split()[1])


@pytest.mark.parametrize(
    "nested", ["(" * 5000 + ")" * 5000, "-" * 200_000 + "1", "x" + ".a" * 100_000]
)
def test_a_text_too_deep_to_compile_is_no_error(service: Service, nested: str) -> None:
    for grader in (GRADERS["asserts"], PYTEST):
        result = one(service, f"x = {nested}", grader)
        assert result["reward"] == 0.0
