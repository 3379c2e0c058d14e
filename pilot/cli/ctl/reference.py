"""The replicas of a running istiod, found by its Service and reached through port-forwards of the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import Cluster
from pilot.cli.ctl.connection import SYSTEM, monitoring_port
from pilot.cli.ctl.forwarding import find_pods, forward

if TYPE_CHECKING:
    from pilot.kube.object_client import ObjectClient

DEFAULT_REFERENCE = f"istiod.{SYSTEM}"
_CONTAINER, _REVISION = "discovery", "istio.io/rev"
_LOCAL = ("KUBECONFIG",)
"""Variables with paths in the file system of a Pod."""


def reference_addresses(
    ctx: click.Context,
    cluster: Cluster,
    references: tuple[str, ...],
    port_of: Callable[[dict[str, Any]], int] = monitoring_port,
) -> list[str]:
    """Return the addresses of a port of the replicas of a reference. Port-forwards last until the command ends.

    `port_of` returns the port of a Pod. A reference is an address or, as NAME.NAMESPACE, a Service. Raise CommandError
    if a Service selects no running Pod.
    """
    services = [reference for reference in references if not _is_address(reference)]
    addresses = [reference for reference in references if _is_address(reference)]
    if services:
        forwarding = forward(ctx, cluster)
        for reference in services:
            namespace, pods = _pods(cluster, reference)
            forwards = [forwarding.open(namespace, str(pod["metadata"]["name"]), port_of(pod)) for pod in pods]
            addresses += [f"http://127.0.0.1:{one.port}" for one in forwards]
    return addresses


def reference_environment(cluster: Cluster, references: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of the first Service among the references, as its first Pod specifies it.

    It has the revision in the Pod's labels, and no variables whose values are in other objects. It is empty if no
    reference is a Service.
    """
    services = [reference for reference in references if not _is_address(reference)]
    if not services:
        return {}
    _, pods = _pods(cluster, services[0])
    revision = (pods[0]["metadata"].get("labels") or {}).get(_REVISION)
    variables = {
        str(one["name"]): str(one["value"])
        for container in (pods[0].get("spec") or {}).get("containers") or ()
        if container.get("name") == _CONTAINER
        for one in container.get("env") or ()
        if one.get("value") and one["name"] not in _LOCAL
    }
    return ({"REVISION": revision} if revision else {}) | variables


def reference_webhook(ctx: click.Context, cluster: Cluster, references: tuple[str, ...], port: int) -> str:
    """Return the address of the webhook of the first Service among the references, or "" if there is none."""
    services = [reference for reference in references if not _is_address(reference)]
    if not services:
        return ""
    namespace, pods = _pods(cluster, services[0])
    return f"127.0.0.1:{forward(ctx, cluster).open(namespace, str(pods[0]['metadata']['name']), port).port}"


def _is_address(reference: str) -> bool:
    return ":" in reference


def _pods(cluster: Cluster, reference: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the namespace of a Service, and the running Pods that it selects."""
    from pilot.kube.object_client import ResourceKey, VersionedKind  # imports aiohttp, as in Cluster

    name, _, namespace = reference.partition(".")
    key = ResourceKey(VersionedKind("v1", "Service"), namespace or SYSTEM, name)

    async def read(objects: ObjectClient, _: ObjectClient) -> dict[str, Any] | None:
        return await objects.get(key)

    service = cluster.run(read, dry_run=True)
    hint = "--reference selects another Service, as NAME.NAMESPACE, or an address"
    if service is None:
        raise CommandError(f"there is no Service {name} in the namespace {key.namespace}; {hint}")
    selector = (service.get("spec") or {}).get("selector") or {}
    pods = find_pods(cluster, key.namespace, ",".join(f"{label}={value}" for label, value in selector.items()))
    if not (selector and pods):
        raise CommandError(f"the Service {name} in the namespace {key.namespace} selects no running Pod; {hint}")
    return key.namespace, pods
