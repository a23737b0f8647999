"""Files and grades through handles of both kinds, against the fake service."""

from __future__ import annotations

from typing import Any

import pytest
from client_blocking import Kind, a_client
from client_requests import bodies

from proctor_client import InvalidRequestError, SandboxFileError, wire
from proctor_client.testing import FakeProctor


@pytest.mark.parametrize(
    ("path", "known_as"),
    [
        ("a.txt", "a.txt"),
        ("./deep//er/a.txt", "deep/er/a.txt"),
        ("/tmp/a.txt", "/tmp/a.txt"),
        ("//tmp/./a.txt", "/tmp/a.txt"),
        ("ü 100%?#&.txt", "ü 100%?#&.txt"),
        ("%2e%2e/a", "%2e%2e/a"),
        ("...", "..."),
        ("a\nb\\c", "a\nb\\c"),
    ],
)
def test_files_keep_their_bytes_and_their_names(
    proctor: FakeProctor, client: Any, path: str, known_as: str
) -> None:
    data = bytes(range(256))
    with client.sandbox() as sandbox:
        sandbox.write_file(path, data)
        assert proctor.sandboxes[0].files == {known_as: data}
        assert sandbox.read_file(path) == data
        sandbox.write_file(path, "é")
        assert sandbox.read_file(path) == "é".encode()


@pytest.mark.parametrize(
    "path", ["..", "../a", "a/../../sb_other/files/a", "/..", "", "/", "a/", "a/.", "\ud800"]
)
def test_a_path_that_would_go_elsewhere_is_never_sent(
    proctor: FakeProctor, client: Any, path: str
) -> None:
    with client.sandbox() as sandbox:
        for use in (sandbox.read_file, lambda path: sandbox.write_file(path, "x")):
            with pytest.raises(SandboxFileError) as caught:
                use(path)
            assert caught.value.reason == "invalid_request"
        assert len(proctor.requests) == 1


def test_what_goes_wrong_with_a_file(proctor: FakeProctor, client: Any) -> None:
    with client.sandbox() as sandbox:
        with pytest.raises(SandboxFileError, match=r"no file a\.txt") as caught:
            sandbox.read_file("a.txt")
        assert (caught.value.reason, caught.value.status_code) == ("file_not_found", 404)
        proctor.fail_next(status=422, reason="invalid_request", message="it is a directory")
        with pytest.raises(SandboxFileError, match="it is a directory") as caught:
            sandbox.write_file("a", b"")
        assert (caught.value.reason, caught.value.status_code) == ("invalid_request", 422)
        with pytest.raises(SandboxFileError, match="surrogate"):
            sandbox.write_file("a", "\ud800")
        with pytest.raises(TypeError):
            sandbox.write_file("a", 3)
        assert proctor.sandboxes[0].files == {}


def test_files_are_tried_again(proctor: FakeProctor, client: Any) -> None:
    with client.sandbox() as sandbox:
        proctor.drop_next(2)
        sandbox.write_file("a", b"1")
        proctor.drop_next()
        proctor.fail_next()
        assert sandbox.read_file("a") == b"1"
    assert {each.idempotency_key for each in proctor.requests[1:]} == {None}


def test_a_grade_is_a_result_like_any_other(kind: Kind) -> None:
    seen: list[wire.Submission] = []

    def judge(submission: wire.Submission) -> float:
        seen.append(submission)
        return 0.5

    proctor = FakeProctor(judge)
    grader = {"kind": "asserts", "tests": ["assert f() == 1"]}
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        sandbox.write_file("solution.py", "def f(): return 1")
        proctor.drop_next()
        result = sandbox.grade(grader, scoring="fraction", limits={"cpu_seconds": 1})
        assert (result.reward, result.sandbox_id) == (0.5, sandbox.id)
        assert seen[-1].completion == "def f(): return 1"
        assert seen[-1].grader == wire.AssertsGrader(kind="asserts", tests=["assert f() == 1"])
        assert bodies(proctor)[-1] == {
            "grader": grader,
            "scoring": "fraction",
            "limits": {"cpu_seconds": 1},
        }
        sandbox.grade(grader, step=120)
        assert bodies(proctor)[-1] == {"grader": grader, "scoring": "all", "step": 120}
        sandbox.grade(grader, prelude="import math", suffix_code=None)
        assert bodies(proctor)[-1] == {"grader": grader, "scoring": "all", "prelude": "import math"}
        with pytest.raises(InvalidRequestError, match="grader"):
            sandbox.grade({"kind": "vibes"})
        with pytest.raises(InvalidRequestError, match="step"):
            sandbox.grade(grader, step=-1)


def test_a_grade_that_could_not_be_given_is_data(kind: Kind) -> None:
    error = wire.ItemError(reason="judge_failed", message="no", retryable=True)
    proctor = FakeProctor(lambda submission: error)
    with a_client(kind, proctor) as client, client.sandbox() as sandbox:
        result = sandbox.grade({"kind": "exec"})
    assert (result.reward, result.verdict, result.error) == (None, None, error)
