"""Protections available on this machine, and the start parameters of fork servers.

`make_plan` inspects the machine before any sandbox runs: root or user namespaces, cgroups,
architecture, languages. Each missing protection becomes a check with its remedy (`proctor doctor`)
and an entry in `Traits.degraded`. Without namespaces the service lacks isolation, and refuses to
start unless explicitly allowed.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor_service.errors import StartError
from proctor_service.sandbox import code_bundle
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, BuiltEnvironment, Environments
from proctor_service.sandbox.installed import language_versions, machine_names, on_path
from proctor_service.sandbox.interface import (
    ENVIRONMENT_IDLE_SECONDS,
    FLOOD_BYTES,
    MachineCheck,
    Traits,
)
from proctor_service.sandbox.linux import kernel, seccomp
from proctor_service.sandbox.local import bundle, cgroups
from proctor_service.sandbox.local.abilities import READ_ONLY_TESTS, kernel_checks
from proctor_service.sandbox.local.bundle import USERS, Launch
from proctor_service.sandbox.local.fork_server import RLIMITS
from proctor_service.sandbox.local.image import TOOLS, in_image
from proctor_service.sandbox.local.image_store import image_store_checks
from proctor_service.sandbox.local.interpreter import (
    Interpreter,
    ask_interpreter,
    find_interpreter,
    is_shown,
)
from proctor_service.sandbox.local.kernel_users import (
    SubordinateIds,
    bounds,
    find_subordinate_ids,
    own_user_check,
    part_of,
    readable_by_others,
)
from proctor_service.sandbox.local.shown_paths import (
    check_settings,
    environment_paths,
    setting_paths,
)
from proctor_service.sandbox.memory_room import memory_check, memory_room
from proctor_service.sandbox.open_files import allowed_open_files
from proctor_service.settings import Settings, Share
from proctor_service.settings.cgroups_above import kills_path
from proctor_service.settings.languages import SANDBOX_PATH
from proctor_service.settings.prepared_folder import SHOWN_AT, prepared_folder

PRELOAD = (
    *("bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json"),
    *("math", "operator", "random", "re", "string", "traceback", "typing"),
)
"""Modules warm in every sandbox; more make a fork dearer. An environment names its own."""
NICE = 5
"""How far sandboxes step back for the service, which answers while all cores judge."""
_TRY = "import ctypes, os; os._exit(ctypes.CDLL(None).unshare({flags}) != 0)"
_CHANGE_USER = 1 << 6 | 1 << 7  # CAP_SETGID, CAP_SETUID: see capability.h
_TOOL_PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_RLIMITS = 1 << 64  # values of an rlimit; the last means none, as -1 does in Python
_WEIGHT_OF_NICE = 0.8  # factor of CPU share per nice level (sched(7))


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """Plan of the local backend for this machine.

    `memory_mb`: maximum memory of all evaluations with a slot together. `launch_in`: returns the
    launch of another environment; blocks, and raises StartError. `idle_seconds`: time after which an
    unused environment ends.
    """

    launch: Launch
    traits: Traits
    checks: tuple[MachineCheck, ...]
    hierarchy: cgroups.Hierarchy | None
    cpu_weight: float
    warm_slots: int
    max_slots: int
    memory_mb: float
    tenant_weights: Mapping[str, float]
    launch_in: Callable[[str], Launch]
    idle_seconds: float
    environments: Environments

    @property
    def memory_is_counted(self) -> bool:
        """True if a cgroup limits a sandbox's memory as a whole."""
        return self.hierarchy is not None and self.hierarchy.counts("memory")

    def open_groups(self) -> cgroups.Groups | None:
        """Remove dead services' cgroups, and return a directory for this service's cgroups."""
        if self.hierarchy is None:
            return None
        cgroups.remove_stale(self.hierarchy)
        return cgroups.Groups(self.hierarchy, self.cpu_weight)


