"""What a proxy is to have, in the form of Envoy's own /config_dump, so that the two can be compared.

https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump.proto
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from envoy.config.route.v3 import route_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from google.protobuf import any_pb2, json_format

from pilot.debug.page import Later, Query, asked_connection
from pilot.debug.plain_json import LazyFields
from pilot.debug.slices import all_of
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
FEW = 100
"""Parts of a resource of which more are shown one by one."""
_OF_MANY: dict[str, tuple[Any, str]] = {BY_SHORT_NAME["rds"]: (route_pb2.RouteConfiguration, "virtual_hosts")}


async def config_dump(sources: Sources, query: Query) -> Later:
    """Returns all that proxyID watches, endpoints only with include_eds; with `types` (cds,lds …) those resources alone, as a list; so it is
    for a ztunnel, whose workloads and services they are."""
    connection = asked_connection(sources, query)
    if types := query.get("types") or ("wds" if connection.proxy.type is NodeType.ZTUNNEL else ""):
        return typed_dump(sources, connection, types.split(","))
    resources = dict(await all_of((name, resources_of(sources, connection, BY_SHORT_NAME[name])) for name in TYPES))
    version, with_endpoints = sources.fleet.version, "include_eds" in query
    return Later(lambda: build_dump(resources, version, with_endpoints))


def only(short_type: str) -> Callable[[Sources, Query], Any]:
    """Returns the page of one type, such as edsz."""

    def page(sources: Sources, query: Query) -> Any:
        return typed_dump(sources, asked_connection(sources, query), [short_type])

    return page


def typed_dump(sources: Sources, connection: ConnectedProxy, short_types: Iterable[str]) -> Later:
    """Returns the resources of some types, one list, without Envoy's envelopes. A type that there is not has none."""
    urls = [url for name in short_types if (url := BY_SHORT_NAME.get(name.lower())) is not None]
    found = [resource for url in dict.fromkeys(urls) for resource in resources_of(sources, connection, url)]
    return Later(lambda: {"configs": (_unwrapped(shown(resource)) for resource in found)} if found else {})


def resources_of(sources: Sources, connection: ConnectedProxy, type_url: str) -> list[Resource]:
    """Returns what the proxy is to have of a type now; nothing of a type that it does not watch."""
    watch = connection.subscriptions.get(type_url)
    if watch is None:
        return []
    found: dict[str, Resource] = {}
    wildcard = "*" in watch.names
    for group in proxy_plan(sources.db, connection.proxy_key).groups_of(type_url, asked_names(watch), wildcard) or ():
        for resource in group_resources(sources.db, group):
            found.setdefault(resource.name, resource)
    if wildcard or find_type(type_url).has_aliases:
        return list(found.values())
    return [resource for name, resource in found.items() if name in watch.names]


def asked_names(watch: WatchedType) -> frozenset[str]:
    """Returns the resources that a proxy names."""
    return frozenset(watch.names) - {"*"}


def group_resources(db: Mesh, group: Group) -> Collection[Resource]:
    """Returns the resources of a group; where it fails, those that it had before."""
    try:
        found: Collection[Resource] = group.fn(db, *group.args).values()
    except (
        Exception
    ):  # a bug of a derivation, which was reported where it happened; proxies keep the last good value too
        node = db.find_node(group.fn, *group.args)
        return node.value.values() if node is not None and node.value is not UNSET else ()
    return found


def build_dump(resources: dict[str, list[Resource]], version: str, with_endpoints: bool) -> Plain:
    """Returns the envelopes of the admin API around resources by short type name; what is in them can be read once."""
    versioned = {"versionInfo": version}

    def each(short_type: str, show: Callable[[Resource], Plain | LazyFields]) -> Iterator[Plain | LazyFields] | None:
        """Returns the entries of a type, made one by one as they are written; None where there are none."""
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
    """Returns a resource with the version that it is of."""
    return LazyFields(iter([("versionInfo", version), (name, resource)]))


def _unwrapped(resource: Plain | LazyFields) -> Plain | LazyFields:
    """Returns the filter that an extension configuration names, as istiod's pages show it; any other resource as it is."""
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
    """Returns a resource as canonical proto JSON with its "@type". Private keys are redacted; a message of a type that this process does
    not know is its bytes in base64."""
    message = any_pb2.Any.FromString(resource.any)
    if message.type_url == BY_SHORT_NAME["sds"]:
        message.Pack(_redacted(message.value))
    try:
        return json_format.MessageToDict(message)
    except TypeError:
        return {"@type": message.type_url, "value": base64.b64encode(message.value).decode()}


def shown(resource: Resource) -> Plain | LazyFields:
    """Returns the same, for JSON that is written as it is made: what a large resource has many of is one by one."""
    packed = any_pb2.Any.FromString(resource.any)
    kind, name = _OF_MANY.get(packed.type_url, (None, ""))
    message = kind.FromString(packed.value) if kind is not None else None
    parts = list(getattr(message, name)) if message is not None else []
    if message is None or len(parts) <= FEW:
        return plain(resource)
    message.ClearField(name)
    rest = {"@type": packed.type_url} | json_format.MessageToDict(message)
    return LazyFields(
        iter(
            [*rest.items(), (message.DESCRIPTOR.fields_by_name[name].json_name, map(json_format.MessageToDict, parts))]
        )
    )


def _redacted(secret: bytes) -> secret_pb2.Secret:
    """Returns a secret as it may be shown: certificates, and "[redacted]" where there is a key of any kind."""
    shown = secret_pb2.Secret.FromString(secret)
    if shown.HasField("tls_certificate"):
        shown.tls_certificate.ClearField("private_key_provider")
        shown.tls_certificate.ClearField("pkcs12")
        shown.tls_certificate.ClearField("password")
        shown.tls_certificate.private_key.Clear()
        shown.tls_certificate.private_key.inline_bytes = b"[redacted]"
    shown.ClearField("session_ticket_keys")
    shown.ClearField("generic_secret")
    return shown
