"""Arguments of the SDK for a new sandbox, and its credentials."""

from __future__ import annotations

from typing import Any

import cwsandbox
from cwsandbox import (
    AuthHeaders,
    EgressRule,
    ImagePullCredentials,
    NetworkOptions,
    RegisteredVolumeOptions,
    ResourceOptions,
    Secret,
)

from proctor_service.errors import StartError
from proctor_service.features.aviato.plan import AviatoPlan, Order


def credentials_of(plan: AviatoPlan) -> AuthHeaders:
    """Return the credentials of every call; blocks. Raises StartError if W&B's are missing."""
    if not plan.wandb:
        key = plan.api_key.get_secret_value()
        return AuthHeaders({"Authorization": f"Bearer {key}"}, "api_key")
    try:
        # Equal to `AuthStrategy.WANDB`, but resolved once: the SDK would look for each sandbox.
        return cwsandbox.WandbAuth().resolve_auth(base_url=plan.base_url)
    except cwsandbox.CWSandboxAuthenticationError as error:
        raise StartError(
            f"PROCTOR_AVIATO_AUTH=wandb: {error} (pip install 'proctor-service[aviato-wandb]')"
        ) from None


def arguments_of(order: Order) -> dict[str, Any]:
    """Return the arguments of `cwsandbox.Sandbox` but the tags."""
    options, shape = order.options, order.shape
    size = {"cpu": order.cpu, "memory": f"{shape.memory_mb}Mi"}
    gpu = None
    if options.gpu is not None:
        gpu = {name: value for name, value in options.gpu.model_dump().items() if value}
    pull = options.pull
    return {
        "container_image": order.image,
        "max_lifetime_seconds": order.lifetime_seconds,
        "resources": ResourceOptions(requests=size, limits=size, gpu=gpu),
        "network": _network(order),
        "runtime_class": options.runtime_class or None,
        "secrets": [
            Secret(store=s.store, name=s.name, field=s.field, env_var=s.shown_as)
            for s in options.secrets
        ],
        "volumes": [
            RegisteredVolumeOptions(
                name=f"mount-{number}",
                volume_id=mount.volume,
                mount_path=mount.path,
                sub_path=mount.sub_path or None,
                read_only=True,
            )
            for number, mount in enumerate(options.mounts)
        ],
        "image_pull_credentials": None
        if pull is None
        else ImagePullCredentials(
            registry=pull.registry, store=pull.store, name=pull.name, field=pull.field
        ),
    }


def _network(order: Order) -> NetworkOptions:
    if not order.shape.network:
        return NetworkOptions(deny_egress=True)
    names = [EgressRule(dns_name=name) for name in order.options.egress]
    return NetworkOptions(egress=names or [EgressRule(any=True)])
