"""The whole script on a CUDA device: a tiny model in 16 bits, a LoRA, and rewards from a real service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from service_process import ServiceProcess

from proctor_trainers.trl.tiny import tiny_model
from proctor_trainers.unsloth import run


@pytest.mark.gpu
def test_the_script_trains(
    service: ServiceProcess, tokenizer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "tiny"
    tiny_model(tokenizer).save_pretrained(model)
    tokenizer.save_pretrained(model)
    status = run(
        [
            *["--model", str(model), "--url", service.url, "--steps", "3"],
            *["--num-generations", "4", "--batch-size", "4", "--max-completion-length", "16"],
            *["--output-dir", str(tmp_path / "trained")],
        ]
    )
    said = capsys.readouterr()
    assert status == 0, said.err
    for number in (1, 2, 3):
        assert re.search(rf"\[proctor\] reward call {number}: \d+ judged", said.out)
    assert "Trained 3 steps" in said.out
    assert (tmp_path / "trained" / "adapter_config.json").exists()
