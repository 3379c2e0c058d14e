"""Builds and parses the names of xDS resources in one place: they are protocol between our own resources, and people read them.

A cluster is `direction|port|subset|host`. Its DNS SRV form `direction_.port_.subset_.host` is a legal SNI: it names the same
cluster in the TLS handshake of a mesh connection, and for gateways that route by SNI it names a cluster of its own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OUTBOUND, INBOUND, INBOUND_VIP = "outbound", "inbound", "inbound-vip"

HTTP, TCP = "http", "tcp"  # what is spoken on a port, in the names of clusters of a waypoint

BLACK_HOLE_CLUSTER = "BlackHoleCluster"
PASSTHROUGH_CLUSTER = "PassthroughCluster"
INBOUND_PASSTHROUGH_CLUSTER = "InboundPassthroughCluster"
ALLOW_ANY_DYNAMIC_DNS_CLUSTER = "AllowAnyDynamicDNSCluster"
LOCAL_CLUSTER = "local_cluster"  # the proxy's own workload; in its bootstrap where it discovers itself
SDS_CLUSTER = "sds-grpc"  # the proxy's companion; in its bootstrap
SDS_FILES_CLUSTER = "sds-files-grpc"  # a server of mounted files that the user brings; in its bootstrap
SDS_EXTERNAL_CLUSTER = "sds-external"  # a server of credentials behind a Unix socket in the pod

VIRTUAL_OUTBOUND = "virtualOutbound"
VIRTUAL_INBOUND = "virtualInbound"
CONNECT_TERMINATE = "connect_terminate"  # the listener where tunnels of HBONE end
MAIN_INTERNAL = "main_internal"  # the cluster and listener of what comes out of them
CONNECT_ORIGINATE = "connect_originate"  # the cluster and listener where tunnels begin
INNER_CONNECT_ORIGINATE = "inner_connect_originate"  # those of a tunnel in a tunnel, to another network
OUTER_CONNECT_ORIGINATE = "outer_connect_originate"
FORWARD_INNER_CONNECT = (
    "forward_inner_connect"  # at a gateway between networks: hands on the tunnel that came inside of another
)
ENCAP_CLUSTER = "encap"  # to a workload that is addressed directly, through a tunnel
HTTP_PROXY = "http_proxy"  # the listener of mesh.proxyHttpPort and its routes

WORKLOAD_SECRET = "default"  # the workload's own certificate, by SDS
ROOT_SECRET = "ROOTCA"  # the roots that peers of the mesh are verified with, by SDS

JWT_AUTHN_FILTER = "envoy.filters.http.jwt_authn"
JWT_PAYLOAD = "payload"  # where routes and policies find the claims in that filter's metadata

BUILTIN_CREDENTIAL = "builtin://"  # the workload's mesh certificate, under the name of a credential
SDS_CREDENTIAL = "sds://"  # a secret of an SDS server that the user brings
CA_SUFFIX = "-cacert"
ALLOW_ANY_DNS_CACHE = "allow_any_dfp_dns_cache"  # of the cluster for ALLOW_ANY_DYNAMIC_DNS and the filters before it
_EXTENSION = "extensions.istio.io/trafficextension/"
_INVALID_CREDENTIAL = "invalid://"
_TYPED_CREDENTIALS = ("configmap://", "kubernetes://", "kubernetes-gateway://")


_PORT_AT_END = re.compile(r"_([0-9]{1,5})$", re.ASCII)


class GatewayRoutesName(NamedTuple):
    """Holds what the name of a gateway's routes says: the port, and of one server's own routes the name of its port and its Gateway, as
    `namespace/name`; "" and 0 for what it does not say."""

    port: int = 0
    port_name: str = ""
    gateway: str = ""


class ClusterName(NamedTuple):
    """Holds what the name of a cluster says; `subset` and, for an inbound one, `host` may be ""."""

    direction: str
    port: int
    subset: str
    host: str


def outbound_cluster(port: int, subset: str, host: str) -> str:
    """Returns a name such as `outbound|80|v1|reviews.prod.svc.cluster.local`."""
    return f"outbound|{port}|{subset}|{host}"


def inbound_cluster(port: int) -> str:
    """Returns a name such as `inbound|8080||`; the port is the one that the workload listens on."""
    return f"inbound|{port}||"


def vip_cluster(port: int, subset: str, host: str) -> str:
    """Returns a name such as `inbound-vip|80|http/v1|reviews.prod.svc.cluster.local`, of a service behind a waypoint."""
    return f"{INBOUND_VIP}|{port}|{subset}|{host}"


def vip_subset(speaks: str, subset: str) -> str:
    """Returns what stands in such a name in the place of a subset: HTTP or TCP, and the subset where there is one."""
    return f"{speaks}/{subset}" if subset else speaks


def dns_srv(port: int, subset: str, host: str) -> str:
    """Returns a name such as `outbound_.80_.v1_.reviews.prod.svc.cluster.local`."""
    return f"outbound_.{port}_.{subset}_.{host}"


def parse_cluster(name: str) -> ClusterName | None:
    """Returns the parts of a cluster's name of either form; None for any other name."""
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
    """Returns the name of a user's extension, of its filter as of its configuration."""
    return f"{_EXTENSION}{namespace}.{name}"