def make_plan(
    settings: Settings, share: Share | None = None, environments: Environments = NO_ENVIRONMENTS
) -> LocalPlan:
    """Inspect the machine and return the plan for a part of the machine, by default the whole.

    Raises StartError without an interpreter, and for paths hiding files of sandboxes.
    """
    share = share or Share()
    check_settings(settings, environments)
    interpreter = find_interpreter(settings)
    hierarchy, why_not = cgroups.find()
    walls, user_namespace = _namespaces(settings.sandbox_uid)
    memory_counted = hierarchy is not None and hierarchy.counts("memory")
    languages = _languages(settings)
    sandboxes = settings.max_sandboxes * share.count
    ids = find_subordinate_ids(sandboxes) if user_namespace else None
    checks = (
        *walls,
        own_user_check(ids),
        *_cgroup_checks(hierarchy, why_not),
        _core_check(hierarchy),
        _hidden_service(interpreter),
        _open_files_check(settings),
        memory_check(settings, memory_room()),
        MachineCheck("python", True, f"{interpreter.executable} ({interpreter.version})"),
        *image_store_checks(settings),
        *_language_checks(settings, languages),
    )
    config: dict[str, object] = {
        "namespaces": walls[0].ok,
        "user_namespace": user_namespace,
        "drops_user": not user_namespace and _can_become(settings.sandbox_uid),
        "memory_counted": memory_counted,
        "shows_mounts": all(check.ok for check in walls if check.name == READ_ONLY_TESTS),
        "bounds": bounds(sandboxes) if user_namespace else None,
        "subordinate": None,
        "outer_uid": os.geteuid(),
        "outer_gid": os.getegid(),
        "nice": NICE,
    }
    launch = _launch(settings, interpreter, config, share)
    if isinstance(ids, SubordinateIds):
        own = part_of(ids, share.index, share.count, launch.users)
        launch = replace(launch, users=own.count, ids=own)
    launch = _with_own_users(launch)

    def launch_in(environment: str) -> Launch:
        found = environments.get(environment)
        if found is None:
            raise StartError("this service does not have it")
        return in_environment(launch, found, settings)

    return LocalPlan(
        launch=launch,
        launch_in=launch_in,
        idle_seconds=ENVIRONMENT_IDLE_SECONDS,
        environments=environments,
        traits=Traits(
            name="local",
            degraded=tuple(check.name for check in checks if not check.ok and check.guards),
            languages=("python", *languages),
            tools=(TOOLS,),
            judged_with=_judged_with(settings, interpreter),
            has_operations=True,
        ),
        checks=checks,
        hierarchy=hierarchy,
        cpu_weight=settings.slot_count() * _WEIGHT_OF_NICE**NICE,
        warm_slots=min(settings.slot_count(), settings.max_sandboxes),
        max_slots=settings.max_sandboxes,
        memory_mb=settings.slot_count() * settings.memory_mb,
        tenant_weights=settings.tenant_weights,
    )


def _judged_with(settings: Settings, interpreter: Interpreter) -> dict[str, dict[str, str]]:
    """Return the influences of this machine on verdicts, for the fingerprint."""
    installed = on_path(interpreter.path)
    return {
        "interpreter": {"version": interpreter.version, "build": interpreter.build},
        "packages": dict(installed.packages),
        "modules": dict.fromkeys(sorted(installed.modules), "there"),
        "languages": language_versions(settings.languages),
        "machine": machine_names(),
    }


def refuse_without_isolation(plan: LocalPlan, allow_degraded: bool) -> None:
    """Raise StartError when a required protection is missing, unless `allow_degraded`."""
    missing = [check for check in plan.checks if check.required and not check.ok]
    if missing and not allow_degraded:
        lines = "; ".join(f"{check.name}: {check.detail} ({check.mend})" for check in missing)
        raise StartError(f"this machine cannot isolate sandboxes: {lines}")


