"""How much slower than a machine of its own the tests' machine is: PROCTOR_TEST_TIME_FACTOR."""

from __future__ import annotations

import os

TIME_FACTOR = float(os.environ.get("PROCTOR_TEST_TIME_FACTOR", "1"))
