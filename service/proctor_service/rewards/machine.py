"""Checks of a request against this machine: limits, environments, languages, files, tags, compilers.

Every refusal is an InvalidRequest with the name of the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn, Protocol

from proctor_client.wire import (
    Checker,
    CommandGrader,
    Compiler,
    EnvironmentChoice,
    ExecGrader,
    Fingerprint,
    GeneratedCases,
    Grader,
    ImageByName,
    Interactor,
    PytestGrader,
    RepositoryGrader,
    StdioGrader,
    VerifierGrader,
)
from proctor_client.wire import Limits as WireLimits
from proctor_client.wire.graders import GRADERS
from proctor_service.errors import InvalidRequest
from proctor_service.judge.extract import Texts
from proctor_service.judge.submission import DefaultLimits, Graders, Place, author_programs
from proctor_service.rewards.fingerprint import fingerprint_of
from proctor_service.sandbox.environments import NO_ENVIRONMENTS, Environments, ImagesByName
from proctor_service.sandbox.interface import TESTS, Backend, Limits
from proctor_service.settings import Settings
from proctor_service.settings.environments import DEFAULT
from proctor_service.settings.languages import PYTHON, RUNNER_LANGUAGES, Language, language_named
from proctor_service.settings.mcp_servers import NO_SERVERS, McpServer

LIMITS_WITH_CEILING = (
    "cpu_seconds",
    "wall_seconds",
    "memory_mb",
    "output_kb",
    "processes",
    "disk_mb",
)
MOST_FILES = 1000
LONGEST_TAG_CHARACTERS = 256
LONGEST_PATH_BYTES = 1024
LONGEST_NAME_BYTES = 255
LONGEST_ARGV_BYTES = 100_000
_DEFINE = re.compile(r"[A-Za-z_]\w*(?:=[\w.+-]*)?", re.ASCII)
"""Macros: `LOCAL`, `N=5`, `EPS=1e-9`; not `f(x)=x` or `A=1;`."""
_STANDARDS = (
    *("c11", "c17", "gnu11", "gnu17"),
    *(f"{kind}++{year}" for kind in ("c", "gnu") for year in (11, 14, 17, 20, 23)),
)
COMPILER_FLAGS = (
    *(f"-std={each}" for each in _STANDARDS),
    *("-O0", "-O1", "-O2", "-O3", "-Os", "-g", "-Wall", "-Wextra", "-lm", "-pthread"),
)
"""Flags that a request may ask of gcc and g++: none reads or writes other files, or loads code."""
DEEPEST_PATH = 64
"""Each folder of each file is checked and made."""


class NamedVerifiers(Protocol):
    """Verifiers of the service, by name."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Digest of each verifier, by name."""

    def resolved(self, grader: VerifierGrader, where: str) -> VerifierGrader:
        """Return the grader with the source and all parameters, in place of the name.

        Raises InvalidRequest for an unknown or unavailable verifier and for wrong parameters.
        """


