"""Two jobs of one tenant share the cores of a real machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import exec_request, running_service

from proctor_service.settings import Settings

LONG = "import time\nwhile time.process_time() < 0.7: pass\n# "
SHORT = "import time\nwhile time.process_time() < 0.005: pass\n# "


@pytest.mark.slow
def test_long_programs_beside_a_stream_of_short_ones_get_their_part_of_the_cores() -> None:
    with running_service(Settings(), judge=None) as service, service.client() as client:

        def core_seconds(job: str, code: str, count: int) -> float:
            sources = [f"{code}{job} {number}" for number in range(count)]
            body = exec_request(*sources, job=job, cache=False)
            results: list[dict[str, Any]] = client.post("/reward", json=body).json()["results"]
            assert {result["verdict"] for result in results} == {"passed"}
            return sum(float(result["usage"]["cpu_seconds"]) for result in results)

        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(core_seconds, "long", LONG, 8)
            used_by_short = 0.0
            while not long.done():
                used_by_short += core_seconds("short", SHORT, 40)
        # Half each. What forks and ends a short program is charged, too, and no part of its usage.
        assert long.result() > used_by_short
