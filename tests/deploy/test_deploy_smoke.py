"""The image's own smoke test, `proctor demo`: as its build runs it, and as a container runs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deploy.images import Image
from deploy.manifests import DEPLOY, Json, pod_of, render, render_with
from deploy.pods import Pod, running

JUDGED = "total reward 3.0, pass rate 33 % (3 of 9)"


def demo(objects: Iterable[Json], root: bool = False) -> Pod:
    """The Deployment's container with another command, and none of its settings and volumes."""
    spec = pod_of(objects)
    [container] = spec["containers"]
    container["args"] = ["demo"]
    container["volumeMounts"] = []
    context = container["securityContext"]
    context["readOnlyRootFilesystem"] = False  # for its temporary files
    if root:  # what a builder gives a RUN: the default capabilities and the default filter
        spec["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}
        del context["capabilities"], context["allowPrivilegeEscalation"]
    return Pod(spec, {"PROCTOR_ALLOW_DEGRADED": "true"} if root else {})


def test_as_the_build_runs_it(image: Image) -> None:
    pod = demo(render(DEPLOY / "overlays" / "aviato"), root=True)
    with running(pod, image) as found:
        assert found.wait() == 0, found.log
        assert JUDGED in found.log


def test_where_there_is_no_isolation_it_says_so(image: Image) -> None:
    with running(demo(render(DEPLOY / "overlays" / "aviato")), image) as found:
        assert found.wait() == 2, found.log
        assert "cannot isolate" in found.log


def test_in_a_container_with_what_sandboxes_need(image: Image, tmp_path: Path) -> None:
    with running(demo(render_with("dev", ("user-namespaces",), tmp_path)), image) as found:
        assert found.wait() == 0, found.log
        assert JUDGED in found.log
