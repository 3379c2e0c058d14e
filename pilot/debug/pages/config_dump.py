"""The configuration of a proxy, in the format of Envoy's /config_dump so that the two can be compared.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump.proto
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from envoy.config.route.v3 import route_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import any_pb2, json_format

from pilot.debug.page import Later, Query, requested_connection
from pilot.debug.plain_json import LazyFields
from pilot.debug.slices import collect_all
from pilot.debug.sources import ConnectedProxy, Sources, WatchedType
from pilot.derive import UNSET
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.plans.resource_group import Group
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import BY_SHORT_NAME, find_type
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.tables.database import Mesh

TYPES = ("cds", "eds", "lds", "rds", "sds", "ecds")
_ADMIN = "type.googleapis.com/envoy.admin.v3."
Plain = dict[str, Any]
STREAMED_PARTS = 100
"""Maximum number of parts of a resource that is rendered as a whole. Larger resources are rendered part by part."""
_STREAMED_FIELDS: dict[str, tuple[Any, str]] = {BY_SHORT_NAME["rds"]: (route_pb2.RouteConfiguration, "virtual_hosts")}


async def config_dump(sources: Sources, query: Query) -> Later:
    """Return the resources that the proxy subscribes to. Endpoints are included if the query contains include_eds.

    If the query contains `types` (such as cds,lds), return only the resources of these types, as a list. The workloads
    and services of a ztunnel are a list too.
    """
    connection = requested_connection(sources, query)
    if types := query.get("types") or ("wds" if connection.proxy.type is NodeType.ZTUNNEL else ""):
        return typed_dump(sources, connection, types.split(","))
    resources = dict(
        await collect_all((name, resources_of(sources, connection, BY_SHORT_NAME[name])) for name in TYPES)
    )
    version, with_endpoints = sources.fleet.version, "include_eds" in query
    return Later(lambda: build_dump(resources, version, with_endpoints))


def only(short_type: str) -> Callable[[Sources, Query], Any]:
    """Return a page that shows one resource type, such as edsz."""

    def page(sources: Sources, query: Query) -> Any:
        return typed_dump(sources, requested_connection(sources, query), [short_type])

    return page


def typed_dump(sources: Sources, connection: ConnectedProxy, short_types: Iterable[str]) -> Later:
    """Return the resources of some types in one list, without Envoy's admin messages. Unknown types are ignored."""
    urls = [url for name in short_types if (url := BY_SHORT_NAME.get(name.lower())) is not None]
    resources = [resource for url in dict.fromkeys(urls) for resource in resources_of(sources, connection, url)]
    return Later(lambda: {"configs": (_unwrapped(shown(resource)) for resource in resources)} if resources else {})


def resources_of(sources: Sources, connection: ConnectedProxy, type_url: str) -> list[Resource]:
    """Return a proxy's current resources of a type, or an empty list if the proxy does not subscribe to the type."""
    watch = connection.subscriptions.get(type_url)
    if watch is None:
        return []
    by_name: dict[str, Resource] = {}
    wildcard = "*" in watch.names
    for group in (
        proxy_plan(sources.db, connection.proxy_key).groups_of(type_url, requested_names(watch), wildcard) or ()
    ):
        for resource in group_resources(sources.db, group):
            by_name.setdefault(resource.name, resource)
    if wildcard or find_type(type_url).has_aliases:
        return list(by_name.values())
    return [resource for name, resource in by_name.items() if name in watch.names]


def requested_names(watch: WatchedType) -> frozenset[str]:
    """Return the resource names that a proxy subscribes to explicitly."""
    return frozenset(watch.names) - {"*"}


def group_resources(db: Mesh, group: Group) -> Collection[Resource]:
    """Return the resources of a group. If their computation fails, return the last valid resources."""
    try:
        resources: Collection[Resource] = group.fn(db, *group.args).values()
    except Exception:  # a bug in a derivation, logged where it occurs; proxies also keep the last good value
        node = db.find_node(group.fn, *group.args)
        return node.value.values() if node is not None and node.value is not UNSET else ()
    return resources