@dataclass(frozen=True)  # without slots, for the cached property
class Machine:
    """The server's settings, backend and registries: the same for every request.

    `texts`: the rules of texts in a language, by its name. `named`: returns a language with the class
    names of a source. `verifiers`: None for a service without verifiers.
    """

    settings: Settings
    backend: Backend
    graders: Graders
    texts: Callable[[str], Texts]
    named: Callable[[Language, str], Language]
    environments: Environments = field(default_factory=lambda: NO_ENVIRONMENTS)
    mcp_servers: Mapping[str, McpServer] = field(default_factory=lambda: NO_SERVERS)
    verifiers: NamedVerifiers | None = None

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of this replica; read first after the backend's start, constant then."""
        traits, defaults = self.backend.traits, self.limits(None, "limits")
        verifiers = {} if self.verifiers is None else self.verifiers.digests
        return fingerprint_of(self.settings, traits, defaults, self.environments, verifiers)

    def forget(self) -> None:
        """Compute the fingerprint anew, since environments have changed."""
        vars(self).pop("fingerprint", None)

    @cached_property
    def _own_languages(self) -> frozenset[str]:
        built = self.environments.values()
        return frozenset(name for each in built for name in each.definition.own_languages)

    def check_place(
        self, grader: Grader, environment: str, where: str, *, keeps_files: bool = True
    ) -> None:
        """Check that a grader can judge the files of a sandbox of an environment.

        `keeps_files`: False for an agent with an answer apart from its files. Raises InvalidRequest.
        """
        check = self.graders[grader.kind].check
        if check is not None:
            is_own = environment != DEFAULT
            built = self.environments[environment] if is_own else None
            has_image = built is not None and (built.image is not None or built.is_awaited)
            most_seconds, has_operations = (
                self.settings.max_wall_seconds,
                self.backend.traits.has_operations,
            )
            place = Place(has_image, most_seconds, keeps_files, has_operations)
            check(grader, place, where)

    def environment(self, name: EnvironmentChoice | None, where: str) -> str:
        """Return the name of an environment. Raises InvalidRequest for an unknown name."""
        if isinstance(name, ImageByName):
            if not isinstance(self.environments, ImagesByName):
                raise InvalidRequest(f"{where}.image: this service takes no images by name")
            try:
                return self.environments.image_name(name.image)
            except ValueError as error:
                raise InvalidRequest(f"{where}.image: {error}") from None
        if name is None or name == DEFAULT:
            return DEFAULT
        if name not in self.environments:
            names = ", ".join((DEFAULT, *self.environments))
            raise InvalidRequest(f"{where}: no {name[:100]!r} here, only: {names}")
        return name

    def digest(self, environment: str) -> str:
        """Return the digest of an environment: of every input to a verdict. Empty: the image is not here."""
        return "" if environment == DEFAULT else self.environments[environment].digest

    def languages(self, environment: str = DEFAULT) -> tuple[str, ...]:
        """Return the languages of an environment.

        The languages of its definition, as far as installed here, or the languages with all programs in
        its image. For an image at Aviato all languages: the judge finds the missing programs. An
        environment's own languages are missing in all other environments.
        """
        here = self.backend.traits.languages
        if environment == DEFAULT:
            return self._without_others(here, {})
        definition = self.environments[environment].definition
        table = self._without_others(tuple(self.settings.languages), definition.own_languages)
        if self.environments[environment].remote_image:
            return (PYTHON, *table)
        image = self.environments[environment].image
        if image is not None:
            own = (PYTHON,) if image.python else ()
            return own + tuple(
                name
                for name in table
                if set(self.settings.languages[name].needs) <= set(image.programs)
            )
        offered = {PYTHON, *definition.own_languages}
        offered.update(table if definition.languages is None else definition.languages)
        return tuple(name for name in here if name in offered)

    def _without_others(
        self, names: tuple[str, ...], own: Mapping[str, Language]
    ) -> tuple[str, ...]:
        """Return the names without the own languages of other environments."""
        return tuple(name for name in names if name not in self._own_languages or name in own)

    def limits(
        self,
        wire_limits: WireLimits | None,
        where: str,
        otherwise: Limits | None = None,
        environment: str = DEFAULT,
        defaults: DefaultLimits | None = None,
    ) -> Limits:
        """Return the requested limits.

        The defaults are `otherwise`, or else the limits of the environment, `defaults`, and the server's
        limits. The ceiling of all tests together is `TESTS` times the ceiling of a single test.

        Raises InvalidRequest above a ceiling.
        """
        settings = self.settings
        own = None
        if otherwise is None and environment != DEFAULT:
            own = self.environments[environment].definition.limits
        values: dict[str, float] = {}
        for name in LIMITS_WITH_CEILING:
            value = getattr(wire_limits, name, None)
            ceiling = getattr(settings, f"max_{name}")
            if value is not None and not value <= ceiling:
                raise InvalidRequest(f"{where}.{name}: {value} is above this server's {ceiling}")
            default = getattr(own, name, None)
            if default is None and otherwise is None:
                default = getattr(defaults, name, None)
            default = min(default or getattr(otherwise or settings, name), ceiling)
            values[name] = value if value is not None else default
        totals: dict[str, float | None] = {}
        for name in ("cpu_seconds", "wall_seconds"):
            total = getattr(wire_limits, f"total_{name}", None)
            if total is None:
                total = getattr(otherwise, f"total_{name}", None)
            ceiling = TESTS * getattr(settings, f"max_{name}")
            if total is not None and not total <= ceiling:
                at = f"{where}.total_{name}"
                raise InvalidRequest(f"{at}: {total} is above this server's {ceiling}")
            totals[f"total_{name}"] = total
        network = bool(otherwise is not None and otherwise.network)
        if wire_limits is not None and wire_limits.network is not None:
            network = wire_limits.network
        if network and not self.backend.traits.allows_network:
            raise InvalidRequest(f"{where}.network: this server gives no network to submissions")
        return Limits(
            cpu_seconds=float(values["cpu_seconds"]),
            wall_seconds=float(values["wall_seconds"]),
            memory_mb=int(values["memory_mb"]),
            output_kb=int(values["output_kb"]),
            processes=int(values["processes"]),
            disk_mb=int(values["disk_mb"]),
            network=network,
            **totals,
        )

    def resolved(self, grader: Grader, where: str) -> Grader:
        """Return the grader with the source in place of its verifier's name, if any.

        Raises InvalidRequest.
        """
        if not isinstance(grader, VerifierGrader) or grader.name is None:
            return grader
        if self.verifiers is None:
            raise InvalidRequest(f"{where}.name: this service has no verifiers by name")
        return self.verifiers.resolved(grader, where)

    def check_grader(self, grader: Grader, where: str) -> None:
        """Check the files, arguments and programs of a grader. Raises InvalidRequest."""
        _check_files_of(grader, where)
        for name, program in author_programs(grader):
            at = f"{where}.{name}"
            environment = self.environment(program.environment, f"{at}.environment")
            self.limits(program.limits, f"{at}.limits", environment=environment)
            check_files(program.files, f"{at}.files")
            language = language_named(program.language, self.settings.languages)
            if language not in (here := self.languages(environment)):
                raise InvalidRequest(
                    f"{at}.language: no {program.language[:100]!r} here, only: {', '.join(here)}"
                )
            if isinstance(program, Checker | Interactor) and program.argv:
                _check_argv(program.argv, f"{at}.argv")

    def program_digests(self, grader: Grader) -> list[str]:
        """Return the digests of the environments of the task's own programs."""
        names = [program.environment for _, program in author_programs(grader)]
        return [self.digest(name) for name in names if name is not None]

    def language(self, name: str, grader: Grader, where: str, environment: str = DEFAULT) -> str:
        """Return the name of a language for a name or an alias.

        Raises InvalidRequest if the server or the grader lacks the language.
        """
        language = language_named(name, self.settings.languages)
        here = self.languages(environment)
        if language not in here:
            only = ", ".join(here) or "commands"
            raise InvalidRequest(f"{where}.language: no {name!r} here, only: {only}")
        launches = language != PYTHON and self.settings.languages[language].launcher is not None
        check_language(grader, language, f"{where}.language", has_launcher=launches)
        return language


