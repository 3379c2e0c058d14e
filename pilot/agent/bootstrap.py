"""Envoy's bootstrap for a proxy of the mesh: who it is, and where its configuration comes from.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/bootstrap/v3/bootstrap.proto
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_RUNTIME = {"re2.max_program_size.error_level": 32768}  # Envoy's own limit, 100, refuses routes with ordinary regular expressions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """Who the proxy is. `type` is sidecar or router; `ip` its address; `metadata` is added to what follows from the rest."""

    type: str
    name: str
    namespace: str
    ip: str
    domain: str = "cluster.local"
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    service_account: str = "default"
    version: str = "1.32.0"
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port"; an IPv6 host may stand in brackets. Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


def build_node(node: Node) -> dict[str, Any]:
    """The xDS node: `type~ip~name.namespace~namespace.svc.domain` and Istio's metadata."""
    return {
        "id": f"{node.type}~{node.ip}~{node.name}.{node.namespace}~{node.namespace}.svc.{node.domain}",
        "cluster": f"{node.labels.get('app', node.name)}.{node.namespace}",
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
    """A static cluster of one address, over HTTP/2 or HTTP/1.1; its kind follows from the address."""
    host = address.get("socket_address", {}).get("address", "")
    kind = "STRICT_DNS" if host and not _is_ip(host) else "STATIC"
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": dict(address)}}]}]
    cluster: dict[str, Any] = {"name": name, "type": kind, "connect_timeout": "5s", "load_assignment": {"cluster_name": name, "endpoints": endpoints}}
    if http2:
        options = {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "10s"}}},
        }
        cluster["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}
    return cluster


def _is_ip(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def build_bootstrap(node: Node, xds: str, admin: str, sds_socket: str | None = None, delta: bool = True) -> dict[str, Any]:
    """The whole bootstrap as plain JSON data.

    `xds` and `admin` are "host:port". `sds_socket` is the Unix socket of an agent that serves the workload's certificates
    (secrets `default` and `ROOTCA`), which resources ask for on the cluster `sds-grpc`. Raises ValueError on a bad address.
    """

    def socket_address(text: str) -> dict[str, Any]:
        host, port = split_address(text)
        return {"socket_address": {"address": host, "port_value": port}}

    sds = {"pipe": {"path": sds_socket or "/var/run/secrets/workload-spiffe-uds/socket"}}
    source = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    return {
        "node": build_node(node),
        "admin": {"address": socket_address(admin)},
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
        "layered_runtime": {"layers": [{"name": "mesh", "static_layer": _RUNTIME}]},
        "static_resources": {
            "clusters": [
                build_cluster("xds-grpc", socket_address(xds), http2=True),
                build_cluster("sds-grpc", sds, http2=True),
                build_cluster("prometheus_stats", socket_address(admin), http2=False),
                build_cluster("agent", {"socket_address": {"address": "127.0.0.1", "port_value": 15020}}, http2=False),
            ]
        },
    }
