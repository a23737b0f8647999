"""`harbor`: the verifier of a Harbor task, in a fresh sandbox with the agent's changes.

The agent's sandbox has ended by now: its processes are gone, and changes able to subvert the
verifier stay behind (`guest/session/retained.py`). The reward is read only after `test.sh` has
ended by itself. Without a reward, the verifier runs once more in an untouched sandbox: if the
reward is missing there, too, the task is broken: an error; otherwise the agent's files are the
cause: a verdict. An error would let the agent avoid a bad reward.

Programs of the agent started by `test.sh` itself have their rights from `test.sh`.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from proctor_client.wire import HarborGrader
from proctor_service.errors import (
    FileMissing,
    FileRefused,
    InvalidRequest,
    InvalidTask,
    SandboxEnded,
    SandboxLost,
)
from proctor_service.guest.session.retained import LIBRARIES, TOOLS, is_open
from proctor_service.judge.run import LIMITS, of_silence, room_for, text_of
from proctor_service.judge.submission import GraderRules, Judgement, Place, Submission
from proctor_service.rewards.machine import check_files
from proctor_service.sandbox.interface import Command, Ended, Sandboxes, StatefulSandbox, Usage

TESTS = "/tests"
LOGS = "/logs/verifier"
OWN_FOLDERS = ("/logs", "/solution", TESTS)
"""Folders of Harbor: only the agent's artifacts in them are taken over."""
ARTIFACTS = "/logs/artifacts"
OUTPUT = f"{LOGS}/test-stdout.txt"
_MOST_REWARD_BYTES = 1 << 16
_PREPARE_SECONDS = 60.0
_LOOK = "pwd && exec env -0"
_CLEAR = f"rm -rf {TESTS} {LOGS} && mkdir -p {TESTS} {LOGS} && chmod 777 {LOGS}"
_RUN = f'chmod -R 755 {TESTS}; cd "$1" || cd /; exec {TESTS}/test.sh >{OUTPUT} 2>&1'


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """Working directory and variables of an untouched sandbox of the image."""

    directory: str
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Verification:
    """A run of the verifier: its ending, and its reward or the reason for its absence.

    `ended` is None if the sandbox was gone before `test.sh` ended.
    """

    reward: float | None = None
    message: str = ""
    ended: Ended | None = None
    output: str = ""
    sandbox_id: str = ""

    def judgement(self, verdict: str, message: str, reward: float | None) -> Judgement:
        """Return a judgement with the output and usage of this run.

        Raises SandboxLost if a failure may not be the agent's.
        """
        ended = self.ended
        if verdict != "passed" and ended is not None and ended.doubt:
            raise SandboxLost(ended.doubt)
        return Judgement(
            verdict,  # type: ignore[arg-type]
            passed=int(verdict == "passed"),
            total=1,
            message=message,
            stdout=self.output,
            exit_code=None if ended is None else ended.exit_code,
            usage=Usage() if ended is None else ended.usage,
            integrity="in_process",
            sandbox_id=self.sandbox_id,
            score=reward,
        )


class _BrokenTask(Exception):
    """The image or the tests cannot be used; the message says why."""


async def judge(submission: Submission, grader: HarborGrader, backend: Sandboxes) -> Judgement:
    """Return the judgement of an agent's final state.

    Raises InvalidTask for tests without a reward in an untouched sandbox, too.
    """
    try:
        found = await _verify(submission, grader, backend)
        if found.reward is not None:
            verdict = "passed" if found.reward == 1.0 else "failed"
            return found.judgement(verdict, found.message, found.reward)
        limited = None if found.ended is None else LIMITS.get(found.ended.ending)
        if limited is not None:
            return found.judgement(limited[0], f"test.sh: {limited[1]}", 0.0)
        control = found
        if submission.state is not None:
            control = await _verify(replace(submission, state=None), grader, backend)
        if control.reward is None:
            raise _BrokenTask(f"{control.message}, in an untouched sandbox too\n{control.output}")
    except _BrokenTask as broken:
        raise InvalidTask(f"the verifier: {broken}"[:4000].strip()) from None
    return found.judgement("runtime_error", f"the verifier: {found.message}", 0.0)


