"""TRL with its own reports to W&B, offline: a session's ten counts stand in each step's row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from wandb_training import check_that_each_step_is_one_row


def test_each_step_is_one_row_with_the_ten_names(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_that_each_step_is_one_row(tokenizer, tmp_path, monkeypatch)
