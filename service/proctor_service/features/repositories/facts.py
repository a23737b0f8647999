"""What is the same in all sandboxes of a task, as found when its state is prepared."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor_service.features.repositories.change import FileState


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a repository in the state that the policy meets.

    `program`: its shell. `variables`: of the activation, on top of those of the image. `site_packages`:
    folders with packages of the interpreters. `sizes`: bytes of each file by path. `from_commit`: the
    task's files of another commit.
    """

    directory: str
    program: str
    image_variables: Mapping[str, str]
    variables: Mapping[str, str]
    site_packages: tuple[str, ...] = ()
    sizes: Mapping[bytes, int] = field(default_factory=dict)
    from_commit: Mapping[bytes, FileState] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the facts as bytes."""
        files = {
            os.fsdecode(path): [state.mode, base64.b64encode(state.content).decode()]
            for path, state in self.from_commit.items()
        }
        return json.dumps(
            {
                "directory": self.directory,
                "program": self.program,
                "image_variables": dict(self.image_variables),
                "variables": dict(self.variables),
                "site_packages": self.site_packages,
                "sizes": {os.fsdecode(path): size for path, size in self.sizes.items()},
                "from_commit": files,
            }
        ).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Facts:
        """Return the facts of `encoded`."""
        fields = json.loads(data)
        fields["site_packages"] = tuple(fields["site_packages"])
        fields["sizes"] = {os.fsencode(path): size for path, size in fields["sizes"].items()}
        fields["from_commit"] = {
            os.fsencode(path): FileState(mode, base64.b64decode(content))
            for path, (mode, content) in fields["from_commit"].items()
        }
        return cls(**fields)
