"""The design that can be checked by reading: imports go one way, and what runs inside stands alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SERVICE = Path(__file__).resolve().parents[2] / "service" / "proctor_service"

# room → what it may import of the service, besides itself
MAY_IMPORT = {
    "inside": set(),
    "sandbox": {"errors", "settings", "languages", "inside"},
    "judge": {"errors", "languages", "inside", "sandbox.interface"},
    "admission": {"errors"},
    "registry": {"errors", "admission", "sandbox.interface"},
    "attempts": {"errors", "admission"},
    "evaluate": {"errors", "admission", "attempts", "judge", "sandbox.interface"},
    "running": {"errors", "languages", "admission", "attempts", "sandbox.interface"},
    "replicas": {"errors"},
    "redis_store": {"errors"},
    "rollout": {"errors", "evaluate", "judge.extract", "judge.submission", "sandbox.interface"},
    "metrics": {"errors", "admission", "evaluate", "judge", "rollout", "sandbox.interface"},
    "measured": {"errors", "evaluate", "judge", "metrics", "rollout", "sandbox.interface"},
    "readiness": {"errors", "evaluate", "judge", "sandbox.interface"},
    "tracing": {"errors", "evaluate", "judge", "rollout", "sandbox.interface"},
    "api": {"errors", "settings", "languages", "admission", "evaluate", "judge", "metrics", "logs",
            "registry", "replicas", "rollout", "running", "sandbox.interface"},
}  # fmt: skip


def imports_of(path: Path) -> Iterator[str]:
    """The modules of the service that a file imports, without the package's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("proctor_service."):
                yield name.removeprefix("proctor_service.")


def files_of(room: str) -> list[Path]:
    folder = SERVICE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SERVICE / f"{room}.py"]


def test_imports_go_one_way() -> None:
    wrong = []
    for room, allowed in MAY_IMPORT.items():
        for path in files_of(room):
            for name in imports_of(path):
                own = name.split(".")[0] == room
                if not own and not any(name == a or name.startswith(a + ".") for a in allowed):
                    wrong.append(f"{path.relative_to(SERVICE)} imports {name}")
    assert wrong == []


def test_only_the_composition_root_knows_a_concrete_backend() -> None:
    knowing = {
        str(path.relative_to(SERVICE))
        for path in SERVICE.rglob("*.py")
        if "backends" not in path.parts
        for name in imports_of(path)
        if name.startswith("sandbox.backends")
    }
    assert knowing <= {"app.py", "cli/doctor.py"}


def test_what_runs_in_a_sandbox_needs_the_standard_library_alone() -> None:
    local = SERVICE / "sandbox" / "backends" / "local"
    inside = [
        *files_of("inside"),
        *files_of("sandbox/backends/aviato/inside"),
        *(local / f"{name}.py" for name in ("kernel", "jail", "forkserver", "procfs")),
    ]
    tools = {"pytest", "numpy"}
    for path in inside:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or top in tools, f"{path.name}: {name}"


def test_only_the_settings_read_the_environment() -> None:
    reading = {
        str(path.relative_to(SERVICE))
        for path in SERVICE.rglob("*.py")
        if "inside" not in path.parts and "os.environ" in path.read_text()
    }
    # The forkserver gives a sandbox its own; the command line looks where a client looks.
    assert reading <= {"sandbox/backends/local/forkserver.py", "cli/target.py", "cli/temporary.py"}