def _launch(
    settings: Settings, interpreter: Interpreter, machine_config: dict[str, object], share: Share
) -> Launch:
    users = USERS // share.count
    memory_counted = bool(machine_config["memory_counted"])
    config: dict[str, object] = {
        **machine_config,
        "tools": {**_tool_paths(), **_prepared_files()},
        **_python_config(interpreter),
        "paths": [*interpreter.shown, *setting_paths(settings)],
        "seccomp_outer": seccomp.outer(os.uname().machine, memory_counted).hex(),
        "seccomp_inner": seccomp.inner(os.uname().machine).hex(),
    }
    return Launch(
        python=interpreter.executable,
        environment=_environment(interpreter),
        config=config,
        preload=PRELOAD,
        code=_code(interpreter),
        first_uid=settings.sandbox_uid + share.index * users,
        users=users,
        disk_mb=settings.disk_mb,
        flood_bytes=FLOOD_BYTES,
        memory_is_counted=memory_counted,
        kills_path=kills_path(),
        contained=bool(machine_config["namespaces"]),
        rlimits=tuple(
            (soft % _RLIMITS, hard % _RLIMITS)
            for soft, hard in (resource.getrlimit(each) for each in RLIMITS)
        ),
    )


def in_environment(launch: Launch, built: BuiltEnvironment, settings: Settings) -> Launch:
    """Return the launch of fork servers of an environment; blocks. Raises StartError."""
    if built.image is not None:
        return in_image(launch, built.image, built.definition.env)
    if built.python is None:
        raise StartError("its image is not fetched")
    definition = built.definition
    interpreter = ask_interpreter(built.python, definition.env)
    preload = (*PRELOAD, *(definition.preload or ()))
    made = replace(
        launch,
        python=interpreter.executable,
        environment={**_environment(interpreter), **definition.env},
        config={
            **launch.config,
            **_python_config(interpreter),
            "paths": [
                *interpreter.shown,
                *setting_paths(settings),
                *environment_paths(definition, f"environments.{built.name}"),
            ],
        },
        preload=tuple(dict.fromkeys(preload)),
        code=_code(interpreter),
    )
    return _with_own_users(made)


def _with_own_users(launch: Launch) -> Launch:
    """Give each slot a user of its own from the subordinate ids, if they can read the programs."""
    if launch.ids is None:
        return launch
    found = [launch.python, *map(str, [*_list(launch, "paths"), *_list(launch, "python_path")])]
    subordinate = None
    if readable_by_others(path for path in found if os.path.exists(path)):
        subordinate = launch.ids.config(launch.first_uid)
    owned = {"subordinate": subordinate, "drops_user": subordinate is not None}
    return replace(launch, config={**launch.config, **owned})


def _list(launch: Launch, name: str) -> Sequence[object]:
    found = launch.config[name]
    assert isinstance(found, list | tuple)
    return found


def _environment(interpreter: Interpreter) -> dict[str, str]:
    bin_directory = str(Path(interpreter.executable).parent)
    return code_bundle.environment(f"{bin_directory}:{SANDBOX_PATH}")


def _python_config(interpreter: Interpreter) -> dict[str, object]:
    return {"python_path": interpreter.path, "python_prefix": interpreter.prefix}


def _code(interpreter: Interpreter) -> bytes:
    """Return the code of fork servers, compiled. Raises StartError."""
    try:
        return bundle.compiled(interpreter.executable)
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartError(
            f"{interpreter.executable} cannot compile for its sandboxes: {error}"
        ) from None


def _tool_paths() -> dict[str, str]:
    """Return the mounts of packages needed by the pytest grader: target to source."""
    found = {}
    for name in _TOOL_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[f"{TOOLS}/{name}"] = str(spec.submodule_search_locations[0])
        elif spec is not None and spec.origin is not None:
            found[f"{TOOLS}/{Path(spec.origin).name}"] = spec.origin
    return found


def _prepared_files() -> dict[str, str]:
    """Return the mount of the folder of compilers' prepared files, if present."""
    folder = prepared_folder()
    return {SHOWN_AT: str(folder)} if folder.is_dir() else {}


