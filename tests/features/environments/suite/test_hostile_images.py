"""Every program of the shared_programs in sandboxes of a container image, as its root: it stays inside.

Its own files are its own: what it writes to the system folders of its sandbox is gone with it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from container_images import debian_image

from hostile.attacks import attack_by_reward, attack_in_sandboxes, attacked_service
from hostile.programs import shared_programs

# They read and write files of the image, which root of the image may.
OWN = {"host_read-001", "host_write-001"}


@pytest.mark.parametrize("ordinary", [False, True], ids=["as root", "as an ordinary user"])
def test_every_program_is_contained(
    ordinary: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Where nobody looks for what hostile programs have left.
    place = "/opt" if os.geteuid() == 0 else Path.home()
    image = debian_image(tmp_path_factory)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        file = Path(folder, "environments.toml")
        # pytest's own folder is closed to other users.
        layout = shutil.copytree(image.removeprefix("oci:").removesuffix(":app"), f"{folder}/image")
        file.write_text(f"[environments.app]\nimage = {json.dumps(f'oci:{layout}:app')}\n")
        with attacked_service(ordinary=ordinary, environments=file) as service:
            for attack in (attack_by_reward, attack_in_sandboxes):
                found = attack(service, shared_programs(), "app")
                assert found.keys() <= OWN, found
