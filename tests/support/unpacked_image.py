"""An environment whose image `host_image` makes, unpacked without skopeo."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from host_image import image_layer

from proctor_service.features.environments.images import image_ids
from proctor_service.features.environments.layers import Layers
from proctor_service.sandbox.environments import BuiltEnvironment, Image
from proctor_service.settings.environments import Environment

VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def unpacked_image(
    folder: Path,
    add: Callable[[Path], None],
    directory: str,
    variables: Mapping[str, str] = VARIABLES,
) -> BuiltEnvironment:
    """Return an environment `app` below a folder; its user is root.

    `add` gets a folder with the files of the image, to make further ones there. `directory`: the
    working directory.
    """
    files = folder / "files"
    files.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(image_layer())) as layer:
        layer.extraction_filter = lambda member, path: member  # Debian's 3.11 knows no filter=
        layer.extractall(files)
    add(files)
    archive = folder / "layer.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.add(files, arcname=".")
    shutil.rmtree(files)
    layers, ids = Layers(folder), image_ids()
    below = [layers.unpack("files", archive, ids)]
    given = {"user": "0", "workdir": directory, "path": variables["PATH"]}
    top, _ = layers.complete("top", below, ids, given)
    image = Image(
        reference="oci:/nowhere:app",
        digest="sha256:0",
        layers=tuple(layers.folder / each.name for each in (top, *below)),
        variables=variables,
        user=0,
        group=0,
        groups=(),
        workdir=directory,
        programs=(),
        python=None,
        ids=ids,
        holds=(folder,),
    )
    return BuiltEnvironment(
        name="app",
        definition=Environment(image=image.reference),
        python=None,
        version=None,
        packages={},
        digest=image.digest,
        folder=folder,
        image=image,
    )
