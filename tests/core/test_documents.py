"""What the documents list is what the code has. `python tests/core/test_documents.py` writes it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "service" / "README.md"
MARK = "<!-- settings: made from settings/ by tests/core/test_documents.py -->\n"


def settings_tables() -> str:
    from pydantic import BaseModel
    from pydantic_core import PydanticUndefined

    from proctor_service.settings import GROUPS
    from proctor_service.settings.sources import group_name

    lines: list[str] = []
    for group in GROUPS:
        title = (group.__doc__ or "").partition("\n")[0]
        lines += ["", f"`[{group_name(group)}]` {title}", ""]
        lines += ["| variable | default | what |", "|---|---|---|"]
        for name, field in group.model_fields.items():
            default = field.default
            shown = "see the code" if default is PydanticUndefined else str(default)
            shown = f"`{shown}`" if shown not in ("", "None", "[]", "{}", "**********") else ""
            if name == "tokens" or isinstance(default, BaseModel):
                shown = ""
            text = " ".join((field.description or "").split()).replace("|", "\\|")
            lines.append(f"| `PROCTOR_{name.upper()}` | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def test_every_setting_is_listed() -> None:
    text = README.read_text()
    assert text.endswith(MARK + settings_tables()), f"run python {Path(__file__).name}"


def test_every_metric_is_listed() -> None:
    from proctor_service.observe.metrics import Metrics

    code = (ROOT / "service" / "proctor_service" / "observe" / "metrics.py").read_text()
    names = set(re.findall(r'"(proctor_[a-z_]+)"', code))
    documented = set(re.findall(r"`(proctor_[a-z_]+)`", README.read_text()))
    assert Metrics() is not None
    assert {name.removesuffix("_total") for name in documented} == names


def test_documents_name_no_registry_and_no_path_of_a_machine() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.txt")]:
        text = path.read_text()
        for word in ("pypi.org", "files.pythonhosted", "/root/", "/work/", "--index-url"):
            assert word not in text, f"{path.name}: {word}"


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "service"), str(ROOT / "client")]
    before, mark, _ = README.read_text().partition(MARK)
    README.write_text(before + MARK + settings_tables())
