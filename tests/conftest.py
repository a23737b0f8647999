"""Lets every test import what stands in this folder: harness, shared_data."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
