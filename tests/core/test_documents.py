"""What the documents list is what the code has. `python tests/core/test_documents.py` writes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "service" / "README.md"
OF_USERS = {"solution.py", "pytest.py", "measure.py", "environment/"}
"""Files of submissions and of Harbor's tasks, and a program that took measurements."""
MARK = "<!-- settings: made from settings/ by tests/core/test_documents.py -->\n"


def settings_tables() -> str:
    from pydantic import BaseModel
    from pydantic_core import PydanticUndefined

    from proctor_service.composition import feature_settings
    from proctor_service.settings import GROUPS
    from proctor_service.settings.sources import group_name

    lines: list[str] = []
    for group in (*GROUPS, *feature_settings()):
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


def test_each_file_that_a_document_names_exists() -> None:
    files = [f"/{path.relative_to(ROOT)}" for path in source_files()]
    folders = [f"{path.rpartition('/')[0]}/" for path in files]
    missing = []
    for document in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        named = re.findall(r"`([\w./-]+(?:\.py|/))`", text)  # `judge/run.py`, `judge/`
        for name in set(named) - OF_USERS:
            if name.startswith(("/", ".")) or document.name == "CHANGELOG.md":
                continue  # a route, or a path in a sandbox; what make creates; earlier versions
            places = folders if name.endswith("/") else files
            if not any(place.endswith(f"/{name}") for place in places):
                missing.append(f"{document.relative_to(ROOT)}: {name}")
    assert missing == [], "\n".join(missing)


def source_files() -> Iterator[Path]:
    for folder in ("bench", "client", "deploy", "docs", "service", "tests", "trainers"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def test_documents_name_no_registry_and_no_path_of_a_machine() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.txt")]:
        text = path.read_text()
        for word in ("pypi.org", "files.pythonhosted", "/root/", "/work/", "--index-url"):
            assert word not in text, f"{path.name}: {word}"


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "service"), str(ROOT / "client")]
    before, mark, _ = README.read_text().partition(MARK)
    README.write_text(before + MARK + settings_tables())
