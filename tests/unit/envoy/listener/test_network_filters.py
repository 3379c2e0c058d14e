"""Network filters of the TCP chains of sidecars and routers."""

from __future__ import annotations

import msgspec
import pytest

from pilot.mesh.model.proxy import Proxy
from testing.mesh.listeners import WEB, WEB_POD, chains, last_filter, listeners, network_filters, service
from testing.mesh.objects import make
from testing.mesh.world import proxy

FILTERS = {
    "PILOT_ENABLE_MYSQL_FILTER": "true",
    "PILOT_ENABLE_MONGO_FILTER": "true",
    "PILOT_ENABLE_REDIS_FILTER": "true",
}
ROUTER = proxy("router", "edge-0", "a", "10.1.0.9", {"istio": "edge"})
STOCK = frozenset(
    ("envoy.filters.network.tcp_proxy", "envoy.filters.network.mongo_proxy", "envoy.filters.network.redis_proxy")
)
DB = service("db", "[{name: mysql, port: 3306}, {name: mongo, port: 27017}, {name: redis, port: 6379}]", "10.96.0.2")
WEB_SERVICE = service("web", "[{name: mysql, port: 3306}, {name: mongo, port: 27017}, {name: redis, port: 6379}]")
PORTS = {"MYSQL": 3306, "MONGO": 27017, "REDIS": 6379}


def gateway(protocol: str) -> tuple[dict[str, object], dict[str, object]]:
    server = f"{{port: {{number: {PORTS[protocol]}, name: db, protocol: {protocol}}}, hosts: ['*']}}"
    rule = f"{{route: [{{destination: {{host: db.a.svc.cluster.local, port: {{number: {PORTS[protocol]}}}}}}}]}}"
    return (
        make("Gateway", "edge", f"{{selector: {{istio: edge}}, servers: [{server}]}}"),
        make("VirtualService", "db", f"{{hosts: ['*'], gateways: [edge], tcp: [{rule}]}}"),
    )


def filter_names(side: str, protocol: str, extensions: frozenset[str] | None) -> list[str]:
    """Return the short names of the network filters of the chain for a protocol."""
    client: Proxy = msgspec.structs.replace(ROUTER if side == "router" else WEB, extensions=extensions)
    result = listeners(DB, WEB_SERVICE, WEB_POD, *gateway(protocol), proxy=client, **FILTERS)
    port = PORTS[protocol]
    if side == "inbound":
        candidates = (c for c in chains(result["virtualInbound"]) if c.get("name") == f"0.0.0.0_{port}")
        chain = next(c for c in candidates if "transportSocket" in c)
    else:
        chain = chains(result[f"0.0.0.0_{port}" if side == "router" else f"10.96.0.2_{port}"])[0]
    return [name.rpartition(".")[2] for name in network_filters(chain)]


@pytest.mark.parametrize("side", ["inbound", "outbound", "router"])
@pytest.mark.parametrize(
    ("protocol", "extensions", "filters"),
    [
        ("MYSQL", None, ["mysql_proxy", "tcp_proxy"]),
        ("MYSQL", STOCK, ["tcp_proxy"]),
        ("MONGO", STOCK, ["mongo_proxy", "tcp_proxy"]),
        ("REDIS", STOCK, ["redis_proxy"]),
    ],
)
def test_protocol_filter_needs_proxy_support(
    side: str, protocol: str, extensions: frozenset[str] | None, filters: list[str]
) -> None:
    exchanges = side == "inbound" and extensions is None
    assert filter_names(side, protocol, extensions) == (["metadata_exchange"] if exchanges else []) + filters


@pytest.mark.parametrize(
    ("second_namespace", "cluster"), [("a", "outbound|8080||x.example.com"), ("c", "outbound|9090||x.example.com")]
)
def test_local_namespace_wins_for_a_host_then_the_oldest(second_namespace: str, cluster: str) -> None:
    """The destination names no port, so the port in the cluster name identifies the service."""

    def entry(entry_namespace: str, port: int, day: int) -> dict[str, object]:
        spec = f"{{hosts: [x.example.com], resolution: STATIC, ports: [{{number: {port}, name: tcp, protocol: TCP}}]}}"
        return make("ServiceEntry", "x", spec, entry_namespace, day)

    rule = "{hosts: ['*'], gateways: [edge], tcp: [{route: [{destination: {host: x.example.com}}]}]}"
    objects = (
        entry("b", 9090, 1),
        entry(second_namespace, 8080, 2),
        gateway("MONGO")[0],
        make("VirtualService", "db", rule),
    )
    (chain,) = chains(listeners(*objects, proxy=ROUTER)["0.0.0.0_27017"])
    assert last_filter(chain)["cluster"] == cluster


SOURCE_IP_HASH = "trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}"


@pytest.mark.parametrize(
    ("subsets", "destination", "hashed"),
    [
        (f"[{{name: v1, labels: {{v: '1'}}, {SOURCE_IP_HASH}}}, {{name: v2, labels: {{v: '2'}}}}]", "subset: v1", True),
        (
            f"[{{name: v1, labels: {{v: '1'}}, {SOURCE_IP_HASH}}}, {{name: v2, labels: {{v: '2'}}}}]",
            "subset: v2",
            False,
        ),
        (
            f"[{{name: v1, labels: {{v: '1'}}, {SOURCE_IP_HASH}}}, {{name: v2, labels: {{v: '2'}}}}]",
            "port: {number: 9000}",
            False,
        ),
    ],
)
@pytest.mark.parametrize("side", ["router", "sidecar"])
def test_subset_policy_decides_the_hash_policy(side: str, subsets: str, destination: str, hashed: bool) -> None:
    objects = (
        make(
            "ServiceEntry",
            "db",
            "{hosts: [db.example.com], addresses: [10.9.9.9], resolution: STATIC, "
            "ports: [{number: 9000, name: tcp, protocol: TCP}]}",
            "a",
        ),
        make("DestinationRule", "db", f"{{host: db.example.com, subsets: {subsets}}}", "a"),
        make(
            "VirtualService",
            "db",
            "{hosts: [db.example.com], gateways: [edge, mesh], "
            f"tcp: [{{route: [{{destination: {{host: db.example.com, {destination}}}}}]}}]}}",
            "a",
        ),
        make(
            "Gateway",
            "edge",
            "{selector: {istio: edge}, servers: [{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}",
            "a",
        ),
    )
    listener = listeners(WEB_POD, *objects, proxy=ROUTER if side == "router" else WEB)[
        "0.0.0.0_9000" if side == "router" else "10.9.9.9_9000"
    ]
    proxies = [last_filter(chain) for chain in chains(listener) if "BlackHole" not in str(last_filter(chain))]
    assert [("hashPolicy" in tcp_proxy) for tcp_proxy in proxies] == [hashed]
