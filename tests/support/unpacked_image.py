"""An environment whose image `host_image` makes, unpacked without skopeo and umoci."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from host_image import image_layer

from proctor_service.features.environments import images
from proctor_service.sandbox.environments import BuiltEnvironment, Image
from proctor_service.settings.environments import Environment

VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def unpacked_image(
    folder: Path,
    add: Callable[[Path], None],
    directory: str,
    variables: Mapping[str, str] = VARIABLES,
) -> BuiltEnvironment:
    """Return an environment `app` in a folder that is closed to others; its user is root.

    `add` gets the root of the image, to make further files there. `directory`: the working directory.
    """
    rootfs = folder / "rootfs"
    rootfs.mkdir(parents=True)
    folder.chmod(0o700)
    with tarfile.open(fileobj=io.BytesIO(image_layer())) as layer:
        layer.extraction_filter = lambda member, path: member  # Debian's 3.11 knows no filter=
        layer.extractall(rootfs)
    add(rootfs)
    images._complete(rootfs, directory, {"uid": 0, "gid": 0})
    ids = images.image_ids()
    images._own(rootfs, ids)
    image = Image(
        reference="oci:/nowhere:app",
        digest="sha256:0",
        rootfs=rootfs,
        variables=variables,
        user=0,
        group=0,
        groups=(),
        workdir=directory,
        programs=(),
        python=None,
        ids=ids,
    )
    return BuiltEnvironment(
        name="app",
        definition=Environment(image=image.reference),
        python=None,
        version=None,
        packages={},
        digest=image.digest,
        image=image,
    )
