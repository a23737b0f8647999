"""The ART script where ART is not installed: it says what to install. The rest is in trainers_art."""

from __future__ import annotations

import pytest

from proctor_trainers import extras
from proctor_trainers.art.__main__ import run


def test_help_needs_no_art(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run(["--help"])
    assert "--trajectories-per-problem" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_a_missing_extra_says_which_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    assert run(arguments) == 1
    assert "pip install 'proctor-trainers[art]'" in capsys.readouterr().err