def build_dump(resources: dict[str, list[Resource]], version: str, with_endpoints: bool) -> Plain:
    """Return a dump in which the resources are wrapped in the messages of Envoy's admin API.

    `resources` is keyed by short type name. The content of the dump can be iterated only once.
    """
    versioned = {"versionInfo": version}

    def each(short_type: str, show: Callable[[Resource], Plain | LazyFields]) -> Iterator[Plain | LazyFields] | None:
        """Return the entries of a type, which are rendered lazily, or None if there are none."""
        return map(show, resources[short_type]) if resources[short_type] else None

    endpoints = _dump(
        "Endpoints", dynamicEndpointConfigs=each("eds", lambda r: versioned | {"endpointConfig": plain(r)})
    )
    listeners = each("lds", lambda r: {"name": r.name, "activeState": versioned | {"listener": plain(r)}})
    configs = [
        _dump("Bootstrap"),
        _dump("Clusters", versionInfo=version, dynamicActiveClusters=each("cds", lambda r: {"cluster": plain(r)})),
        *([endpoints] if with_endpoints else []),
        _dump("Listeners", versionInfo=version, dynamicListeners=listeners),
        _dump("ScopedRoutes"),
        _dump("Routes", dynamicRouteConfigs=each("rds", lambda r: _entry(version, "routeConfig", shown(r)))),
        _dump(
            "Secrets", dynamicActiveSecrets=each("sds", lambda r: {"name": r.name} | versioned | {"secret": plain(r)})
        ),
        _dump("Ecds", ecdsFilters=each("ecds", lambda r: versioned | {"ecdsFilter": _unwrapped(plain(r))})),
    ]
    return {"configs": configs}


def _entry(version: str, name: str, resource: Plain | LazyFields) -> LazyFields:
    """Return an entry that contains the version and a resource."""
    return LazyFields(iter([("versionInfo", version), (name, resource)]))


def _unwrapped(resource: Plain | LazyFields) -> Plain | LazyFields:
    """Return the filter in an extension configuration, as on istiod's pages. Return any other resource unchanged."""
    if isinstance(resource, LazyFields):
        return resource
    return (
        resource["typedConfig"]
        if str(resource.get("@type", "")).endswith(".TypedExtensionConfig") and "typedConfig" in resource
        else resource
    )


def _dump(kind: str, **fields: Any) -> Plain:
    return {"@type": f"{_ADMIN}{kind}ConfigDump"} | {name: value for name, value in fields.items() if value}


def plain(resource: Resource) -> Plain:
    """Return a resource as canonical proto JSON with its "@type".

    Private keys are redacted. A message of an unknown type is base64-encoded.
    """
    message = any_pb2.Any.FromString(resource.any)
    if message.type_url == BY_SHORT_NAME["sds"]:
        message.Pack(_redacted(message.value))
    try:
        return json_format.MessageToDict(message)
    except TypeError:
        return {"@type": message.type_url, "value": base64.b64encode(message.value).decode()}


def shown(resource: Resource) -> Plain | LazyFields:
    """Return a resource as `plain` does, but render the repeated parts of a large resource lazily."""
    packed = any_pb2.Any.FromString(resource.any)
    kind, name = _STREAMED_FIELDS.get(packed.type_url, (None, ""))
    message = kind.FromString(packed.value) if kind is not None else None
    parts = list(getattr(message, name)) if message is not None else []
    if message is None or len(parts) <= STREAMED_PARTS:
        return plain(resource)
    message.ClearField(name)
    rest = {"@type": packed.type_url} | json_format.MessageToDict(message)
    return LazyFields(
        iter(
            [*rest.items(), (message.DESCRIPTOR.fields_by_name[name].json_name, map(json_format.MessageToDict, parts))]
        )
    )


def _redacted(secret: bytes) -> secret_pb2.Secret:
    """Return a secret that contains its certificates. All keys are removed or replaced with "[redacted]"."""
    redacted = secret_pb2.Secret.FromString(secret)
    if redacted.HasField("tls_certificate"):
        redacted.tls_certificate.ClearField("private_key_provider")
        redacted.tls_certificate.ClearField("pkcs12")
        redacted.tls_certificate.ClearField("password")
        redacted.tls_certificate.private_key.Clear()
        redacted.tls_certificate.private_key.inline_bytes = b"[redacted]"
    redacted.ClearField("session_ticket_keys")
    redacted.ClearField("generic_secret")
    return redacted
