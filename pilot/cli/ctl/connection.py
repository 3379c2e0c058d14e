"""Options that select a control plane, and the connections to its replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pilot.cli.ctl.client import ADDRESS_HINT, DEFAULT_ADDRESS, DEFAULT_PORT, CommandError, PageClient
from pilot.cli.ctl.cluster import has_kubeconfig, remember, remembered, selected_cluster, with_cluster_options
from pilot.cli.ctl.forwarding import Forwarding, find_pods, forward
from pilot.cli.ctl.replicas import Replicas

Function = TypeVar("Function", bound=Callable[..., Any])
SYSTEM = "istio-system"
_SELECTION = ("kubeconfig", "context", "istionamespace", "revision")
"""Options that select a control plane in a cluster."""
_MONITORING = "http-monitoring"
"""Name of the port of the debug pages in the Pods of control planes."""


def with_connection(function: Function) -> Function:
    """Add the options that select a control plane to a command or group. `connect` reads them."""
    options = [
        click.option(
            "--address",
            multiple=True,
            metavar="URL",
            expose_value=False,
            callback=remember,
            help="monitoring address of a replica of the control plane; may be repeated",
        ),
        click.option(
            "-i",
            "--istioNamespace",
            metavar="NAME",
            expose_value=False,
            callback=remember,
            help=f"namespace of the control plane in the cluster (default: {SYSTEM})",
        ),
    ]
    names = {parameter.name for parameter in getattr(function, "__click_params__", ())}
    if "revision" not in names:
        options.append(
            click.option(
                "--revision",
                metavar="NAME",
                expose_value=False,
                callback=remember,
                help="only replicas of this revision in the cluster",
            )
        )
    for option in reversed(options):
        function = option(function)
    return function if "kubeconfig" in names else with_cluster_options(function)


def connect(ctx: click.Context, **options: Any) -> Replicas:
    """Return the control plane that the options of a command select. `options` are those of PageClient.

    Without options, it is that in the cluster of the kubeconfig, or else the one on this machine. Raise CommandError if
    the cluster has none.
    """
    addresses = remembered(ctx, "address")
    if addresses is not None:
        for name, flag in (("revision", "--revision"), ("istionamespace", "--istioNamespace")):
            if remembered(ctx, name):
                click.echo(f"Warning: {flag} has no effect with --address, which names the replicas itself", err=True)
    if addresses is None and (has_kubeconfig() or any(remembered(ctx, name) for name in _SELECTION)):
        return Replicas(_forwarded_replicas(ctx, **options))
    if addresses is None:
        hint = f"{ADDRESS_HINT}; no cluster was searched, because there is no kubeconfig (--kubeconfig, KUBECONFIG)"
        return Replicas([PageClient(DEFAULT_ADDRESS, hint=hint, **options)])
    return Replicas([PageClient(address, **options) for address in dict.fromkeys(addresses)])


def _forwarded_replicas(ctx: click.Context, **options: Any) -> list[PageClient]:
    cluster = selected_cluster(ctx)
    namespace = remembered(ctx, "istionamespace") or SYSTEM
    revision = remembered(ctx, "revision") or ctx.params.get("revision")
    selector = f"app=istiod,istio.io/rev={revision}" if revision else "app=istiod"
    hint = "--address URL selects a control plane without a cluster"
    try:
        pods = find_pods(cluster, namespace, selector)
    except CommandError as error:
        raise CommandError(f"cannot find the replicas of the control plane: {error.message}; {hint}") from error
    if not pods:
        raise CommandError(
            f"no Pod of a control plane runs in the namespace {namespace} (labels {selector}); -i and --revision "
            f"select another one, and {hint}"
        )
    forwarding = forward(ctx, cluster)
    return [_forwarded(forwarding, namespace, pod, options) for pod in pods]


def _forwarded(forwarding: Forwarding, namespace: str, pod: dict[str, Any], options: dict[str, Any]) -> PageClient:
    name = str(pod["metadata"]["name"])
    port = forwarding.open(namespace, name, monitoring_port(pod))
    address = f"http://127.0.0.1:{port.port}"
    revision = str((pod["metadata"].get("labels") or {}).get("istio.io/rev", ""))
    return PageClient(address, name=f"{name}.{namespace}", reason=lambda: port.error, revision=revision, **options)


def monitoring_port(pod: dict[str, Any]) -> int:
    """Return the port of the debug pages in a Pod of a control plane."""
    ports = [port for container in pod["spec"].get("containers", ()) for port in container.get("ports", ())]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == _MONITORING), DEFAULT_PORT)
