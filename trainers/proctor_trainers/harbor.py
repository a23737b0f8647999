"""An environment and a verifier for Harbor.

    harbor run --path TASKS --env proctor_trainers.harbor:ProctorEnvironment \\
        --verifier proctor_trainers.harbor:ProctorVerifier

Harbor (PyPI `harbor`, Python 3.12) runs the agent; its sandbox is a stateful sandbox of a Proctor
service, in an environment with the task's image. `proctor env harbor` makes the environments of
tasks (docs/harbor.md). Options of the environment, with `--ek name=value`:

    environment              name of the environment at the service; default: the task's own
    url, token               the service; default: PROCTOR_URL and PROCTOR_TOKEN
    ttl_seconds              unused sandboxes end after this time
    longest_command_seconds  for commands without a timeout; at most an hour

The sandboxes are without a network. Harbor's own verifier runs `tests/test.sh` where the agent ran, or in
its mode `separate` in another sandbox. `ProctorVerifier` has the service run the script, in a fresh sandbox
without subversive changes of the agent.
"""

from __future__ import annotations

import asyncio
import io
import shlex
import tarfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.base import BaseVerifier

from proctor_client import AsyncClient, AsyncSandbox, SandboxTimeoutError, wire
from proctor_client.harbor import environment_of, read_task
from proctor_trainers.addresses import async_client_for

_TRANSFER_SECONDS = 600.0
_TIMED_OUT, _KILLED = 124, 137
_ROOT = (None, "root", "0", 0)


