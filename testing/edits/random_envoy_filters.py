"""Random EnvoyFilters, valid and invalid, on a small mesh of two namespaces and a gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.object import ObjectKey
from pilot.envoy.plans.patch_problems import envoy_filter_problems
from pilot.lib.xds_types import EXTENSION
from testing.edits.mesh_edits import Snapshot, snapshot
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, proxy, rows_of

T = TypeVar("T")
PROXIES = {
    "a": proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}, LINE="one"),
    "b": proxy("sidecar", "api-0", "b", "10.1.0.2", {"app": "api"}),
    "istio-system": proxy("router", "edge-0", "istio-system", "10.1.0.9", {"istio": "edge"}),
}
"""One proxy per namespace. The last namespace is the root namespace."""
PORTS = "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 90}]"
API = "api.b.svc.cluster.local"
TO_API = f"route: [{{destination: {{host: {API}, port: {{number: 80}}}}}}]"
MESH: tuple[Plain, ...] = (
    *(
        o
        for name, namespace, ip, pod_ip in (
            ("web", "a", "10.96.0.1", "10.1.0.1"),
            ("api", "b", "10.96.0.2", "10.1.0.2"),
        )
        for o in (
            make(
                "Service",
                name,
                f"{{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: {PORTS}}}",
                namespace,
            ),
            pod(f"{name}-0", pod_ip, namespace, labels=f"{{app: {name}}}"),
            endpoint_slice(
                name,
                at(pod_ip, f"{name}-0"),
                namespace=namespace,
                ports="[{name: http, port: 8080}, {name: tcp, port: 90}]",
            ),
        )
    ),
    make(
        "Gateway",
        "gw",
        '{selector: {istio: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}',
        "istio-system",
    ),
    make(
        "VirtualService",
        "api",
        f"{{hosts: [{API}], gateways: [istio-system/gw, mesh], http: [{{name: main, {TO_API}}}]}}",
        "b",
    ),
)
SUBSCRIPTIONS = {EXTENSION: frozenset(("one", "two"))}


# -- values ----------------------------------------------------------------------------------------------------------------

EXTENSIONS = "type.googleapis.com/envoy.extensions"
CONFIGS: tuple[Plain, ...] = (
    {"@type": f"{EXTENSIONS}.filters.http.fault.v3.HTTPFault", "max_active_faults": 3},
    {"@type": f"{EXTENSIONS}.filters.http.buffer.v3.Buffer", "maxRequestBytes": 9},
    {"@type": f"{EXTENSIONS}.filters.http.buffer.v3.Buffer", "max_request_bytes": 0},
    {"@type": f"{EXTENSIONS}.filters.network.tcp_proxy.v3.TcpProxy", "idle_timeout": "7s"},
    {
        "@type": f"{EXTENSIONS}.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "x",
        "cluster": "PassthroughCluster",
    },
    {
        "@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "xff_num_trusted_hops": 2,
    },
    {"@type": f"{EXTENSIONS}.filters.listener.tls_inspector.v3.TlsInspector", "enable_ja3_fingerprinting": True},
    {
        "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
        "type_url": f"{EXTENSIONS}.filters.http.fault.v3.HTTPFault",
        "value": {"max_active_faults": 4},
    },
    {"@type": "type.googleapis.com/no.such.Type"},
    {},
)
NAMES = (
    "x",
    "one",
    "two",
    "",
    "envoy.filters.network.http_connection_manager",
    "envoy.filters.network.tcp_proxy",
    "envoy.filters.http.router",
    "envoy.filters.http.cors",
    "envoy.filters.listener.tls_inspector",
    "virtualInbound",
    "virtualOutbound",
    "80",
    "http.80",
    "main",
    "outbound|80||api.b.svc.cluster.local",
    "api.b.svc.cluster.local:80",
    "0.0.0.0_80",
)
ROUTE: Plain = {"name": "x", "match": {"prefix": "/"}, "direct_response": {"status": 204}}
FIELDS: Mapping[str, tuple[Any, ...]] = {
    "name": NAMES,
    "typed_config": CONFIGS,
    "connect_timeout": ("1s", "0s", "0.5s", 3),
    "type": ("STATIC", "EDS", "NONE"),
    "lb_policy": ("RANDOM", "RING_HASH"),
    "per_connection_buffer_limit_bytes": (1, "x"),
    "transport_socket": (
        {"name": "envoy.transport_sockets.raw_buffer"},
        {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {"@type": f"{EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "x"},
        },
    ),
    "address": ({"socket_address": {"address": "127.0.0.1", "port_value": 999}},),
    "filters": ([], [{"name": "x", "typed_config": CONFIGS[4]}]),
    "filter_chains": ([{"filters": [{"name": "x", "typed_config": CONFIGS[4]}]}],),
    "filter_chain_match": ({"destination_port": 8080},),
    "tcp_backlog_size": (5,),
    "domains": (["a.test"], [], ["*"]),
    "routes": ([ROUTE], [{"name": "x"}]),
    "request_headers_to_remove": (["x-a"],),
    "max_direct_response_body_size_bytes": (7,),
    "match": ({"prefix": "/x"}, {}),
    "direct_response": ({"status": 204}, {"status": 9}),
    "route": ({"timeout": "3s"}, {"cluster": "x"}),
    "nobody_knows": (1,),
}
FIELD_NAMES = {
    "CLUSTER": (
        "name",
        "connect_timeout",
        "type",
        "lb_policy",
        "per_connection_buffer_limit_bytes",
        "transport_socket",
    ),
    "LISTENER": ("name", "address", "filter_chains", "tcp_backlog_size", "per_connection_buffer_limit_bytes"),
    "FILTER_CHAIN": ("name", "filters", "filter_chain_match", "transport_socket"),
    "ROUTE_CONFIGURATION": ("name", "request_headers_to_remove", "max_direct_response_body_size_bytes"),
    "VIRTUAL_HOST": ("name", "domains", "routes", "request_headers_to_remove"),
    "HTTP_ROUTE": ("name", "match", "direct_response", "route"),
    **dict.fromkeys(
        ("LISTENER_FILTER", "NETWORK_FILTER", "HTTP_FILTER", "EXTENSION_CONFIG", "BOOTSTRAP"), ("name", "typed_config")
    ),
}
OPERATIONS = (
    "MERGE",
    "MERGE_AND_REPLACE_LIST",
    "ADD",
    "REMOVE",
    "INSERT_BEFORE",
    "INSERT_AFTER",
    "INSERT_FIRST",
    "REPLACE",
)


def patch_value(draw: Callable[[st.SearchStrategy[Any]], Any], apply_to: str) -> Plain:
    """Draw a value for a type, sometimes with an unknown field."""
    valid_names = FIELD_NAMES[apply_to]
    names = draw(
        st.lists(st.sampled_from((*valid_names, *valid_names, "nobody_knows")), min_size=1, max_size=4, unique=True)
    )
    return {name: draw(st.sampled_from(FIELDS[name])) for name in names}


@st.composite
def patches(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Plain:
    """Strategy for patches."""
    apply_to, operation = draw(st.sampled_from(tuple(FIELD_NAMES))), draw(st.sampled_from(OPERATIONS))
    match: Plain = {"context": draw(st.sampled_from(("ANY", "ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY")))}
    if draw(st.integers(0, 5)) == 0:
        match["proxy"] = draw(
            st.sampled_from(({"metadata": {"LINE": "one"}}, {"proxyVersion": r"^1\.32"}, {"proxyVersion": "^9"}))
        )
    if draw(st.booleans()):
        match |= draw(_matches(apply_to))
    patch_body = {"operation": operation} | ({"value": patch_value(draw, apply_to)} if operation != "REMOVE" else {})
    return {"applyTo": apply_to, "match": match, "patch": patch_body}


def _matches(apply_to: str) -> st.SearchStrategy[Plain]:
    port = st.sampled_from(({}, {"portNumber": 80}, {"portNumber": 8080}))
    name = st.sampled_from(({}, *({"name": name} for name in NAMES)))
    if apply_to == "CLUSTER":
        return st.builds(lambda one, two: {"cluster": {**one, **two}}, port, name)
    if apply_to in ("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE"):
        host = st.sampled_from(
            ({}, {"vhost": {"name": "api.b.svc.cluster.local:80"}}, {"vhost": {"route": {"action": "ROUTE"}}})
        )
        return st.builds(lambda one, two, three: {"routeConfiguration": {**one, **two, **three}}, port, name, host)
    manager = "envoy.filters.network.http_connection_manager"
    filters: list[dict[str, Any]] = [
        {},
        {"filterChain": {"filter": {"name": manager}}},
        {"filterChain": {"filter": {"name": "envoy.filters.network.tcp_proxy"}}},
    ]
    if apply_to == "HTTP_FILTER":
        filters[2] = {"filterChain": {"filter": {"name": manager, "subFilter": {"name": "envoy.filters.http.cors"}}}}
    if apply_to == "LISTENER_FILTER":
        filters.append({"listenerFilter": "envoy.filters.listener.tls_inspector"})
    return st.builds(lambda one, two: {"listener": {**one, **two}}, port, st.sampled_from(filters))


@st.composite
def filters(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Plain:
    """Strategy for EnvoyFilters. They share a few names, so one may replace another; one without patches deletes it."""
    namespace, name = draw(st.sampled_from(tuple(PROXIES))), draw(st.sampled_from(("one", "two")))
    spec: Plain = {
        "configPatches": draw(st.lists(patches(), max_size=3)),
        "priority": draw(st.sampled_from((0, 0, -1, 5))),
    }
    if draw(st.integers(0, 3)) == 0:
        spec["workloadSelector"] = {"labels": draw(st.sampled_from(({"app": "web"}, {"app": "api"})))}
    return make("EnvoyFilter", name, "{}", namespace) | {"spec": spec}


# -- observations ----------------------------------------------------------------------------------------------------------


class Observation(NamedTuple):
    """The resources of every proxy, by namespace, and the problems of every EnvoyFilter."""

    resources: Snapshot
    problems: dict[ObjectKey, tuple[str, ...]]


def start_mesh() -> tuple[World, dict[str, str]]:
    """Return the mesh, and the node ids of its proxies by namespace."""
    world = World()
    world.subscriptions = SUBSCRIPTIONS
    world.apply_objects(*MESH)
    return world, {namespace: world.connect(proxy) for namespace, proxy in PROXIES.items()}


def observe(world: World, nodes: Mapping[str, str]) -> Observation:
    """Return the current resources and problems."""
    keys = [key for key, _ in ENVOY_FILTER.table(world.mesh).rows()]
    problems = {key: tuple(map(str, envoy_filter_problems(world.mesh, key))) for key in keys}
    return Observation(snapshot(world, nodes.values()), problems)


def apply_filter(world: World, plain: Plain) -> bool:
    """Apply or delete a filter. Return False if it is rejected as a whole."""
    try:
        rows = rows_of([plain])
    except AssertionError:
        return False
    world.set(rows if plain["spec"]["configPatches"] else dict.fromkeys(rows))
    return True
