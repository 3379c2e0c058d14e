"""Builds and parses the names of xDS resources. Resources refer to each other by name, and operators read the names.

A cluster is named `direction|port|subset|host`. Its DNS SRV form `direction_.port_.subset_.host` is a valid SNI. In the
TLS handshake of a mesh connection, this form identifies the cluster. At gateways that route by SNI, it is the name of a
separate cluster.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OUTBOUND, INBOUND, INBOUND_VIP = "outbound", "inbound", "inbound-vip"

HTTP, TCP = "http", "tcp"  # protocols in the cluster names of a waypoint

BLACK_HOLE_CLUSTER = "BlackHoleCluster"
PASSTHROUGH_CLUSTER = "PassthroughCluster"
INBOUND_PASSTHROUGH_CLUSTER = "InboundPassthroughCluster"
ALLOW_ANY_DYNAMIC_DNS_CLUSTER = "AllowAnyDynamicDNSCluster"
LOCAL_CLUSTER = "local_cluster"  # the proxy's own service, for zone-aware routing; defined in the bootstrap
SDS_CLUSTER = "sds-grpc"  # the proxy's agent; defined in the bootstrap
SDS_FILES_CLUSTER = "sds-files-grpc"  # a user's SDS server for mounted files; defined in the bootstrap
SDS_EXTERNAL_CLUSTER = "sds-external"  # an SDS server behind a Unix socket in the pod

VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
CONNECT_TERMINATE = "connect_terminate"  # the listener that terminates HBONE tunnels
MAIN_INTERNAL = "main_internal"  # the cluster and internal listener for terminated tunnels
CONNECT_ORIGINATE = "connect_originate"  # the cluster and internal listener that open HBONE tunnels
INNER_CONNECT_ORIGINATE = "inner_connect_originate"  # the inner tunnel of two, to another network
OUTER_CONNECT_ORIGINATE = "outer_connect_originate"  # the outer tunnel of two, to another network
FORWARD_INNER_CONNECT = "forward_inner_connect"  # forwards an inner tunnel at an east-west gateway
ENCAP_CLUSTER = "encap"  # tunnels to a workload that the client addressed directly
HTTP_PROXY = "http_proxy"  # the listener of mesh.proxyHttpPort and its routes

WORKLOAD_SECRET = "default"  # SDS name of the workload's certificate
ROOT_SECRET = "ROOTCA"  # SDS name of the CA certificates that verify mesh peers

JWT_AUTHN_FILTER = "envoy.filters.http.jwt_authn"
JWT_PAYLOAD = "payload"  # key of the claims in that filter's dynamic metadata

BUILTIN_CREDENTIAL = "builtin://"  # credential name that stands for the workload's mesh certificate
SDS_CREDENTIAL = "sds://"  # a secret of the user's SDS server
CA_SUFFIX = "-cacert"
ALLOW_ANY_DNS_CACHE = "allow_any_dfp_dns_cache"  # shared by the cluster and the filters of ALLOW_ANY_DYNAMIC_DNS
_EXTENSION = "extensions.istio.io/trafficextension/"
_INVALID_CREDENTIAL = "invalid://"
_TYPED_CREDENTIALS = ("configmap://", "kubernetes://", "kubernetes-gateway://")


_PORT_AT_END = re.compile(r"_([0-9]{1,5})$", re.ASCII)


class GatewayRoutesName(NamedTuple):
    """The parts of a gateway's route configuration name.

    `port_name` and `gateway` (`namespace/name`) are set for the routes of a single server. Unknown parts are "" or 0.
    """

    port: int = 0
    port_name: str = ""
    gateway: str = ""


class ClusterName(NamedTuple):
    """The parts of a cluster name. `subset` may be "". `host` may be "" for an inbound cluster."""

    direction: str
    port: int
    subset: str
    host: str


def outbound_cluster(port: int, subset: str, host: str) -> str:
    """Return a name such as `outbound|80|v1|reviews.prod.svc.cluster.local`."""
    return f"outbound|{port}|{subset}|{host}"


def inbound_cluster(port: int) -> str:
    """Return a name such as `inbound|8080||`. `port` is the port on which the workload listens."""
    return f"inbound|{port}||"


def vip_cluster(port: int, subset: str, host: str) -> str:
    """Return a name such as `inbound-vip|80|http/v1|reviews.prod.svc.cluster.local` for a service behind a waypoint."""
    return f"{INBOUND_VIP}|{port}|{subset}|{host}"


def vip_subset(protocol: str, subset: str) -> str:
    """Return the subset part of a VIP cluster's name: the protocol, followed by the subset if there is one."""
    return f"{protocol}/{subset}" if subset else protocol