def check_language(grader: Grader, language: str, where: str, *, has_launcher: bool) -> None:
    """Raise InvalidRequest for a language unknown to the grader.

    `has_launcher`: whether the language takes tests apart from the submission, as Python does.
    """
    if language != PYTHON and not grader.any_language:
        kinds = ", ".join(name for name, each in GRADERS.items() if each.any_language)
        raise InvalidRequest(
            f"{where}: {grader.kind} judges python only; for others there are: {kinds}"
        )
    if isinstance(grader, CommandGrader) and grader.runner is not None:
        wanted = RUNNER_LANGUAGES[grader.runner]
        if language != wanted:
            raise InvalidRequest(
                f"{where}: the runner {grader.runner} judges {wanted}, not {language}"
            )
    is_apart = isinstance(grader, ExecGrader) and (grader.setup or grader.tests)
    if is_apart and language != PYTHON and not has_launcher:
        raise InvalidRequest(f"{where}: {language} takes no tests apart from the submission")


def check_tags(tags: Sequence[str]) -> None:
    """Raise InvalidRequest for a tag above the limit."""
    for index, tag in enumerate(tags):
        if len(tag) > LONGEST_TAG_CHARACTERS:
            raise InvalidRequest(f"tags.{index}: longer than {LONGEST_TAG_CHARACTERS} characters")