class ProctorEnvironment(BaseEnvironment):  # type: ignore[misc]
    """Stateful sandbox of a Proctor service, as an environment of Harbor."""

    def __init__(
        self,
        *args: Any,
        environment: str | None = None,
        url: str | None = None,
        token: str | None = None,
        ttl_seconds: float = 3600.0,
        longest_command_seconds: float = 3600.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._environment = environment or environment_of(self.environment_dir.parent)
        self._url = url
        self._token = token
        self._ttl_seconds = ttl_seconds
        self._longest_command_seconds = longest_command_seconds
        self._client: AsyncClient | None = None
        self._sandbox: AsyncSandbox | None = None

    @staticmethod
    def type() -> str:
        """Return the name of this kind of environment in Harbor's results."""
        return "proctor"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Sandboxes are without a network."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """The service limits memory and shares the cores."""
        return EnvironmentResourceCapabilities(memory_limit=True)

    def _validate_definition(self) -> None:
        """Accept every task: its image is built before, by `proctor env harbor`."""

    async def start(self, force_build: bool) -> None:
        """Create the sandbox. `force_build` is ignored: building images is a command of its own."""
        self._client = async_client_for(self._url, self._token)
        # Those of task.toml are in the definition of the environment at the service.
        limits = {"memory_mb": self._override_memory_mb, "disk_mb": self._override_storage_mb}
        self._sandbox = self._client.sandbox(
            environment=self._environment,
            ttl_seconds=self._ttl_seconds,
            tags=[f"harbor:{self.session_id}"[:256]],
            limits={name: value for name, value in limits.items() if value is not None},
        )
        try:
            await self._sandbox.start()
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    async def stop(self, delete: bool) -> None:
        """End and remove the sandbox, with or without `delete`."""
        sandbox, self._sandbox = self._sandbox, None
        client, self._client = self._client, None
        try:
            if sandbox is not None:
                await sandbox.close()
        finally:
            if client is not None:
                await client.aclose()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command. A command over its time limit has the return code 124."""
        line = _shell_line(
            command,
            cwd or self.task_env_config.workdir,
            self._merge_env(env) or {},
            self._resolve_user(user),
        )
        seconds = timeout_sec or self._longest_command_seconds
        try:
            ended = await self._running().exec(["sh", "-c", line], timeout_seconds=seconds)
        except SandboxTimeoutError as error:
            ended = error.result
            late = f"{ended.stderr}\nthe command took longer than {seconds:g} s"
            return ExecResult(stdout=ended.stdout, stderr=late.strip(), return_code=_TIMED_OUT)
        code = _KILLED if ended.exit_code is None else ended.exit_code
        return ExecResult(stdout=ended.stdout, stderr=ended.stderr, return_code=code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Write a file, with its folders and its executable bit."""
        data, is_program = await asyncio.to_thread(_read, Path(source_path))
        await self._running().write_file(target_path, data)
        if is_program:
            await self._do(f"chmod 755 {shlex.quote(target_path)}")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Write the files of a folder into a folder, beside its present files."""
        packed, target = _temporary(), shlex.quote(target_dir)
        await self._running().write_file(packed, await asyncio.to_thread(_pack, source_dir))
        await self._do(
            f"mkdir -p {target} && tar -xf {packed} -C {target}; code=$?; rm -f {packed}; exit $code"
        )

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Read a file."""
        data = await self._running().read_file(source_path)
        await asyncio.to_thread(_write, Path(target_path), data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Read the files of a folder; links that lead outside are refused."""
        packed = _temporary()
        await self._do(f"tar -cf {packed} -C {shlex.quote(source_dir)} .")
        data = await self._running().read_file(packed)
        await self._do(f"rm -f {packed}")
        await asyncio.to_thread(_unpack, data, Path(target_dir))

    async def grade(self, grader: wire.HarborGrader) -> wire.Result:
        """Judge the present files of the sandbox, without changing them."""
        return await self._running().grade(grader)

    def _running(self) -> AsyncSandbox:
        if self._sandbox is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox

    async def _do(self, command: str) -> None:
        """Run a command of a transfer as root. Raises RuntimeError for a failure."""
        ended = await self._running().exec(["sh", "-c", command], timeout_seconds=_TRANSFER_SECONDS)
        if ended.exit_code != 0:
            raise RuntimeError(f"{command}: code {ended.exit_code}: {ended.stderr[-1000:]}")


class ProctorVerifier(BaseVerifier):  # type: ignore[misc]
    """Verifier by the service, for the sandbox of a ProctorEnvironment."""

    async def verify(self) -> VerifierResult:
        """Return the reward. Raises RuntimeError without one, and HarborTaskError."""
        if not isinstance(self.environment, ProctorEnvironment) or self.step_name is not None:
            raise RuntimeError("ProctorVerifier judges a ProctorEnvironment, in one step")
        task = await asyncio.to_thread(read_task, self.task.paths.task_dir)
        env = {**task.grader.env, **(self.verifier_env or {}), **self.override_env}
        result = await self.environment.grade(task.grader.model_copy(update={"env": env}))
        written = self.trial_paths.test_stdout_path
        await asyncio.to_thread(_write, written, result.stdout.encode("utf-8", "replace"))
        if result.error is not None or result.reward is None:
            why = "no reward" if result.error is None else result.error.message
            raise RuntimeError(f"the task could not be judged: {why}")
        self.logger.debug("%s %s", result.verdict, result.message)
        return VerifierResult(rewards={"reward": result.reward})


def _shell_line(
    command: str, cwd: str | None, variables: Mapping[str, str], user: str | int | None
) -> str:
    """Return the line for sh to run a command, by bash where bash is installed."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    if cwd is not None:
        lines.append(f"cd {shlex.quote(cwd)} || exit 126")
    lines.append("shell=$(command -v bash || echo sh)")
    run = f'exec "$shell" -c {shlex.quote(command)}'
    if user not in _ROOT:
        name = str(user)
        if name.isdecimal():
            lines.append(f"name=$(getent passwd {name} | cut -d: -f1)")
        else:
            lines.append(f"name={shlex.quote(name)}")
        run = f'exec su -m -s "$shell" -c {shlex.quote(command)} -- "$name"'
    return "\n".join([*lines, run])


def _temporary() -> str:
    return f"/tmp/.proctor-{uuid.uuid4().hex}.tar"


def _read(path: Path) -> tuple[bytes, bool]:
    """Return the bytes and the executable bit of a file."""
    return path.read_bytes(), bool(path.stat().st_mode & 0o111)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _pack(folder: Path | str) -> bytes:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as archive:
        archive.add(folder, arcname=".", filter=_as_root)
    return stored.getvalue()


def _unpack(data: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter=transfer_tar_filter)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
