"""Checks of fields that pydantic cannot make: languages of graders, tags, and paths of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor_client.wire import CommandGrader, ExecGrader, Grader
from proctor_service.errors import InvalidRequest
from proctor_service.judge.graders.runner_tools import RUNNER_LANGUAGES
from proctor_service.settings.languages import PYTHON

ANY_LANGUAGE_KINDS = ("exec", "stdio", "command")
MOST_FILES = 1000
LONGEST_TAG_CHARACTERS = 256
LONGEST_PATH_BYTES = 1024
LONGEST_NAME_BYTES = 255
DEEPEST_PATH = 64
"""Each folder of each file is checked and made."""


def check_language(grader: Grader, language: str, where: str, *, has_launcher: bool) -> None:
    """Raise InvalidRequest for a language that the grader cannot judge.

    `has_launcher`: whether the language takes tests apart from the submission, as Python does.
    """
    if language != PYTHON and grader.kind not in ANY_LANGUAGE_KINDS:
        kinds = ", ".join(ANY_LANGUAGE_KINDS)
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


def check_judges_code(grader: Grader, where: str) -> None:
    """Raise InvalidRequest for a grader that needs a sandbox in place of a completion."""
    if grader.kind == "harbor":
        raise InvalidRequest(
            f"{where}.grader: harbor judges the files of a sandbox: /rollout, or "
            "/sandboxes/{id}/grade"
        )


def check_tags(tags: Sequence[str]) -> None:
    """Raise InvalidRequest for a tag that is too long."""
    for index, tag in enumerate(tags):
        if len(tag) > LONGEST_TAG_CHARACTERS:
            raise InvalidRequest(f"tags.{index}: longer than {LONGEST_TAG_CHARACTERS} characters")


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