def _can_unshare(flags: int) -> bool:
    command = [sys.executable, "-I", "-S", "-c", _TRY.format(flags=flags)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _can_become(uid: int) -> bool:
    """Return True if this process may switch to user `uid`.

    Requires root, the capabilities, and a mapping of `uid` in the user namespace.
    """
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    mapped = any(int(start) <= uid < int(start) + int(count) for start, _, count in ranges)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    capable = int(status["CapEff"], 16) & _CHANGE_USER == _CHANGE_USER
    return os.geteuid() == 0 and capable and mapped


def _namespaces(uid: int) -> tuple[list[MachineCheck], bool]:
    """Return the checks of namespaces and seccomp, and True if a user namespace is needed."""
    wanted = kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWPID | kernel.NEWNET
    as_root = _can_become(uid) and _can_unshare(wanted)
    as_user = not as_root and _can_unshare(wanted | kernel.NEWUSER)
    how = "as root" if as_root else "in a user namespace" if as_user else "refused by the kernel"
    machine = os.uname().machine
    try:
        seccomp.outer(machine, True)
        filtered = Path("/proc/sys/kernel/seccomp").is_dir()
    except KeyError:
        filtered = False
    return [
        MachineCheck(
            "namespaces",
            as_root or as_user,
            f"pid, mount, network, ipc, uts: {how}",
            "run as root, or allow user namespaces (sysctl user.max_user_namespaces, and "
            "kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; in a container a seccomp "
            "profile that allows unshare and mount)",
            required=True,
            guards=True,
        ),
        MachineCheck(
            "seccomp",
            filtered,
            f"system call filter for {machine}",
            "a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64",
            required=True,
            guards=True,
        ),
        *kernel_checks(
            wanted if as_root else wanted | kernel.NEWUSER if as_user else 0,
        ),
    ], as_user


def _cgroup_checks(hierarchy: cgroups.Hierarchy | None, why_not: str) -> list[MachineCheck]:
    checks = []
    for controller, instead in (
        ("memory", "an rlimit for each process, and a look at their sum every 50 ms"),
        ("pids", "an rlimit in the sandbox's own user namespace"),
    ):
        ok = hierarchy is not None and hierarchy.counts(controller)
        version = f"cgroup v{hierarchy.version}" if hierarchy is not None else why_not
        checks.append(
            MachineCheck(
                f"{controller}_cgroup",
                ok,
                version if ok else f"{version}; instead: {instead}",
                "run as root, or in a delegated cgroup (systemd: Delegate=yes)",
                guards=True,
            )
        )
    return checks


def _core_check(hierarchy: cgroups.Hierarchy | None) -> MachineCheck:
    ok = hierarchy is not None and hierarchy.counts("cpu")
    return MachineCheck(
        "cpu_cgroup",
        ok,
        "cores are shared out by sandbox"
        if ok
        else "a sandbox of many processes gets more of the cores than one of few",
        "run as root, or in a cgroup with a delegated cpu controller",
    )


def _hidden_service(interpreter: Interpreter) -> MachineCheck:
    code = str(Path(__file__).resolve())
    seen = is_shown(code) or any(code.startswith(path + "/") for path in interpreter.shown)
    return MachineCheck(
        "service_hidden",
        not seen,
        "sandboxes see the service's code" if seen else "sandboxes do not see the service's code",
        "install the service into a virtual environment outside /usr",
        guards=True,
    )


def _open_files_check(settings: Settings) -> MachineCheck:
    fix = "raise the hard limit of open files (ulimit -Hn; systemd: LimitNOFILE=)"
    try:
        fitted = settings.fitted(allowed_open_files())
    except StartError as error:
        return MachineCheck("descriptors", False, str(error), fix, required=True)
    return MachineCheck(
        "descriptors",
        fitted.max_sandboxes == settings.max_sandboxes,
        f"open files for {fitted.max_sandboxes} of {settings.max_sandboxes} sandboxes at once",
        fix,
    )


def _languages(settings: Settings) -> dict[str, str]:
    """Return installed languages, each with the path of its first program."""
    found = {}
    for name, language in settings.languages.items():
        programs = [shutil.which(need, path=SANDBOX_PATH) for need in language.needs]
        if all(programs):
            found[name] = str(programs[0])
    return found


def _language_checks(settings: Settings, found: dict[str, str]) -> list[MachineCheck]:
    return [
        MachineCheck(
            f"language {name}",
            name in found,
            found.get(name, f"needs {', '.join(language.needs)}"),
            f"install {', '.join(language.needs)} below /usr",
        )
        for name, language in settings.languages.items()
    ]
