"""The commands of a task in the image: a shell, the task's variables, the activation."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proctor_service.errors import InvalidTask
from proctor_service.judge.run import text_of
from proctor_service.sandbox.interface import Command, StatefulSandbox

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "/usr/bin/sh")
CONDA = tuple(
    f"{home}/{name}"
    for home in ("/opt", "/root")
    for name in ("miniconda3", "conda", "anaconda3", "miniforge3", "mambaforge")
)
_ACTIVATION_SECONDS = 60.0
_PREPARE_SECONDS = 600.0
_OWN = ("PWD", "OLDPWD", "SHLVL", "_")
"""Variables of the shell that computes an activation."""


@dataclass(frozen=True, slots=True)
class Shell:
    """The way to run commands in a sandbox. `variables`: on top of the image's own, `image_variables`."""

    program: str
    directory: str
    variables: Mapping[str, str] = field(default_factory=dict)
    image_variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_variables(self) -> Mapping[str, str]:
        """All variables of a command."""
        return {**self.image_variables, **self.variables}

    def command(
        self,
        work: str | Sequence[str],
        before: str | Sequence[str] | None = None,
        between: str = "",
        timeout_seconds: float | None = None,
    ) -> Command:
        """Return the command for the work in the directory.

        `before`: a command with output on stderr. `between`: lines for the shell behind this command.
        """
        lines = [f"cd {shlex.quote(self.directory)} || exit 126"]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items()]
        if before is not None:
            text = before if isinstance(before, str) else shlex.join(before)
            lines.append("{ eval " + shlex.quote(text) + "; } >&2 || exit 125")
            lines.append(between)
        if isinstance(work, str):
            lines.append(work)
            words: Sequence[str] = ()
        else:
            lines.append('exec "$@"')
            words = work
        script = "\n".join(lines)
        return Command(
            (self.program, "-c", script, "test", *words), timeout_seconds=timeout_seconds
        )


async def activation(
    sandbox: StatefulSandbox, shell: str, activate: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of the image, and the variables set by an activation. Raises InvalidTask.

    `activate`: `conda:NAME`, or the folder of a virtual environment.
    """
    before = await _variables(sandbox, (shell, "-c", "exec env -0"), "env")
    if activate is None:
        return before, {}
    if not activate.startswith("conda:"):
        script = 'PATH="$1/bin:$PATH" VIRTUAL_ENV="$1" exec env -0'
        argument = activate.rstrip("/")
    else:
        argument = activate.removeprefix("conda:")
        places = " ".join(CONDA)
        script = (
            f"for each in ${{CONDA_PREFIX:-}} ${{CONDA_EXE%/bin/conda}} {places}; do\n"
            '  if [ -f "$each/bin/activate" ]; then\n'
            '    . "$each/bin/activate" "$1" >&2 && exec env -0\n'  # scripts of packages print lines
            "    exit 1\n"
            "  fi\n"
            'done\necho "there is no conda" >&2; exit 1'
        )
    after = await _variables(sandbox, (shell, "-c", script, "activate", argument), activate)
    return before, {
        name: value
        for name, value in after.items()
        if before.get(name) != value and name not in _OWN and name.isidentifier()
    }


async def _variables(sandbox: StatefulSandbox, argv: tuple[str, ...], what: str) -> dict[str, str]:
    ended = await sandbox.exec(Command(argv, timeout_seconds=_ACTIVATION_SECONDS))
    if ended.exit_code != 0:
        raise InvalidTask(f"activate: {what} fails in the image: {text_of(ended.stderr)[-500:]}")
    pairs = (each.partition("=") for each in text_of(ended.stdout).split("\0") if "=" in each)
    return {name: value for name, _, value in pairs}


async def prepare(sandbox: StatefulSandbox, shell: Shell, commands: Sequence[str]) -> None:
    """Run the commands of the task's preparation. Raises InvalidTask for a failed command."""
    for index, command in enumerate(commands):
        ended = await sandbox.exec(shell.command(command, timeout_seconds=_PREPARE_SECONDS))
        if ended.exit_code != 0:
            why = text_of(ended.stderr or ended.stdout)[-500:]
            raise InvalidTask(f"prepare.commands.{index} ends with {ended.exit_code}: {why}")
