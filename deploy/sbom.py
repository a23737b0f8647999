"""Add the base's packages and the interpreter to a bill of materials of Python's packages.

`python sbom.py PYTHON_SBOM PACKAGES RESULT`, in the build of the image: standard library only.
PYTHON_SBOM is CycloneDX in JSON; PACKAGES has a line for each Debian package: name, version and
architecture with tabs between, as dpkg-query prints them. Components have a package URL of the type
`deb`, as the specification of package URLs has it.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

OS_RELEASE = Path("/etc/os-release")


def main() -> None:
    """Write the whole bill of materials."""
    source, packages, result = map(Path, sys.argv[1:])
    body = json.loads(source.read_text())
    system = os_release(OS_RELEASE.read_text())
    rows = sorted(line.split("\t") for line in packages.read_text().splitlines())
    added = [debian_package(name, version, machine, system) for name, version, machine in rows]
    body["components"] = [*body.get("components", []), *added, interpreter()]
    result.write_text(json.dumps(body, indent=1) + "\n")


def debian_package(
    name: str, version: str, architecture: str, system: dict[str, str]
) -> dict[str, Any]:
    """Return the component of a package of Debian or Ubuntu."""
    vendor = system.get("ID", "debian")
    distribution = f"{vendor}-{system['VERSION_ID']}" if "VERSION_ID" in system else vendor
    purl = f"pkg:deb/{vendor}/{quote(name, safe='')}@{quote(version, safe='')}"
    purl += f"?arch={architecture}&distro={distribution}"
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def interpreter() -> dict[str, Any]:
    """Return the component of the interpreter, which a base may have without a package."""
    version = platform.python_version()
    purl = f"pkg:generic/python@{version}"
    return {"type": "platform", "name": "python", "version": version, "purl": purl, "bom-ref": purl}


def os_release(text: str) -> dict[str, str]:
    """Parse os-release(5)."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value.strip('"') for name, _, value in pairs}


if __name__ == "__main__":
    main()
