"""Protections present and missing at Aviato, for `proctor doctor` and for every result."""

from __future__ import annotations

from proctor_service.features.aviato.bundle import Image
from proctor_service.features.aviato.plan import AviatoPlan
from proctor_service.sandbox.interface import MachineCheck


def checks_of(image: Image, plan: AviatoPlan) -> tuple[MachineCheck, ...]:
    """Return the protections; those without `ok` are degraded."""
    version = ".".join(map(str, image.version))
    return (
        MachineCheck(
            "own_user",
            image.protections.own_user,
            "a submission is another user than what supervises it",
            "an image whose commands run as root",
            required=True,
            guards=True,
        ),
        MachineCheck(
            "seccomp",
            image.protections.seccomp,
            f"system call filter for {image.machine}",
            "runners on x86_64 or aarch64 whose kernel takes one",
            guards=True,
        ),
        MachineCheck(
            "memory_cgroup",
            False,
            "the sandbox's memory as a whole; of a submission an rlimit for each process, and a look at "
            "their sum every 50 ms",
            guards=True,
        ),
        MachineCheck(
            "pid_namespace",
            False,
            "a submission sees that other processes are there, and cannot touch them",
            guards=True,
        ),
        MachineCheck("pids_cgroup", False, "an rlimit of the submission's user", guards=True),
        MachineCheck(
            "disk_quota",
            False,
            "a limit for each file, and a look at their sum every half second",
            guards=True,
        ),
        MachineCheck(
            "fresh_sandbox",
            not plan.reuse,
            "one sandbox for many submissions" if plan.reuse else "one submission to a sandbox",
            "PROCTOR_AVIATO_REUSE=never",
            guards=True,
        ),
        MachineCheck("python", True, f"{plan.python} ({version}) in {plan.image}"),
    )
