"""The longest wait of a test for something that must happen: only a failing test waits so long.

It allows for a machine whose cores many other programs share. No test measures time by it.
"""

from __future__ import annotations

WAIT_SECONDS = 240.0