async def _verify(
    submission: Submission, grader: HarborGrader, backend: Sandboxes
) -> _Verification:
    """Run the verifier on a state, or on the task's files. Raises _BrokenTask, and Failures."""
    limits, state = room_for(submission.limits, submission.state), submission.state
    async with backend.open(limits, submission.environment) as sandbox:
        seen = _Verification(sandbox_id=sandbox.id)
        try:
            defaults = await _image_defaults(sandbox)
            if state is None:
                await _put_files(sandbox, submission)
            else:
                kept_paths = [*grader.keep, ARTIFACTS]
                try:
                    await sandbox.restore(
                        state, kept_paths, ["/"] if grader.separate else OWN_FOLDERS
                    )
                except FileRefused as error:
                    return replace(seen, message=f"the files cannot be put in place: {error}")
            await _put_tests(sandbox, grader)
            ended = await sandbox.exec(_command(grader, defaults))
            seen = replace(seen, ended=ended, output=await _output(sandbox, submission))
            if ended.ending != "exited":
                return replace(seen, message=_unexpected(ended))
            return await _with_reward(seen, sandbox)
        except SandboxEnded as error:
            return replace(seen, message=f"its sandbox ended: {error.message}")
        except _BrokenTask as broken:
            if state is None:
                raise
            return replace(seen, message=str(broken))  # the agent's files may be the cause


async def _image_defaults(sandbox: StatefulSandbox) -> ImageDefaults:
    """Return the working directory and variables. Raises _BrokenTask for an image without sh."""
    ended = await sandbox.exec(Command(("sh", "-c", _LOOK), timeout_seconds=_PREPARE_SECONDS))
    if ended.exit_code != 0:
        why = text_of(ended.stderr)[:500]
        raise _BrokenTask(f"the image needs sh and env for its tests: {ended.ending}, {why}")
    directory, _, rest = ended.stdout.decode("utf-8", "surrogateescape").partition("\n")
    pairs = (each.partition("=") for each in rest.split("\0") if "=" in each)
    return ImageDefaults(directory, {name: value for name, _, value in pairs})


async def _put_files(sandbox: StatefulSandbox, submission: Submission) -> None:
    """Write the files of the task. Raises _BrokenTask."""
    try:
        for path, text in submission.files.items():
            await sandbox.write_file(path, text.encode("utf-8", "surrogatepass"))
    except FileRefused as refused:
        raise _BrokenTask(f"files: {refused.message}") from None


async def _put_tests(sandbox: StatefulSandbox, grader: HarborGrader) -> None:
    """Write the tests into an empty folder. Raises _BrokenTask."""
    ended = await sandbox.exec(Command(("sh", "-c", _CLEAR), timeout_seconds=_PREPARE_SECONDS))
    if ended.exit_code != 0:
        raise _BrokenTask(f"{TESTS} cannot be made: {text_of(ended.stderr)[:500]}")
    try:
        for path, text in grader.tests.items():
            await sandbox.write_file(f"{TESTS}/{path}", text.encode("utf-8", "surrogatepass"))
        for path, text in grader.binary_tests.items():
            await sandbox.write_file(f"{TESTS}/{path}", base64.b64decode(text))
    except FileRefused as refused:
        raise _BrokenTask(f"{TESTS} cannot be written: {refused.message}") from None


def _command(grader: HarborGrader, defaults: ImageDefaults) -> Command:
    """Return the command of `test.sh`, with the image's variables and the task's."""
    changed = verifier_variables(defaults)
    unset = [word for name, value in changed.items() if not value for word in ("-u", name)]
    assigned = {name: value for name, value in changed.items() if value} | grader.env
    script = ("sh", "-c", _RUN, "test.sh", defaults.directory)
    argv = ("env", *unset, *(f"{name}={value}" for name, value in assigned.items()), *script)
    return Command(argv, timeout_seconds=grader.timeout_seconds)