def parse_extension_config(text: str) -> tuple[str, str] | None:
    """Returns the namespace and name of a user's extension; None for the name of anything else."""
    namespace, dot, name = text.removeprefix(_EXTENSION).partition(".")
    return (namespace, name) if text.startswith(_EXTENSION) and dot else None


def dns_cache(host: str) -> str:
    """Returns the DNS cache that the clusters and filters of a wildcard host with dynamic DNS share."""
    return f"{host}_dfp_dns_cache"


def file_certificate(certificate: str, key: str) -> str:
    """Returns the SDS name of a mounted certificate and its key, "" where one of the two paths is missing."""
    return f"file-cert:{certificate}~{key}" if certificate and key else ""


def file_root(path: str) -> str:
    """Returns the SDS name of mounted roots, "" without a path; the path `system` stands for those of the operating system."""
    return f"file-root:{path}" if path else ""


def credential(name: str) -> str:
    """Returns the SDS name of a `credentialName` of a Gateway or DestinationRule: a typed one as it is, else the proxy's own namespace's."""
    if name.startswith(BUILTIN_CREDENTIAL):
        return WORKLOAD_SECRET
    if name.startswith(_INVALID_CREDENTIAL):
        return _INVALID_CREDENTIAL
    return name if name.startswith(_TYPED_CREDENTIALS) else f"kubernetes://{name}"


def config_path(kind: str, namespace: str, name: str) -> str:
    """Returns how a resource names the object that it came from, in its metadata `istio.config`; `kind` as in `destination-rule`."""
    return f"/apis/networking.istio.io/v1/namespaces/{namespace}/{kind}/{name}"


def gateway_routes(port: int, bind: str = "") -> str:
    """Returns the name of the routes of a plain HTTP port of a gateway: `http.8080`, with the address that its servers bind where they
    name one."""
    return f"http.{port}.{bind}" if bind else f"http.{port}"


def gateway_tls_routes(port: int, port_name: str, gateway: str, namespace: str, bind: str = "") -> str:
    """Returns the name of the routes of one server of a gateway that ends TLS: `https.443.https-443.bookinfo.prod`, and the address that
    it binds."""
    name = f"https.{port}.{port_name}.{gateway}.{namespace}"
    return f"{name}.{bind}" if bind else name


def parse_gateway_routes(name: str) -> GatewayRoutesName:
    """Returns the parts of the name of a gateway's routes. A Gateway or port whose own name has dots is not told from the rest, and is ""."""
    parts = name.split(".")
    port = int(parts[1]) if len(parts) > 1 and parts[0] in ("http", "https") and parts[1].isdecimal() else 0
    if parts[0] == "https" and len(parts) == 5:
        return GatewayRoutesName(port, parts[2], f"{parts[4]}/{parts[3]}")
    return GatewayRoutesName(port)


def routes_port(name: str) -> int:
    """Returns the port that the name of a sidecar's routes says: `80`, or inbound ones that are called as their cluster; 0 for any other."""
    if name.isascii() and name.isdecimal():
        return int(name)
    cluster = parse_cluster(name)
    return cluster.port if cluster is not None and cluster.direction == INBOUND else 0


def listener_port(name: str) -> int | None:
    """Returns the port at the end of the name of a listener such as `10.96.0.1_80`; None where it says none."""
    found = _PORT_AT_END.search(name)
    return int(found[1]) if found is not None else None