def refuse_compiler(where: str) -> NoReturn:
    """Raise InvalidRequest for compiler options with another language, or with an agent."""
    raise InvalidRequest(f"{where}: for c and cpp alone")


def check_compiler(compiler: Compiler, dialect: str | None, where: str) -> None:
    """Raise InvalidRequest for options above the allowed ones, or unknown to the language.

    `dialect`: of gcc, for this language.
    """
    allowed = COMPILER_FLAGS
    if dialect is None:
        refuse_compiler(where)
    standards = [each.removeprefix("-std=") for each in allowed if each.startswith("-std=")]
    standards = [each for each in standards if ("++" in each) == ("++" in dialect)]
    if compiler.standard is not None and compiler.standard not in standards:
        text = f"no {compiler.standard!a} here, only: {', '.join(standards)}"
        raise InvalidRequest(f"{where}.standard: {text}")
    for index, flag in enumerate(compiler.flags):
        if flag not in allowed or flag.startswith("-std="):
            flags = ", ".join(each for each in allowed if not each.startswith("-std="))
            raise InvalidRequest(f"{where}.flags.{index}: no {flag[:64]!a} here, only: {flags}")
    for index, define in enumerate(compiler.defines):
        if not _DEFINE.fullmatch(define):
            text = f"{define[:64]!a} is not a name, or a name, `=` and a simple value"
            raise InvalidRequest(f"{where}.defines.{index}: {text}")


def _check_files_of(grader: Grader, where: str) -> None:
    """Raise InvalidRequest for paths and arguments of a grader, impossible in a sandbox."""
    if isinstance(grader, PytestGrader | CommandGrader):
        check_files(grader.files, f"{where}.files")
    elif isinstance(grader, RepositoryGrader):
        check_files({**grader.files, **grader.binary_files}, f"{where}.files")
        for name in ("build", "test"):
            command = getattr(grader, name)
            if command is not None:
                _check_argv([command] if isinstance(command, str) else command, f"{where}.{name}")
    elif isinstance(grader, StdioGrader):
        if isinstance(grader.cases, GeneratedCases):
            for index, seed in enumerate(grader.cases.seeds):
                _check_argv([str(seed)], f"{where}.cases.seeds.{index}")
            return
        for index, case in enumerate(grader.cases):
            at = f"{where}.cases.{index}"
            if case.files:
                check_files(case.files, f"{at}.files")
            if case.output_file is not None:
                check_files({case.output_file: ""}, f"{at}.output_file")
            if case.argv:
                _check_argv(case.argv, f"{at}.argv")


def _check_argv(argv: Sequence[str], where: str) -> None:
    try:
        size = len("".join(argv).encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{where}: a lone surrogate is no argument") from None
    if size > LONGEST_ARGV_BYTES or any("\0" in each for each in argv):
        raise InvalidRequest(
            f"{where}: longer than {LONGEST_ARGV_BYTES} bytes, or with a zero byte"
        )


def check_files(files: Mapping[str, str], where: str) -> None:
    """Raise InvalidRequest unless every path stays inside the working directory."""
    if len(files) > MOST_FILES:
        raise InvalidRequest(f"{where}: {len(files)} files, and at most {MOST_FILES} are taken")
    for path in files:
        wrong = _wrong_with(path)
        if wrong:
            raise InvalidRequest(f"{where}: {ascii(path)[:200]} {wrong}")
    for path in files:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in files:
                raise InvalidRequest(f"{where}: {parent!a} is both a file and a folder")
            parent = parent.rpartition("/")[0]


def _wrong_with(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "is not a valid path"
    parts = path.split("/")
    if path.startswith("/"):
        return "is not relative"
    if ".." in parts:
        return "leads out of the working directory"
    if not path or "\0" in path or "" in parts or "." in parts:
        return "is not a plain path"
    if len(parts) > DEEPEST_PATH:
        return "has too many folders"
    if len(encoded) > LONGEST_PATH_BYTES or max(map(len, encoded.split(b"/"))) > LONGEST_NAME_BYTES:
        return "is too long"
    return None