def dns_srv(port: int, subset: str, host: str) -> str:
    """Return a name such as `outbound_.80_.v1_.reviews.prod.svc.cluster.local`."""
    return f"outbound_.{port}_.{subset}_.{host}"


def parse_cluster(name: str) -> ClusterName | None:
    """Return the parts of a cluster name in either form, or None for any other name."""
    separator = "_." if name.startswith(("outbound_.", "inbound_.")) else "|"
    parts = name.split(separator, 3)
    if (
        len(parts) != 4
        or parts[0] not in (OUTBOUND, INBOUND, INBOUND_VIP)
        or not parts[1].isdecimal()
        or separator in parts[3]
    ):
        return None
    return ClusterName(parts[0], int(parts[1]), parts[2], parts[3])


def extension_config(namespace: str, name: str) -> str:
    """Return the name of a user's extension. Its filter and its configuration share this name."""
    return f"{_EXTENSION}{namespace}.{name}"


def parse_extension_config(text: str) -> tuple[str, str] | None:
    """Return the namespace and name of a user's extension, or None for any other name."""
    namespace, dot, name = text.removeprefix(_EXTENSION).partition(".")
    return (namespace, name) if text.startswith(_EXTENSION) and dot else None


def dns_cache(host: str) -> str:
    """Return the name of the DNS cache that the clusters and filters of a wildcard host share."""
    return f"{host}_dfp_dns_cache"


def file_certificate(certificate: str, key: str) -> str:
    """Return the SDS name of a mounted certificate and its key, or "" if either path is missing."""
    return f"file-cert:{certificate}~{key}" if certificate and key else ""


def file_root(path: str) -> str:
    """Return the SDS name of mounted CA certificates, or "" if `path` is "".

    The path `system` stands for the operating system's certificates.
    """
    return f"file-root:{path}" if path else ""


def credential(name: str) -> str:
    """Return the SDS name for the `credentialName` of a Gateway or DestinationRule.

    A name without a known prefix refers to the proxy's own namespace.
    """
    if name.startswith(BUILTIN_CREDENTIAL):
        return WORKLOAD_SECRET
    if name.startswith(_INVALID_CREDENTIAL):
        return _INVALID_CREDENTIAL
    return name if name.startswith(_TYPED_CREDENTIALS) else f"kubernetes://{name}"


def config_path(kind: str, namespace: str, name: str) -> str:
    """Return the API path of a resource's source object, for the `config` field of the resource's `istio` metadata.

    `kind` is a name such as `destination-rule`.
    """
    return f"/apis/networking.istio.io/v1/namespaces/{namespace}/{kind}/{name}"


def gateway_routes(port: int, bind: str = "") -> str:
    """Return the route configuration name for a plaintext HTTP port, such as `http.8080`.

    If the server sets a bind address, it is appended.
    """
    return f"http.{port}.{bind}" if bind else f"http.{port}"


def gateway_tls_routes(port: int, port_name: str, gateway: str, namespace: str, bind: str = "") -> str:
    """Return the route configuration name for a server that terminates TLS.

    An example is `https.443.https-443.bookinfo.prod`. If the server sets a bind address, it is appended.
    """
    name = f"https.{port}.{port_name}.{gateway}.{namespace}"
    return f"{name}.{bind}" if bind else name


def parse_gateway_routes(name: str) -> GatewayRoutesName:
    """Return the parts of a gateway's route configuration name.

    The result has only the port if the Gateway's name or the port's name contains dots.
    """
    parts = name.split(".")
    port = int(parts[1]) if len(parts) > 1 and parts[0] in ("http", "https") and parts[1].isdecimal() else 0
    if parts[0] == "https" and len(parts) == 5:
        return GatewayRoutesName(port, parts[2], f"{parts[4]}/{parts[3]}")
    return GatewayRoutesName(port)


def routes_port(name: str) -> int:
    """Return the port in the name of a sidecar's route configuration, or 0 if the name contains no port.

    Outbound route configurations have names such as `80`. Inbound route configurations are named after their cluster.
    """
    if name.isascii() and name.isdecimal():
        return int(name)
    cluster = parse_cluster(name)
    return cluster.port if cluster is not None and cluster.direction == INBOUND else 0


def listener_port(name: str) -> int | None:
    """Return the port at the end of a listener name such as `10.96.0.1_80`, or None if the name has no port."""
    match = _PORT_AT_END.search(name)
    return int(match[1]) if match is not None else None
