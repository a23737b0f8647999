"""Start parameters of fork servers for sandboxes with the file system of a container image.

The fork server of an image is the default interpreter of this machine, and runs only code of the service:
the programs of the image run in the sandbox alone.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from proctor_service.errors import SandboxEnded, SandboxLost, StartError
from proctor_service.sandbox import code_bundle
from proctor_service.sandbox.environments import Image
from proctor_service.sandbox.interface import Command, Limits, StatefulSandbox
from proctor_service.sandbox.linux import seccomp
from proctor_service.sandbox.local.bundle import Launch
from proctor_service.settings.prepared_folder import SHOWN_AT

_PRELOAD = (
    *("tarfile", "encodings.ascii", "encodings.idna", "encodings.latin_1"),
    *(
        "base64",
        "collections.abc",
        "ctypes",
        "dataclasses",
        "fnmatch",
        "glob",
        "hashlib",
        "json",
        "pathlib",
        "re",
        "secrets",
        "select",
        "shutil",
    ),
    *("selectors", "signal", "socket", "struct", "time", "typing", "zlib"),
)
"""Modules of the supervisor and of operations, otherwise imported from the image's files."""

TOOLS = "/opt/proctor"
"""Path in a sandbox of packages for pytest; appended to `sys.path` by jobs with this need."""
COMPILING = Limits(60.0, 60.0, 1024, 16_384, 16, 64)
"""Limits of the sandbox for `with_python`."""
Compiled = Mapping[str, object]
"""Words of the image's interpreter, and its code."""
_COMPILE_SECONDS = 60.0
_BOOT = Path(__file__).with_name("image_boot.py").read_text()
_PROBE = (Path(__file__).parents[1] / "probe.py").read_text()


def in_image(launch: Launch, image: Image, variables: Mapping[str, str]) -> Launch:
    """Return the launch of fork servers of an image; `variables` come on top of its own.

    Raises StartError where sandboxes cannot have the image as their root.
    """
    if not launch.contained:
        raise StartError("sandboxes of an image need namespaces")
    is_user = bool(launch.config["user_namespace"])
    if is_user != (image.ids is None):
        raise StartError(
            "its files belong to the users of another service: build it as the user that runs this one"
        )
    machine = os.uname().machine
    return replace(
        launch,
        config={
            **launch.config,
            # An image's files belong to its own users, which are the service's user.
            "subordinate": None,
            "drops_user": launch.config["drops_user"] and launch.ids is None,
            "image": {
                "layers": list(map(str, image.layers)),
                "holds": list(map(str, image.holds)),
                "variables": {"TZ": "UTC", **code_bundle.THREADS, **image.variables, **variables},
                "user": image.user,
                "group": image.group,
                "groups": list(image.groups),
                "workdir": image.workdir,
                "ids": [image.ids.first, image.ids.count] if image.ids else None,
                "tools": _tools(launch.config["tools"]),
                "tools_folder": TOOLS,
                "python": [],
                "boot": _BOOT,
            },
            "seccomp_outer": seccomp.outer(machine, launch.memory_is_counted, True).hex(),
            "seccomp_inner": seccomp.inner(machine, True).hex(),
        },
        preload=_PRELOAD,
        image_python=image.python,
    )


def _tools(tools: object) -> dict[str, str]:
    """Return the packages for pytest by their place in the fork server.

    An image has compilers of its own, so this machine's prepared files are left out.
    """
    assert isinstance(tools, dict)
    return {
        target.replace(TOOLS, "/tools", 1): source
        for target, source in tools.items()
        if target != SHOWN_AT
    }


def _flags(version: str) -> tuple[str, ...]:
    """Return the flags to keep the current directory and the user's packages out of `sys.path`.

    Before Python 3.11 the first line of a program does the former.
    """
    return ("-P", "-s") if int(version.partition(".")[2]) >= 11 else ("-s",)


async def with_python(launch: Launch, sandbox: StatefulSandbox) -> Launch:
    """Return the launch with code compiled by the image's own interpreter in a sandbox of the
    image.

    `launch` must have the version of this interpreter. Raises StartError.
    """
    assert launch.image_python is not None
    flags = _flags(launch.image_python)
    sources = code_bundle.sources(code_bundle.GUEST)
    order = json.dumps({"sources": sources, "programs": []}).encode()
    command = Command(
        argv=("python3", *flags, "-c", _PROBE),
        stdin=f"{len(order):08d}".encode() + order,
        timeout_seconds=_COMPILE_SECONDS,
    )
    try:
        ended = await sandbox.exec(command)
        line, _, code = ended.stdout.partition(b"\n")
        report = json.loads(line)
    except (ValueError, SandboxEnded, SandboxLost):
        report = None
    if report is None or ended.exit_code != 0:
        raise StartError("python3 of the image does not compile the code for its sandboxes")
    packages = sorted({name.rpartition(".")[0] for name in sources} - {""})
    own = json.dumps({"path": report["path"], "prefix": report["prefix"], "packages": packages})
    return with_compiled_part(
        launch,
        {
            "python": [report["executable"], *flags],
            "code": base64.b64encode(own.encode() + b"\n" + code).decode(),
        },
    )


def compiled_part(launch: Launch) -> Compiled:
    """Return the part of a launch made by `with_python`: the same for all layers over an image."""
    image = launch.config["image"]
    assert isinstance(image, dict)
    return {name: image[name] for name in ("python", "code")}


def with_compiled_part(launch: Launch, compiled: Compiled) -> Launch:
    """Return the launch with the result of `compiled_part` for the same image."""
    image = launch.config["image"]
    assert isinstance(image, dict)
    return replace(
        launch, config={**launch.config, "image": {**image, **compiled}}, image_python=None
    )