def verifier_variables(defaults: ImageDefaults) -> dict[str, str]:
    """Return the variables in which the verifier's differ from the image's; "" removes one.

    A variable such as PYTHONPATH loses the working directory, and the folders above and below it:
    code of the agent would come before the interpreter's.
    """
    found = {}
    for name in (*TOOLS, *LIBRARIES):
        if name in defaults.variables:
            entries = defaults.variables[name].split(":")
            safe = [each for each in entries if not is_open(each, name, defaults.directory)]
            if safe != entries:
                found[name] = ":".join(safe)
    return found


async def _output(sandbox: StatefulSandbox, submission: Submission) -> str:
    """Return the end of the output of `test.sh`, up to the submission's limit."""
    size = submission.limits.output_kb << 10
    command = Command(("tail", "-c", str(size), OUTPUT), timeout_seconds=_PREPARE_SECONDS)
    ended = await sandbox.exec(command)
    return text_of(ended.stdout[-size:])


async def _with_reward(seen: _Verification, sandbox: StatefulSandbox) -> _Verification:
    for name in ("reward.json", "reward.txt"):
        try:
            data = await sandbox.read_file(f"{LOGS}/{name}", _MOST_REWARD_BYTES)
            reward, message = reward_of(data, is_json=name.endswith(".json"))
        except FileMissing:
            continue
        except (FileRefused, ValueError) as error:
            return replace(seen, message=f"{name}: {error}")
        return replace(seen, reward=reward, message=message)
    return replace(seen, message=f"test.sh ended with {_exit(seen)} and wrote no reward")


def reward_of(data: bytes, *, is_json: bool) -> tuple[float, str]:
    """Return the reward in a reward file, and a text with all rewards if there are several.

    A `reward.txt` holds a number. A `reward.json` holds a number, or numbers by name: then `reward` or the
    only number counts. Raises ValueError, also for a reward below 0 or above 1.
    """
    text = data.decode("utf-8", "replace").strip()
    if not is_json:
        return _in_range(float(text)), ""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    values = found if isinstance(found, dict) else {"reward": found}
    for name, value in values.items():
        if not _is_finite(value):
            raise ValueError(f"{name[:100]!r} is no finite number")
    if "reward" not in values and len(values) != 1:
        raise ValueError(f"no value is named reward, only: {', '.join(values)[:200]}")
    reward = values["reward"] if "reward" in values else next(iter(values.values()))
    several = "" if len(values) == 1 else f"rewards: {json.dumps(values)}"[:2000]
    return _in_range(float(reward)), several


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def _in_range(value: float) -> float:
    if not 0.0 <= value <= 1.0:  # NaN, too
        raise ValueError(f"the reward {value:g} is not from 0 to 1")
    return value


def _unexpected(ended: Ended) -> str:
    """Describe an ending of `test.sh` by a limit or a signal. Raises SandboxLost for a kill."""
    limited = LIMITS.get(ended.ending)
    return limited[1] if limited is not None else of_silence(ended)[1]


def _exit(seen: _Verification) -> str:
    return "no exit code" if seen.ended is None else f"code {seen.ended.exit_code}"


def _check(grader: HarborGrader, place: Place, where: str) -> None:
    if not place.has_image:
        raise InvalidRequest(f"{where}: harbor needs an environment with an image")
    check_files({**grader.tests, **grader.binary_tests}, f"{where}.tests")
    if not grader.timeout_seconds <= place.max_seconds:
        seconds = grader.timeout_seconds
        text = f"{seconds} is above this server's {place.max_seconds}"
        raise InvalidRequest(f"{where}.timeout_seconds: {text}")
    if not place.keeps_files:
        raise InvalidRequest(
            f"{where}: harbor judges what an agent leaves in its sandbox: the agent must be of the "
            "kind tools, without submit_solution"
        )


RULES = GraderRules("harbor", judge, check=_check)
