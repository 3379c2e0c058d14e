"""Injects the proxy into a Pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.lib.labels import NETWORK
from pilot.lib.logging.log import scope
from webhook.inject.annotations import PROXY_CONFIG, STATUS, check_annotations
from webhook.inject.containers import PROXY, find_anywhere, in_order, with_container
from webhook.inject.errors import InjectionError
from webhook.inject.overrides import reapplied, reinserted
from webhook.inject.probes import rewrite_probes
from webhook.inject.prometheus import is_prometheus, is_rerouted, merge_metrics, secure_port
from webhook.inject.proxy_config import apply_override
from webhook.inject.render import render
from webhook.inject.request import InjectionRequest
from webhook.inject.status import status_of, stripped
from webhook.pod.merge import MergeError

Plain = dict[str, Any]
CLUSTER_VARIABLE, NETWORK_VARIABLE = "ISTIO_META_CLUSTER_ID", "ISTIO_META_NETWORK"
_log = scope("webhook")


def inject(request: InjectionRequest) -> Plain:
    """Return the injected Pod. The request's Pod is not modified. Its annotations must be valid.

    Raise InjectionError if the Pod cannot be injected.
    """
    _warn(request.pod)
    try:
        request = request._replace(environment=_environment(request))
        port = request.mesh.default_config.status_port
        ours = is_prometheus if is_rerouted(request.annotations, port) else lambda name: False
        rendered = render(request, reinserted(stripped(request.pod, ours)))
    except InjectionError as error:
        raise InjectionError(f"failed to run injection template: {error}") from error
    try:
        final = reapplied(rendered.pod, request, rendered.template)
    except (InjectionError, MergeError) as error:
        raise InjectionError(f"failed to re apply container: {error}") from error
    try:
        return _processed(final, rendered.template, request)
    except InjectionError as error:
        raise InjectionError(f"failed to process pod: {error}") from error


def refuse_wrong(annotations: Mapping[str, str]) -> None:
    """Raise InjectionError if an annotation of a Pod is invalid."""
    try:
        check_annotations(annotations)
    except InjectionError as error:
        raise InjectionError(f"failed to run injection template: {error}") from error


def _warn(pod: Plain) -> None:
    policy = (pod.get("spec") or {}).get("dnsPolicy")
    if policy and policy != "ClusterFirst":
        metadata = pod.get("metadata") or {}
        name = f"{metadata.get('namespace', '')}/{metadata.get('name') or metadata.get('generateName', '')}"
        _log.warning(
            "the DNSPolicy of %s is %s, not ClusterFirst: its proxy may not find the control plane", name, policy
        )


def _environment(request: InjectionRequest) -> dict[str, str]:
    """Return the proxy's environment variables, including its cluster and network.

    Variables in the webhook's path take precedence over the injector's values. For the network, the Pod's label takes
    precedence over both.
    """
    environment = dict(request.environment)
    cluster = environment.get(CLUSTER_VARIABLE) or request.config.value("global", "multiCluster", "clusterName")
    network = (
        request.labels.get(NETWORK)
        if NETWORK in request.labels
        else environment.get(NETWORK_VARIABLE) or request.config.value("global", "network")
    )
    if cluster:
        environment[CLUSTER_VARIABLE] = cluster
    if network:
        environment[NETWORK_VARIABLE] = network
    return environment


def _processed(pod: Plain, template: Plain, request: InjectionRequest) -> Plain:
    """Return the Pod with the changes that templates cannot express."""
    metadata = pod.get("metadata") or {}
    pod = {
        **pod,
        "metadata": {
            **metadata,
            "annotations": metadata.get("annotations") or {},
            "labels": metadata.get("labels") or {},
        },
    }
    pod = _with_environment(pod, request.environment)
    pod = secure_port(merge_metrics(pod, request))
    pod = rewrite_probes(pod, request)
    pod = _with_metadata(pod, template, request)
    return in_order(pod, _holds(request))


def _with_environment(pod: Plain, environment: Mapping[str, str]) -> Plain:
    sidecar = find_anywhere(pod, PROXY)
    if sidecar is None or not environment:
        return pod
    others = [e for e in sidecar.get("env") or () if e.get("name") not in environment]
    return with_container(
        pod, {**sidecar, "env": others + [{"name": k, "value": environment[k]} for k in sorted(environment)]}
    )


def _with_metadata(pod: Plain, template: Plain, request: InjectionRequest) -> Plain:
    metadata = pod["metadata"]
    network = {NETWORK: request.environment[NETWORK_VARIABLE]} if NETWORK_VARIABLE in request.environment else {}
    annotations = {
        **metadata["annotations"],
        STATUS: status_of(template, request.revision),
        **request.config.written.injected_annotations,
    }
    return {**pod, "metadata": {**metadata, "labels": {**metadata["labels"], **network}, "annotations": annotations}}


def _holds(request: InjectionRequest) -> bool:
    """Return whether applications wait for the proxy.

    This is enabled in the injector's values or in the mesh config. The Pod's annotation overrides the mesh config.
    """
    config = request.mesh.default_config
    if (text := request.annotations.get(PROXY_CONFIG)) is not None:
        try:
            config = apply_override(config, text)
        except ValueError as error:
            raise InjectionError(str(error)) from error
    return bool(
        config.hold_application_until_proxy_starts
        or request.config.value("global", "proxy", "holdApplicationUntilProxyStarts")
    )
