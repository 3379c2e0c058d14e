"""Envoy's bootstrap for a proxy of the mesh: who it is, and where its configuration comes from.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

SDS_SOCKET = "./var/run/secrets/workload-spiffe-uds/socket"
RUNTIME: Mapping[str, Any] = {
    "re2.max_program_size.error_level": 32768,  # Envoy's own limit, 100, refuses routes with ordinary regular expressions
}

# Tunnels of HBONE begin and end at listeners that Envoy has only where its bootstrap asks for them, which nobody can tell but the node.
_INTERNAL_LISTENER = "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyNode:
    """Who the proxy is. `type` is sidecar, router or waypoint; `ip` its first address; `domain` the suffix of short host names, that of the
    namespace in cluster.local where it is empty; `metadata` is added to what follows from the rest."""

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


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port"; an IPv6 host may stand in brackets. ValueError for any other text."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def parse_address(where: str, address: str) -> tuple[str, int]:
    """Returns host and port of the address that a setting says. ValueError, which names the setting, where it is none."""
    try:
        return split_address(address)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def build_node(node: ProxyNode) -> dict[str, Any]:
    """Returns the xDS node: the id `type~ip~name.namespace~domain` and Istio's metadata."""
    return {
        "id": f"{node.type}~{node.ip}~{node.name}.{node.namespace}~{node.domain or f'{node.namespace}.svc.cluster.local'}",
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
    """Returns a static cluster of one address, over HTTP/2 or HTTP/1.1; its kind follows from the address."""
    host = address.get("socket_address", {}).get("address", "")
    kind = "STRICT_DNS" if host and not _is_ip(host) else "STATIC"
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": dict(address)}}]}]
    cluster: dict[str, Any] = {
        "name": name,
        "type": kind,
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
    """Returns the address of "host:port" or "unix:PATH". ValueError for any other text."""
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
    """Returns the whole bootstrap as plain JSON data.

    `xds`, `admin` and `agent` are "host:port", or "unix:PATH". `sds_socket` is the Unix socket of an agent that serves the workload's
    certificates (secrets `default` and `ROOTCA`), which resources ask for on the cluster `sds-grpc`. ValueError for a bad address.
    """
    source = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    told = dataclasses.replace(node, metadata={"INTERNAL_LISTENERS": "true", **node.metadata})
    return {
        "node": build_node(told),
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
