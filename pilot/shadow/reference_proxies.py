"""The proxies that are connected to the reference, and the resources that it sends to each of them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from pilot.lib.node_cluster import node_cluster
from pilot.lib.xds_types import ADDRESS, BY_SHORT_NAME, LISTENER, WORKLOAD, short_name
from pilot.mesh.model.proxy import NodeError, NodeType, Proxy
from pilot.shadow.reference_pages import DebugClosedError, PageError, ReferenceFault, ReferencePages
from pilot.xds.node import parse_node

COMPARED = ("cds", "eds", "lds", "rds", "sds", "ecds", "nds", "wds", "wads")
"""Short names of the types that are compared."""
UNREADABLE = frozenset({"wds"})
"""Types that istiod's config_dump does not show."""
_WAYPOINT_CONTROLLER = "istio.io-mesh-controller"

RawResources = dict[str, dict[str, bytes]]
"""Resources as JSON, by the short name of their type and by name."""


class ReferenceProxy(NamedTuple):
    """A proxy that is connected to the reference. `watches` are the names that it subscribes to, by type URL."""

    connection_id: str
    proxy: Proxy
    watches: Mapping[str, frozenset[str]]

    @property
    def node_id(self) -> str:
        return f"{self.proxy.type}~{self.proxy.ips[0]}~{self.proxy.id}~{self.proxy.dns_domain}"

    @property
    def short_types(self) -> list[str]:
        """The short names of the compared types that the proxy subscribes to."""
        names = {short_name(url) for url in self.watches}
        return [name for name in COMPARED if name in names]


class _Client(msgspec.Struct, rename="camel"):
    connection_id: str
    address: str = ""
    metadata: dict[str, Any] | None = None
    locality: dict[str, str] | None = None
    watches: dict[str, list[str]] | None = None


class _Clients(msgspec.Struct):
    clients: list[_Client] | None = None


class _SyncStatus(msgspec.Struct):
    proxy: str = ""
    cluster_id: str = ""
    proxy_type: str = ""


class _Dump(msgspec.Struct):
    configs: list[msgspec.Raw] | None = None


class _Config(msgspec.Struct, rename={"cluster_name": "clusterName"}):
    """The name of a resource, which is in a different field in each type."""

    name: str = ""
    cluster_name: str = ""
    namespace: str = ""
    config: dict[str, Any] | None = None


class _Addresses(msgspec.Struct):
    workloads: list[dict[str, Any]] | None = None
    services: list[dict[str, Any]] | None = None


class _Typed(msgspec.Struct, rename={"type_url": "@type"}):
    type_url: str = ""


class ConnectedProxies(NamedTuple):
    """The proxies of the reference, and the connections whose node this control plane would reject, with the reason."""

    proxies: list[ReferenceProxy]
    rejected: dict[str, str]


async def read_proxies(pages: ReferencePages) -> ConnectedProxies:
    """Return the connected proxies with their nodes.

    Raise ReferenceFault if the pages are not those of istiod, or DebugClosedError if there are none.
    """
    adsz, syncz = await asyncio.gather(pages.get("adsz"), pages.get("syncz"))
    if not adsz:
        raise DebugClosedError(f"{pages.address}/debug/adsz does not exist: the reference serves no debug pages")
    try:
        clients = msgspec.json.decode(adsz, type=_Clients).clients or []
        statuses = msgspec.json.decode(syncz or b"[]", type=list[_SyncStatus])
    except msgspec.MsgspecError as error:
        raise ReferenceFault(f"{pages.address}/debug/adsz is not the page of an istiod: {error}") from error
    types = {status.proxy: status.proxy_type for status in statuses}
    connected = ConnectedProxies([], {})
    for client in clients:
        proxy_id = client.connection_id.rpartition("-")[0]
        try:
            proxy = parse_node(_node(client, proxy_id, types.get(proxy_id, "")))
        except (NodeError, json_format.ParseError) as error:
            connected.rejected[client.connection_id] = str(error)
            continue
        watches = {url: frozenset(names) for url, names in (client.watches or {}).items()}
        connected.proxies.append(ReferenceProxy(client.connection_id, proxy, watches))
    return connected


def _node(client: _Client, proxy_id: str, node_type: str) -> base_pb2.Node:
    """Return the node of a proxy. The pages of istiod lack the list of Envoy's extensions and its version."""
    metadata = client.metadata or {}
    address = str(metadata.get("INSTANCE_IPS", "")).partition(",")[0] or client.address.rpartition(":")[0].strip("[]")
    namespace = str(metadata.get("NAMESPACE") or proxy_id.rpartition(".")[2])
    node = base_pb2.Node(id=f"{node_type or _guess_type(client)}~{address}~{proxy_id}~{namespace}.svc.cluster.local")
    json_format.ParseDict(metadata, node.metadata)
    node.cluster = _cluster(metadata, namespace)
    locality = client.locality or {}
    node.locality.region, node.locality.zone = locality.get("region", ""), locality.get("zone", "")
    node.locality.sub_zone = locality.get("sub_zone", locality.get("subZone", ""))
    return node


