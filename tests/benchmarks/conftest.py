"""The path of the benchmarks' modules, and a real service."""

from __future__ import annotations

import sys
from pathlib import Path

from command_line import no_settings
from real_service import service

__all__ = ["no_settings", "service"]

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
