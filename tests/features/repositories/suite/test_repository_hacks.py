"""`proctor bench hacks --repositories` in an image of the host's programs."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import proctor
from image_packages import site_packages
from repository_images import program, service_with_images, write_image

FOOLED = {
    "exit code": {"conftest", "deselected", "exit", "forged_log", "forged_xml", "patched_pytest",
                  "own_pytest", "skips", "changed_code"},
    "log": {"conftest", "forged_log", "patched_pytest", "own_pytest", "changed_code"},
    "XML": {"conftest", "forged_xml", "patched_pytest", "own_pytest", "changed_code"},
    "Proctor": set[str](),
}  # fmt: skip
REFUSED = {"wrong_counts", "no_last_newline", "crlf"}
"""Honest diffs that `git apply` refuses."""


def test_proctor_beside_the_public_judges(tmp_path: Path) -> None:
    whole = dict((*site_packages(), *program("git")))
    images = {
        "ring": write_image(tmp_path / "image", whole),
        "bare": write_image(tmp_path / "bare", dict(program("git"))),
    }
    out = tmp_path / "out.json"
    with service_with_images(tmp_path, images) as service:
        options = ("bench", "hacks", "--repositories")
        missing = proctor(*options, "bare", PROCTOR_URL=service.url)
        said = proctor(*options, "ring", "--json", out, PROCTOR_URL=service.url)
    cases = json.loads(out.read_text())["cases"]
    fooled = {
        judge: {
            each["id"].split("/")[1]
            for each in cases
            if not each["honest"] and each["rewarded"][judge]
        }
        for judge in FOOLED
    }
    assert fooled == FOOLED
    refused = {
        judge: {
            each["id"].split("/")[1]
            for each in cases
            if each["honest"] and not each["rewarded"][judge]
        }
        for judge in FOOLED
    }
    assert refused == {judge: set() if judge == "Proctor" else REFUSED for judge in FOOLED}
    assert said.exit_code == 0, said
    assert "attacks that were rewarded, of 10" in said.stdout
    assert missing.exit_code == 2
    assert "bare needs python3 with pytest, git, and /var/tmp" in missing.stderr
    assert "No module named pytest" in missing.stderr