def _cluster(metadata: Mapping[str, Any], namespace: str) -> str:
    """Return the cluster of a node, which agents derive from its metadata."""
    config, labels = metadata.get("PROXY_CONFIG") or {}, metadata.get("LABELS") or {}
    naming = config.get("tracingServiceName")
    workload = str(metadata.get("WORKLOAD_NAME") or "")
    return node_cluster(labels, namespace, workload, naming, config.get("serviceCluster", "") if naming is None else "")


def _guess_type(client: _Client) -> NodeType:
    """Return the type of a proxy of an istiod whose page syncz lacks it."""
    watches, labels = client.watches or {}, (client.metadata or {}).get("LABELS") or {}
    if not watches.keys().isdisjoint((ADDRESS, WORKLOAD)) and LISTENER not in watches:
        return NodeType.ZTUNNEL
    if labels.get("gateway.istio.io/managed") == _WAYPOINT_CONTROLLER:
        return NodeType.WAYPOINT
    return NodeType.SIDECAR if "virtualOutbound" in watches.get(LISTENER, ()) else NodeType.ROUTER


async def read_resources(pages: ReferencePages, one: ReferenceProxy) -> RawResources | None:
    """Return the resources of a proxy, or None if it is not connected any more.

    If the page fails, the types are requested one by one. A type whose page fails is omitted.
    """
    short_types = [name for name in one.short_types if name not in UNREADABLE]
    try:
        return await _read_types(pages, one, short_types) if short_types else {}
    except PageError:
        resources: RawResources = {}
        for name in short_types:
            with contextlib.suppress(PageError):
                resources |= await _read_types(pages, one, [name]) or {}
        return resources


async def _read_types(pages: ReferencePages, one: ReferenceProxy, short_types: list[str]) -> RawResources | None:
    """Return the resources of some types, or None if the proxy is not connected any more."""
    body = await pages.get("config_dump", {"proxyID": one.connection_id, "types": ",".join(short_types)})
    if not body:
        return None
    resources: RawResources = {name: {} for name in short_types}
    for raw in msgspec.json.decode(body, type=_Dump).configs or ():
        data = bytes(raw)
        url = msgspec.json.decode(data, type=_Typed).type_url
        kind = short_name(url) if url in BY_SHORT_NAME.values() else "ecds"
        resources.setdefault(kind, {})[resource_name(kind, data)] = data
    return resources


async def read_addresses(pages: ReferencePages) -> dict[str, bytes] | None:
    """Return the workloads and services that ztunnels receive, or None if the reference lacks the page.

    Addresses on the page are the bytes of their textual form.
    """
    try:
        page = msgspec.json.decode(await pages.get("ambientz") or b"{}", type=_Addresses)
    except (PageError, msgspec.MsgspecError):
        return None
    if page.workloads is None and page.services is None:
        return None
    workloads = {str(plain.get("uid", "")): {"workload": plain} for plain in page.workloads or ()}
    services = {
        f"{plain.get('namespace', '')}/{plain.get('hostname', '')}": {"service": plain} for plain in page.services or ()
    }
    return {
        name: msgspec.json.encode({"@type": ADDRESS, **_with_raw_addresses(plain)})
        for name, plain in (workloads | services).items()
    }


def _with_raw_addresses(value: Any) -> Any:
    """Return plain data in which the addresses have the bytes that ztunnels receive."""
    if isinstance(value, list):
        return [_with_raw_addresses(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _with_raw_addresses(field) for name, field in value.items()}
    if isinstance(text := fields.get("address"), str):
        fields["address"] = _raw_address(text)
    if isinstance(texts := fields.get("addresses"), list):
        fields["addresses"] = [_raw_address(text) if isinstance(text, str) else text for text in texts]
    return fields


def _raw_address(encoded: str) -> str:
    text = base64.b64decode(encoded).decode()
    return base64.b64encode(ipaddress.ip_address(text).packed).decode()


def resource_name(kind: str, data: bytes) -> str:
    """Return the name of a resource in JSON."""
    config = msgspec.json.decode(data, type=_Config)
    if kind == "nds":
        return ""
    if kind == "wads":
        return f"{config.namespace}/{config.name}"
    if kind == "ecds" and config.config is not None:
        return str(config.config.get("name", config.name))
    return config.cluster_name or config.name


def unique(proxies: Iterable[ReferenceProxy]) -> list[ReferenceProxy]:
    """Return one connection of each proxy: a proxy that reconnects is listed twice for a moment."""
    return list({one.node_id: one for one in proxies}.values())
