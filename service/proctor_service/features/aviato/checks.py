"""Protections present and missing at Aviato, for `proctor doctor` and for every result."""

from __future__ import annotations

from proctor_service.features.aviato.bundle import Image
from proctor_service.features.aviato.plan import Plan
from proctor_service.sandbox.interface import Check


def checks_of(image: Image, plan: Plan) -> tuple[Check, ...]:
    """Return the protections; those without `ok` are degraded."""
    version = ".".join(map(str, image.version))
    return (
        Check(
            "own_user",
            image.protections.own_user,
            "a submission is another user than what supervises it",
            "an image whose commands run as root",
            required=True,
            guards=True,
        ),
        Check(
            "seccomp",
            image.protections.seccomp,
            f"system call filter for {image.machine}",
            "runners on x86_64 or aarch64 whose kernel takes one",
            guards=True,
        ),
        Check(
            "memory_cgroup",
            False,
            "the sandbox's memory as a whole; of a submission an rlimit for each process, and a look at "
            "their sum every 50 ms",
            guards=True,
        ),
        Check(
            "pid_namespace",
            False,
            "a submission sees that other processes are there, and cannot touch them",
            guards=True,
        ),
        Check("pids_cgroup", False, "an rlimit of the submission's user", guards=True),
        Check(
            "disk_quota",
            False,
            "a limit for each file, and a look at their sum every half second",
            guards=True,
        ),
        Check(
            "fresh_sandbox",
            not plan.reuse,
            "one sandbox for many submissions" if plan.reuse else "one submission to a sandbox",
            "PROCTOR_AVIATO_REUSE=never",
            guards=True,
        ),
        Check("python", True, f"{plan.python} ({version}) in {plan.image}"),
    )
