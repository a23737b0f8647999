"""The table of system call numbers: as the generator writes it, and as the kernel's headers have it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from proctor_service.sandbox.linux import syscalls

TOOL = Path(__file__).resolve().parents[2] / "service" / "tools" / "syscall_numbers.py"
INCLUDE = Path("/usr/include")
HEADERS = {
    "x86_64": ("x86_64-linux-gnu/asm/unistd_64.h", "asm/unistd_64.h"),
    "aarch64": ("aarch64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h"),
}
LATER_THAN_SOME_HEADERS = {"fchmodat2"}  # Linux 6.6


@pytest.fixture
def tool() -> ModuleType:
    """The generator, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("syscall_numbers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_module_is_as_the_generator_writes_it(tool: ModuleType) -> None:
    text = Path(syscalls.__file__).read_text()
    version = re.search(r"of Linux ([\d.]+),", text)
    assert version is not None
    tables = [syscalls.numbers(machine) for machine in syscalls.MACHINES]
    assert tool.module(version[1], tool.names(), *tables) == text


@pytest.mark.parametrize("machine", syscalls.MACHINES)
def test_the_numbers_are_those_of_the_headers(tool: ModuleType, machine: str) -> None:
    found = [INCLUDE / name for name in HEADERS[machine] if (INCLUDE / name).exists()]
    if not found:
        pytest.skip("no kernel headers here: make test-programs")
    wanted = tool.numbers_in(found[0].read_text())
    numbers = syscalls.numbers(machine)
    differing = {name for name in tool.names() if wanted.get(name) != numbers.get(name)}
    assert differing <= LATER_THAN_SOME_HEADERS - wanted.keys()


def test_another_architecture_has_no_numbers() -> None:
    with pytest.raises(KeyError):
        syscalls.numbers("riscv64")
