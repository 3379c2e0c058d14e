"""The node of a first request is parsed into a Proxy."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeError, NodeType, Proxy

_KINDS = tuple(str(kind) for kind in NodeType)
_MAPS = ("LABELS", "STATIC_LABELS", "ANNOTATIONS", "PLATFORM_METADATA")
# Everything is text there, booleans and lists too: https://istio.io/latest/docs/reference/commands/pilot-agent/#envvars
_TEXTS = (
    "NAMESPACE",
    "SERVICE_ACCOUNT",
    "CLUSTER_ID",
    "NETWORK",
    "REQUESTED_NETWORK_VIEW",
    "ISTIO_VERSION",
    "GENERATOR",
    "INTERCEPTION_MODE",
    "INSTANCE_IPS",
    "IDLE_TIMEOUT",
    "HTTP10",
    "HTTP_PROXY_PORT",
    "NODE_NAME",
    "WORKLOAD_NAME",
    "MESH_ID",
    "DNS_PROXY_ADDR",
    "TLS_SERVER_CERT_CHAIN",
    "TLS_SERVER_KEY",
    "TLS_SERVER_ROOT_CERT",
    "TLS_CLIENT_CERT_CHAIN",
    "TLS_CLIENT_KEY",
    "TLS_CLIENT_ROOT_CERT",
    "AUTO_REGISTER_GROUP",
    "WORKLOAD_ENTRY",
    "UNPRIVILEGED_POD",
)


def parse_node(node: Any, aliases: Mapping[str, str] = {}) -> Proxy:
    """Returns the proxy that an envoy.config.core.v3.Node describes, whose id is `type~ip~id~dns domain`. `aliases` has the names of clusters
    by their other names. A node that cannot be understood raises `NodeError`."""
    parts = node.id.split("~")
    if len(parts) != 4:
        raise NodeError(f"missing parts in the service node {node.id!r}: type~ip~id~domain is expected")
    kind, ip, proxy_id, dns_domain = parts
    if kind not in _KINDS:
        raise NodeError(f"invalid node type (valid types: {', '.join(_KINDS)}) in the service node {node.id!r}")
    metadata = {key: plain(value) for key, value in node.metadata.fields.items()}
    _check(metadata)
    if metadata.get("CLUSTER_ID") in aliases:
        metadata["CLUSTER_ID"] = aliases[metadata["CLUSTER_ID"]]
    return Proxy(
        type=NodeType(kind),
        id=proxy_id,
        ips=_addresses(metadata.get("INSTANCE_IPS") or "", ip),
        dns_domain=dns_domain,
        namespace=metadata.get("NAMESPACE") or _first_label(dns_domain),
        metadata=metadata,
        locality=Locality(node.locality.region, node.locality.zone, node.locality.sub_zone),
        extensions=_shared(frozenset(text for e in node.extensions for text in (e.name, *e.type_urls)))
        if node.extensions
        else None,
        envoy=_envoy_version(node),
        node_cluster=node.cluster,
        version=metadata.get("ISTIO_VERSION") or "",
    )


def _envoy_version(node: Any) -> tuple[int, int] | None:
    """Returns the first two numbers of the version of a node's Envoy, None where it does not say it."""
    said = node.user_agent_build_version.version
    return (said.major_number, said.minor_number) if said.major_number else None


def plain(value: Any) -> Any:
    """Returns a google.protobuf.Value as plain data; whole numbers are integers."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "struct_value":
            return {key: plain(inner) for key, inner in value.struct_value.fields.items()}
        case "list_value":
            return [plain(inner) for inner in value.list_value.values]
    return None


@functools.lru_cache(64)
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Returns an equal set that is there already: builds are few, and list some hundred names."""
    return names


def _check(metadata: Mapping[str, Any]) -> None:
    for key in _TEXTS:
        if not isinstance(metadata.get(key), str | None):
            raise NodeError(f"node metadata {key}: text is expected")
    for key in _MAPS:
        value = metadata.get(key)
        if value is not None and not (isinstance(value, dict) and all(isinstance(v, str) for v in value.values())):
            raise NodeError(f"node metadata {key}: a map of text is expected")


def _addresses(listed: str, own: str) -> tuple[str, ...]:
    """Returns the addresses of the metadata where all of them are valid, else that of the node's id. `NodeError` is raised where that is not
    valid either."""
    addresses = tuple(part.strip() for part in listed.split(",")) if listed else ()
    if addresses and _are_addresses(addresses):
        return addresses
    if _are_addresses((own,)):
        return (own,)
    raise NodeError("no valid IP address in the service node id or metadata")


def _are_addresses(texts: Iterable[str]) -> bool:
    try:
        for text in texts:
            ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _first_label(dns_domain: str) -> str:
    label, dot, _ = dns_domain.partition(".")
    return label if dot else ""
