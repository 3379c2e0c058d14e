"""Converts the node in a stream's first request into a Proxy."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import NodeError, NodeType, Proxy

MAX_ADDRESSES = 256
"""Maximum number of addresses of a proxy. A Pod has two, and a node with many interfaces a few dozen."""
MAX_VALUES = 4096
"""Maximum number of values in the metadata of a node, and of its extensions. Large ones have a few hundred."""
_NODE_TYPES = tuple(str(node_type) for node_type in NodeType)
_MAP_FIELDS = ("LABELS", "STATIC_LABELS", "ANNOTATIONS", "PLATFORM_METADATA")
# Agents send all of these as strings, including booleans and lists:
# https://istio.io/latest/docs/reference/commands/pilot-agent/#envvars
_STRING_FIELDS = (
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
    """Return the proxy that an envoy.config.core.v3.Node describes. The node's ID has the form `type~ip~id~dns domain`.

    `aliases` maps aliases to cluster names. Raise NodeError if the node is invalid.
    """
    parts = node.id.split("~")
    if len(parts) != 4:
        raise NodeError(f"missing parts in the service node {node.id!r}: expected type~ip~id~domain")
    node_type, ip, proxy_id, dns_domain = parts
    if node_type not in _NODE_TYPES:
        raise NodeError(f"invalid node type (valid types: {', '.join(_NODE_TYPES)}) in the service node {node.id!r}")
    metadata = _MetadataReader().read_fields(node.metadata)
    _check_metadata(metadata)
    if metadata.get("CLUSTER_ID") in aliases:
        metadata["CLUSTER_ID"] = aliases[metadata["CLUSTER_ID"]]
    return Proxy(
        type=NodeType(node_type),
        id=proxy_id,
        ips=_addresses(metadata.get("INSTANCE_IPS") or "", ip),
        dns_domain=dns_domain,
        namespace=metadata.get("NAMESPACE") or _first_label(dns_domain),
        metadata=metadata,
        locality=Locality(node.locality.region, node.locality.zone, node.locality.sub_zone),
        extensions=_extensions(node) if node.extensions else None,
        envoy=_envoy_version(node),
        node_cluster=node.cluster,
        version=metadata.get("ISTIO_VERSION") or "",
    )


def _envoy_version(node: Any) -> tuple[int, int] | None:
    """Return the major and minor version of a node's Envoy, or None if the version is unknown."""
    version = node.user_agent_build_version.version
    return (version.major_number, version.minor_number) if version.major_number else None


class _MetadataReader:
    """Converts metadata to plain data. Raises NodeError if it has more than `MAX_VALUES` values."""

    def __init__(self) -> None:
        self._count = 0

    def read_fields(self, struct: Any) -> dict[str, Any]:
        """Return a google.protobuf.Struct as plain data. Whole numbers become integers."""
        self._add(len(struct.fields))
        return {key: self._read(value) for key, value in struct.fields.items()}

    def _read(self, value: Any) -> Any:
        match value.WhichOneof("kind"):
            case "string_value":
                return value.string_value
            case "bool_value":
                return value.bool_value
            case "number_value":
                number = value.number_value
                return int(number) if number.is_integer() else number
            case "struct_value":
                return self.read_fields(value.struct_value)
            case "list_value":
                self._add(len(value.list_value.values))
                return [self._read(inner) for inner in value.list_value.values]
        return None

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            raise NodeError(f"the metadata of the service node has more than {MAX_VALUES} values")


def _extensions(node: Any) -> frozenset[str]:
    names = frozenset(text for extension in node.extensions for text in (extension.name, *extension.type_urls))
    if len(names) > MAX_VALUES:
        raise NodeError(f"the service node has {len(names)} extensions; at most {MAX_VALUES} are allowed")
    return _intern(names)


@functools.lru_cache(64)
def _intern(names: frozenset[str]) -> frozenset[str]:
    """Return an interned set. Only a few builds of Envoy are in use, and each lists about a hundred names."""
    return names


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for key in _STRING_FIELDS:
        if not isinstance(metadata.get(key), str | None):
            raise NodeError(f"node metadata {key} must be a string")
    for key in _MAP_FIELDS:
        value = metadata.get(key)
        if value is not None and not (isinstance(value, dict) and all(isinstance(v, str) for v in value.values())):
            raise NodeError(f"node metadata {key} must be a map of strings")


def _addresses(instance_ips: str, node_ip: str) -> tuple[str, ...]:
    """Return the addresses in the metadata if all of them are valid. Otherwise return the address in the node ID.

    Raise NodeError if the address in the node ID is invalid too, or if there are too many addresses.
    """
    if instance_ips.count(",") >= MAX_ADDRESSES:
        raise NodeError(f"the service node has more than {MAX_ADDRESSES} IP addresses")
    addresses = tuple(part.strip() for part in instance_ips.split(",")) if instance_ips else ()
    if addresses and _are_addresses(addresses):
        return addresses
    if _are_addresses((node_ip,)):
        return (node_ip,)
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
