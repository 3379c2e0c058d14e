"""The argument PROXY of commands: a proxy by its name, or by the workload whose Pods it runs in."""

from __future__ import annotations

import click

from pilot.cli.ctl.client import CommandError
from pilot.cli.ctl.cluster import default_namespace, selected_cluster, selects_cluster
from pilot.cli.ctl.replicas import Replicas


def resolve_proxy(control_plane: Replicas, text: str, namespace: str) -> str:
    """Return the name of the proxy that an argument selects.

    For a workload, such as deployment/web.shop, it is the first running Pod with a connected proxy. Other text is
    returned unchanged, but without the kind of a Pod. `namespace` is that of the option -n, or "". Raise CommandError
    if the workload does not exist or has no such Pod.
    """
    kind, slash, name = text.rpartition("/")
    if not (slash and name):
        return text
    # It imports aiohttp, which is slow and not needed for names of proxies.
    from pilot.cli.ctl.workload_name import KINDS, find_workload_pods, parse_workload, workload_kind

    if workload_kind(kind) not in KINDS:
        return text
    if workload_kind(kind) == "pod":
        return name
    ctx = click.get_current_context()
    if not selects_cluster(ctx):
        raise CommandError(
            f"{text!r} is a workload of a cluster, and there is no kubeconfig (--kubeconfig, KUBECONFIG): use "
            "POD.NAMESPACE or part of it"
        )
    workload = parse_workload(text, namespace or default_namespace())
    pods = find_workload_pods(selected_cluster(ctx), workload)
    connected = {status["proxy"] for status in control_plane.get("syncz", namespace=workload.namespace)}
    names = (f"{pod['metadata']['name']}.{workload.namespace}" for pod in pods)
    proxy = next((name for name in names if name in connected), "")
    if not proxy:
        place = f"{workload.namespace}/{workload.name}"
        raise CommandError(
            f"no running Pod of the {workload.kind} {place} has a connected proxy; pilotctl check-inject "
            f"{workload.kind}/{workload.name}.{workload.namespace} shows whether they are injected"
        )
    return proxy
