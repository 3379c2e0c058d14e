"""Envoy's bootstrap for a proxy of the mesh: its node, and the sources of its configuration and secrets.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pilot.agent.proxy.server_address import split_address

SDS_SOCKET = "./var/run/secrets/workload-spiffe-uds/socket"
RUNTIME: Mapping[str, Any] = {
    "re2.max_program_size.error_level": 32768,  # the default, 100, rejects ordinary regular expressions
    "envoy.reloadable_features.http_reject_path_with_fragment": False,  # remove the fragment instead
    "envoy.reloadable_features.fixed_heap_use_allocated": True,
    # If true, consistent hashing ignores endpoints that are added later (https://github.com/envoyproxy/envoy/issues/45212).
    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update": False,
}
UNLIMITED_CONNECTIONS = 2**31 - 1

# HBONE needs internal listeners, which only the bootstrap can enable. The node's metadata tells the control plane that
# they exist.
_INTERNAL_LISTENER = "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyNode:
    """The identity of a proxy.

    `type` is sidecar, router or waypoint, and `ip` is the proxy's first address. `domain` is the DNS suffix of short
    host names. It defaults to NAMESPACE.svc.cluster.local. `metadata` is merged over the metadata that the other fields
    imply.
    """

    type: str
    name: str
    namespace: str
    ip: str
    domain: str = ""
    cluster: str = ""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str = "default"
    version: str = "1.32.0"
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def build_node(node: ProxyNode) -> dict[str, Any]:
    """Return the xDS node, with the ID `type~ip~name.namespace~domain` and Istio's metadata."""
    domain = node.domain or f"{node.namespace}.svc.cluster.local"
    return {
        "id": f"{node.type}~{node.ip}~{node.name}.{node.namespace}~{domain}",
        "cluster": node.cluster or f"{node.labels.get('app', node.name)}.{node.namespace}",
        "metadata": {
            "NAME": node.name,
            "NAMESPACE": node.namespace,
            "SERVICE_ACCOUNT": node.service_account,
            "CLUSTER_ID": "Kubernetes",
            "ISTIO_VERSION": node.version,
            "INSTANCE_IPS": node.ip,
            "LABELS": dict(node.labels),
            "WORKLOAD_NAME": node.labels.get("app", node.name),
            "INTERCEPTION_MODE": "REDIRECT",
            **node.metadata,
        },
    }


def build_cluster(name: str, address: Mapping[str, Any], http2: bool) -> dict[str, Any]:
    """Return a cluster with one address. Its type is STATIC for an IP address or a pipe, and STRICT_DNS for a host
    name."""
    host = address.get("socket_address", {}).get("address", "")
    discovery_type = "STRICT_DNS" if host and not _is_ip(host) else "STATIC"
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": dict(address)}}]}]
    cluster: dict[str, Any] = {
        "name": name,
        "type": discovery_type,
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
    }
    if http2:
        options = {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {
                "http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "10s"}}
            },
        }
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        }
    return cluster


def _is_ip(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def build_address(text: str) -> dict[str, Any]:
    """Return the Envoy address of "host:port" or "unix:PATH". Raises ValueError."""
    if text.startswith("unix:"):
        return {"pipe": {"path": text.removeprefix("unix:")}}
    host, port = split_address(text)
    return {"socket_address": {"address": host, "port_value": port}}


def build_bootstrap(
    node: ProxyNode,
    xds: str,
    admin: str,
    sds_socket: str | None = None,
    delta: bool = True,
    agent: str = "127.0.0.1:15020",
) -> dict[str, Any]:
    """Return the bootstrap as JSON data.

    `xds`, `admin` and `agent` are addresses of the form "host:port" or "unix:PATH". `sds_socket` is the Unix socket
    that the cluster `sds-grpc` connects to for the workload's secrets, `default` and `ROOTCA`. Raises ValueError for an
    invalid address.
    """
    source = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    node_with_listeners = dataclasses.replace(node, metadata={"INTERNAL_LISTENERS": "true", **node.metadata})
    return {
        "node": build_node(node_with_listeners),
        "bootstrap_extensions": [
            {"name": "envoy.bootstrap.internal_listener", "typed_config": {"@type": _INTERNAL_LISTENER}}
        ],
        "admin": {"address": build_address(admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC" if delta else "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
            "cds_config": source,
            "lds_config": source,
        },
        "layered_runtime": {"layers": [{"name": "mesh", "static_layer": dict(RUNTIME)}]},
        "static_resources": {
            "clusters": [
                build_cluster("xds-grpc", build_address(xds), http2=True),
                build_cluster("sds-grpc", build_address(f"unix:{sds_socket or SDS_SOCKET}"), http2=True),
                build_cluster("prometheus_stats", build_address(admin), http2=False),
                build_cluster("agent", build_address(agent), http2=False),
            ]
        },
    }
