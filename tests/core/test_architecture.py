"""The design that can be checked by reading: imports go one way, and the guest runtime stands alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from proctor_service.features import FEATURES

SERVICE = Path(__file__).resolve().parents[2] / "service" / "proctor_service"

COMPOSITION = (
    "app.py",
    "composition.py",
    "cli/__init__.py",
    "cli/judge_process.py",
    "features/__init__.py",
)
"""Modules that compose the service from the core and the features."""
# folder or module of the core → what it may import of the service, besides itself
MAY_IMPORT = {
    "codec": set(),
    "guest": {"codec"},
    "settings": {"errors"},
    "scheduling": {"errors"},
    "sandbox": {"errors", "settings", "guest"},
    "judge": {"errors", "settings.languages", "settings.interpreter", "settings.prepared_folder", "codec",
              "guest", "sandbox.interface"},
    "outcomes": {"errors", "judge", "sandbox.interface"},
    "processes": {"errors", "settings.garbage", "judge.submission", "sandbox.interface"},
    "observe": {"errors", "outcomes", "scheduling", "judge.submission", "sandbox.interface"},
    "evaluate": {"errors", "outcomes", "scheduling", "judge.submission", "observe.observer",
                 "sandbox.interface"},
    "http": {"errors", "settings", "version", "evaluate", "scheduling", "judge.submission", "observe",
             "sandbox.interface", "sandbox.open_files"},
    "rewards": {"errors", "settings", "http", "evaluate", "outcomes", "scheduling", "judge.extract",
                "judge.submission", "sandbox.environments", "sandbox.installed", "sandbox.interface",
                "version"},
    "sandboxes": {"errors", "http", "rewards", "outcomes", "scheduling", "judge.extract",
                  "judge.submission", "sandbox.interface"},
}  # fmt: skip
MOST_AT_THE_TOP = 21


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


def files_of(name: str) -> list[Path]:
    folder = SERVICE / name
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SERVICE / f"{name}.py"]


def test_imports_go_one_way() -> None:
    wrong = []
    for name_above, allowed in MAY_IMPORT.items():
        for path in files_of(name_above):
            for name in imports_of(path):
                own = name.split(".")[0] == name_above
                if not own and not any(name == a or name.startswith(a + ".") for a in allowed):
                    wrong.append(f"{path.relative_to(SERVICE)} imports {name}")
    assert wrong == []


def owner_of(name: str) -> str:
    """The feature of a module, or "core"."""
    parts = name.split(".")
    return parts[1] if parts[0] == "features" and len(parts) > 1 else "core"


def test_the_core_imports_no_feature_and_features_import_no_other() -> None:
    wrong = []
    for path in sorted(SERVICE.rglob("*.py")):
        own = str(path.relative_to(SERVICE))
        if own in COMPOSITION:
            continue
        mine = owner_of(own.removesuffix(".py").replace("/", "."))
        for name in imports_of(path):
            if name.startswith("features") and owner_of(name) != mine:
                wrong.append(f"{own} imports {name}")
    assert wrong == []


def test_each_feature_is_a_folder_with_its_module() -> None:
    folders = {path.name for path in (SERVICE / "features").iterdir() if path.is_dir()}
    assert {each.name for each in FEATURES} == folders - {"__pycache__"}
    assert all(
        each.__module__ == f"proctor_service.features.{each.name}.feature" for each in FEATURES
    )


def test_only_the_composition_root_knows_a_concrete_backend() -> None:
    knowing = {
        str(path.relative_to(SERVICE))
        for path in SERVICE.rglob("*.py")
        if not str(path.relative_to(SERVICE)).startswith(("sandbox/", "features/aviato/"))
        for name in imports_of(path)
        if name.startswith("sandbox.local")
    }
    # The journal must not lie where sandboxes see it; a killed judge process leaves cgroups.
    others = {"features/journal/default.py", "features/replicas/feature.py"}
    assert knowing <= {"composition.py", *others}


def test_the_top_level_is_small() -> None:
    found = {path.name for path in SERVICE.iterdir()} - {"__pycache__"}
    assert len(found - {"__init__.py", "__main__.py", "py.typed"}) <= MOST_AT_THE_TOP


def test_the_guest_needs_the_standard_library_alone() -> None:
    sandbox = SERVICE / "sandbox"
    inside = [
        *files_of("guest"),
        *files_of("codec"),
        *files_of("features/aviato/guest"),
        *files_of("features/repositories/reports/observer"),
        *files_of("features/repositories/reports/listener"),
        *(
            sandbox / "linux" / f"{name}.py"
            for name in ("kernel", "procfs", "syscalls", "time_limits")
        ),
        *(sandbox / "local" / f"{name}.py" for name in ("isolation", "fork_server", "zygote")),
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
        if not {"guest", "observer"} & set(path.parts) and "os.environ" in path.read_text()
    }
    # The fork server gives a sandbox its own; the command line looks where a client looks.
    given = {"sandbox/local/fork_server.py", "sandbox/local/image_root.py", "sandbox/probe.py"}
    given.add("sandbox/local/image_boot.py")  # as a part of the guest
    given.add("features/repositories/reports/observer/pytest_session.py")  # in an image's Python
    assert reading <= {*given, "cli/target.py", "cli/temporary.py"}
