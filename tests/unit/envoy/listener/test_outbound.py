"""Outbound listeners of sidecars: listener set, shared ports and chain destinations."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from testing.mesh.listeners import (
    HCM,
    WEB,
    chains,
    conditions,
    destinations,
    entry,
    http,
    http_filters,
    inspectors,
    last_filter,
    listeners,
    network_filters,
    service,
)
from testing.mesh.objects import at, endpoint_slice, make
from testing.mesh.world import proxy

X, Y = "x.a.svc.cluster.local", "y.a.svc.cluster.local"
PASS = "PassthroughCluster"


def virtual_service(spec: str, name: str = "v") -> dict[str, Any]:
    return make("VirtualService", name, f"{{{spec}}}")


def sidecar(spec: str) -> dict[str, Any]:
    return make("Sidecar", "s", f"{{{spec}}}")


# -- listener set ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "name", "inspector_names", "targets"),
    [
        ("{name: http, port: 80}", "0.0.0.0_80", ["http_inspector"], ["routes 80", PASS]),
        ("{name: grpc-a, port: 90}", "0.0.0.0_90", ["http_inspector"], ["routes 90", PASS]),
        ("{name: tcp-a, port: 90}", "10.96.0.1_90", [], [f"outbound|90||{X}"]),
        ("{name: https, port: 443}", "10.96.0.1_443", [], [f"outbound|443||{X}"]),
        ("{name: mongo, port: 90}", "10.96.0.1_90", [], [f"outbound|90||{X}"]),
        ("{name: a, port: 90}", "10.96.0.1_90", ["http_inspector"], [f"routes {X}:90", f"outbound|90||{X}"]),
    ],
)
def test_listeners_by_protocol(port: str, name: str, inspector_names: list[str], targets: list[str]) -> None:
    result = listeners(service("x", f"[{port}]"))
    assert set(result) == {name, "virtualInbound", "virtualOutbound"}
    assert inspectors(result[name]) == inspector_names
    assert destinations(result[name]) == targets
    assert result[name]["bindToPort"] is False


def test_udp_ports_have_no_listener() -> None:
    assert set(listeners(service("x", "[{name: dns, port: 53, protocol: UDP}]"))) == {
        "virtualInbound",
        "virtualOutbound",
    }


@pytest.mark.parametrize(
    ("first", "second", "targets"),
    [
        ("HTTP", "HTTP", ["routes 90", PASS]),
        ("HTTP", "TCP", ["routes 90", "outbound|90||y.com"]),
        ("TCP", "HTTP", ["routes 90", "outbound|90||x.com"]),
        ("TCP", "TCP", ["outbound|90||x.com"]),
        ("TCP", "", ["routes 90", "outbound|90||x.com"]),
        ("", "TCP", ["routes 90", "outbound|90||x.com"]),
        ("", "", ["routes 90", "outbound|90||x.com"]),
        ("HTTP", "", ["routes 90", "outbound|90||y.com"]),
        ("Mongo", "HTTP", ["outbound|90||x.com"]),
        ("HTTP", "MySQL", ["routes 90", PASS]),
        ("Mongo", "Mongo", ["outbound|90||x.com"]),
        ("Mongo", "TCP", ["outbound|90||x.com"]),
        ("TLS", "TLS", ["outbound|90||x.com", "outbound|90||y.com", PASS]),
        ("TLS", "TCP", ["outbound|90||x.com", "outbound|90||y.com"]),
    ],
)
def test_services_sharing_an_address(first: str, second: str, targets: list[str]) -> None:
    def wildcard_entry(host: str, protocol: str, day: int) -> dict[str, Any]:
        protocol_field = f", protocol: {protocol}" if protocol else ""
        return entry(
            f"hosts: [{host}], resolution: DNS, ports: [{{number: 90, name: p{protocol_field}}}]",
            host.partition(".")[0],
            day=day,
        )

    result = listeners(wildcard_entry("x.com", first, 1), wildcard_entry("y.com", second, 2))
    assert sorted(destinations(result["0.0.0.0_90"])) == sorted(targets)


def test_sni_separates_hosts_without_addresses() -> None:
    listener = listeners(
        entry("hosts: [x.com, '*.y.com'], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]")
    )["0.0.0.0_443"]
    assert [c.get("serverNames") for c in conditions(listener)] == [["*.y.com"], ["x.com"], None]
    assert inspectors(listener) == ["tls_inspector"]


def test_aliases_are_server_names() -> None:
    alias = make("Service", "short", "{type: ExternalName, externalName: x.com, ports: [{port: 443, name: tls}]}")
    listener = listeners(
        entry("hosts: [x.com], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]"), alias
    )["0.0.0.0_443"]
    names = conditions(listener)[0]["serverNames"]
    assert {"x.com", "short.a.svc.cluster.local", "short", "short.a", "short.a.svc"} <= set(names)


def test_cidr_addresses_become_prefix_ranges() -> None:
    spec = "hosts: [x.com], addresses: [10.9.0.0/16, 10.8.0.1/32], resolution: NONE, ports: [{number: 90, name: tcp, protocol: TCP}]"
    result = listeners(entry(spec))
    assert conditions(result["0.0.0.0_90"])[0] == {"prefixRanges": [{"addressPrefix": "10.9.0.0", "prefixLen": 16}]}
    assert destinations(result["10.8.0.1_90"]) == ["outbound|90||x.com"]


# -- conflicts that Envoy rejects --------------------------------------------------------------------------------------------


def test_duplicate_server_name_goes_to_the_first_chain() -> None:
    rules = [
        "{match: [{sniHosts: [q.com, r.com]}], route: [{destination: {host: x}}]}",
        "{match: [{sniHosts: [r.com, s.com]}], route: [{destination: {host: y}}]}",
    ]
    services = service("x", "[{name: tls, port: 443}]"), service("y", "[{name: tls, port: 443}]", "10.96.0.2")
    listener = listeners(*services, virtual_service(f"hosts: [x, q.com, r.com, s.com], tls: [{', '.join(rules)}]"))[
        "10.96.0.1_443"
    ]
    assert [c.get("serverNames") for c in conditions(listener)] == [["q.com", "r.com"], ["s.com"], None]
    assert destinations(listener) == [f"outbound|443||{X}", f"outbound|443||{Y}", PASS]


def test_duplicate_prefix_range_goes_to_the_first_chain() -> None:
    rules = [
        "{match: [{destinationSubnets: [10.1.0.0/16, 10.2.0.0/16]}], route: [{destination: {host: y}}]}",
        "{match: [{destinationSubnets: [10.2.9.9/16, 10.3.0.0/16]}], route: [{destination: {host: y}}]}",
    ]
    listener = listeners(TCP_X, TCP_Y, virtual_service(f"hosts: [x], tcp: [{', '.join(rules)}]"))["10.96.0.1_90"]
    ranges = [[r["addressPrefix"] for r in c.get("prefixRanges", ())] for c in conditions(listener)]
    assert ranges == [["10.1.0.0", "10.2.0.0"], ["10.3.0.0"], []]


def test_partial_label_wildcards_are_no_server_names() -> None:
    spec = "hosts: ['*x.com', '*.y.com'], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]"
    assert [c.get("serverNames") for c in conditions(listeners(entry(spec))["0.0.0.0_443"])] == [["*.y.com"], None]


def test_ipv4_wildcard_listener_of_dual_stack_proxy() -> None:
    client = replace(WEB, ips=("10.1.0.1", "fd00::1"))
    result = listeners(
        entry(
            "hosts: [x.com], resolution: NONE, ports: [{number: 90, name: a}, {number: 443, name: tls, protocol: TLS}]"
        ),
        proxy=client,
    )
    assert destinations(result["0.0.0.0_90"])[0] == "routes 90"
    assert [c.get("serverNames") for c in conditions(result["0.0.0.0_443"])] == [["x.com"], None]


def test_server_names_and_prefixes_are_normalised() -> None:
    tls = "resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]"
    listener = listeners(
        entry(f"hosts: [X.com], {tls}", "a", day=1), entry(f"hosts: [x.com, y.com], {tls}", "b", day=2)
    )["0.0.0.0_443"]
    assert [c.get("serverNames") for c in conditions(listener)] == [["x.com"], ["y.com"], None]
    rule = "{match: [{destinationSubnets: [10.0.0.0/8, 10.1.1.1/8]}], route: [{destination: {host: y}}]}"
    (first, _) = conditions(listeners(TCP_X, TCP_Y, virtual_service(f"hosts: [x], tcp: [{rule}]"))["10.96.0.1_90"])
    assert [r["addressPrefix"] for r in first["prefixRanges"]] == ["10.0.0.0"]


def test_equal_ipv6_spellings_share_a_listener() -> None:
    tcp = "resolution: NONE, ports: [{number: 90, name: tcp, protocol: TCP}]"
    first = entry(f"hosts: [x.com], addresses: ['2001:db8:0::1'], {tcp}", "a", day=1)
    result = listeners(
        first,
        entry(f"hosts: [y.com], addresses: ['2001:DB8::1'], {tcp}", "b", day=2),
        proxy=replace(WEB, ips=("fd00::1",)),
    )
    assert [name for name in result if name.endswith("_90")] == ["2001:db8:0::1_90"]


@pytest.mark.parametrize(("port", "protocol"), [(15001, "TCP"), (15006, "TCP"), (15006, "")])
def test_wildcard_tcp_listeners_cannot_use_proxy_ports(port: int, protocol: str) -> None:
    protocol_field = f", protocol: {protocol}" if protocol else ""
    spec = f"hosts: [x.com], resolution: DNS, ports: [{{number: {port}, name: p{protocol_field}}}]"
    assert set(listeners(entry(spec))) == {"virtualInbound", "virtualOutbound"}


def test_additional_address_yields_to_a_primary_address() -> None:
    client = replace(WEB, ips=("10.1.0.1", "fd00::1"))
    dual_stack = make(
        "Service", "x", "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::2'], ports: [{name: tcp, port: 90}]}"
    )
    result = listeners(
        dual_stack, service("y", "[{name: tcp, port: 90}]", "'fd00::2'"), proxy=client, ISTIO_DUAL_STACK="true"
    )
    assert "additionalAddresses" not in result["10.96.0.1_90"]
    assert destinations(result["fd00::2_90"]) == [f"outbound|90||{Y}"]


# -- headless services -------------------------------------------------------------------------------------------------------


def headless(*ips: str) -> tuple[dict[str, Any], ...]:
    headless_service = service("x", "[{name: tcp-a, port: 90}, {name: http, port: 80}]", "None")
    return headless_service, endpoint_slice(
        "x", *(at(ip) for ip in ips), ports="[{name: tcp-a, port: 90}, {name: http, port: 80}]"
    )


def test_headless_service_has_a_listener_per_remote_pod() -> None:
    result = listeners(*headless("10.1.0.1", "10.1.0.2", "10.1.0.3"))
    assert {n for n in result if n.startswith("10.")} == {"10.1.0.2_90", "10.1.0.3_90"}
    assert "0.0.0.0_80" in result
    assert destinations(result["10.1.0.2_90"]) == [f"outbound|90||{X}"]


def test_explicit_entry_for_the_local_address_has_a_listener() -> None:
    local_entry = entry(
        "hosts: [x.com], addresses: [10.1.0.1], resolution: STATIC, ports: [{number: 90, name: tcp, protocol: TCP}]"
    )
    assert "10.1.0.1_90" in listeners(local_entry, *headless("10.1.0.1", "10.1.0.2"))


def test_headless_pods_as_chains_of_one_listener() -> None:
    listener = listeners(
        *headless("10.1.0.1", "10.1.0.2", "10.1.0.3"), PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER="true"
    )["0.0.0.0_90"]
    assert [c.get("prefixRanges") for c in conditions(listener)] == [
        [{"addressPrefix": "10.1.0.2", "prefixLen": 32}],
        [{"addressPrefix": "10.1.0.3", "prefixLen": 32}],
        None,
    ]


def test_headless_service_without_pods_has_no_listener() -> None:
    assert not [n for n in listeners(*headless()) if n.endswith("_90")]


# -- rules of VirtualServices ------------------------------------------------------------------------------------------------

TCP_X, TCP_Y = service("x", "[{name: tcp-a, port: 90}]"), service("y", "[{name: tcp-a, port: 90}]", "10.96.0.2")


@pytest.mark.parametrize(
    ("rules", "targets"),
    [
        ("tcp: [{route: [{destination: {host: y}}]}]", [f"outbound|90||{Y}"]),
        ("tcp: [{match: [{port: 90}], route: [{destination: {host: y, subset: v1}}]}]", [f"outbound|90|v1|{Y}"]),
        ("tcp: [{match: [{port: 91}], route: [{destination: {host: y}}]}]", [f"outbound|90||{X}"]),
        ("tcp: [{match: [{sourceLabels: {app: web}}], route: [{destination: {host: y}}]}]", [f"outbound|90||{Y}"]),
        ("tcp: [{match: [{sourceLabels: {app: other}}], route: [{destination: {host: y}}]}]", [f"outbound|90||{X}"]),
        ("tcp: [{match: [{sourceNamespace: b}], route: [{destination: {host: y}}]}]", [f"outbound|90||{X}"]),
        ("tcp: [{match: [{gateways: [gw]}], route: [{destination: {host: y}}]}]", [f"outbound|90||{X}"]),
        (
            "tcp: [{route: [{destination: {host: x}, weight: 30}, {destination: {host: y}, weight: 70}, {destination: {host: z}, weight: 0}]}]",
            [f"outbound|90||{X}=30 outbound|90||{Y}=70"],
        ),
        (
            "tcp: [{match: [{destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: y}}]}]",
            [f"outbound|90||{Y}", f"outbound|90||{X}"],
        ),
        ("tcp: [{route: [{destination: {host: unknown.com, port: {number: 7}}}]}]", ["outbound|7||unknown.com"]),
        ("http: [{route: [{destination: {host: y}}]}]", [f"outbound|90||{X}"]),
    ],
)
def test_tcp_rules(rules: str, targets: list[str]) -> None:
    assert destinations(listeners(TCP_X, TCP_Y, virtual_service(f"hosts: [x], {rules}"))["10.96.0.1_90"]) == targets


def test_tls_rules() -> None:
    rules = (
        "tls: [{match: [{sniHosts: [q.com]}, {sniHosts: [q.com], sourceLabels: {app: web}}], route: [{destination: {host: y}}]}, "
        "{match: [{sniHosts: [r.q.com], destinationSubnets: [10.2.0.0/16]}], route: [{destination: {host: x}}]}]"
    )
    services = service("x", "[{name: tls, port: 443}]"), service("y", "[{name: tls, port: 443}]", "10.96.0.2")
    listener = listeners(*services, virtual_service(f"hosts: [x, q.com, '*.q.com'], {rules}"))["10.96.0.1_443"]
    assert destinations(listener) == [f"outbound|443||{Y}", f"outbound|443||{X}", PASS]
    assert conditions(listener)[:2] == [
        {"serverNames": ["q.com"]},
        {"serverNames": ["r.q.com"], "prefixRanges": [{"addressPrefix": "10.2.0.0", "prefixLen": 16}]},
    ]
    config = chains(listener)[0]["metadata"]["filterMetadata"]["istio"]["config"]
    assert config == "/apis/networking.istio.io/v1/namespaces/a/virtual-service/v"


@pytest.mark.parametrize(
    ("policy", "field", "value"),
    [
        ("{connectionPool: {tcp: {idleTimeout: 3s}}}", "idleTimeout", "3s"),
        ("{connectionPool: {tcp: {maxConnectionDuration: 7s}}}", "maxDownstreamConnectionDuration", "7s"),
        ("{loadBalancer: {consistentHash: {useSourceIp: true}}}", "hashPolicy", [{"sourceIp": {}}]),
        (
            "{tunnel: {protocol: POST, targetHost: t.com, targetPort: 1}}",
            "tunnelingConfig",
            {"hostname": "t.com:1", "usePost": True},
        ),
        ("{tunnel: {targetHost: '2001:db8::1', targetPort: 1}}", "tunnelingConfig", {"hostname": "[2001:db8::1]:1"}),
    ],
)
def test_tcp_traffic_policy(policy: str, field: str, value: Any) -> None:
    rule = make("DestinationRule", "d", f"{{host: x, trafficPolicy: {policy}}}")
    assert last_filter(chains(listeners(TCP_X, rule)["10.96.0.1_90"])[0])[field] == value


def test_subset_load_balancer_overrides_hash_policy() -> None:
    hash_policy = "trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}"
    rule = make(
        "DestinationRule",
        "d",
        f"{{host: x, {hash_policy}, subsets: [{{name: v1, trafficPolicy: {{loadBalancer: {{simple: RANDOM}}}}}}]}}",
    )
    to_subset = virtual_service("hosts: [x], tcp: [{route: [{destination: {host: x, subset: v1}}]}]")
    assert "hashPolicy" not in last_filter(chains(listeners(TCP_X, rule, to_subset)["10.96.0.1_90"])[0])


# -- egress listeners of a Sidecar -------------------------------------------------------------------------------------------

BOTH = (
    service("x", "[{name: tcp-a, port: 90}, {name: http, port: 80}]"),
    service("y", "[{name: http, port: 80}]", "10.96.0.2", "b"),
)


@pytest.mark.parametrize(
    ("egress", "names"),
    [
        ("[{hosts: ['./*']}]", {"10.96.0.1_90", "0.0.0.0_80"}),
        ("[{hosts: ['b/*']}]", {"0.0.0.0_80"}),
        ("[{hosts: ['c/*']}]", set()),
        ("[{hosts: ['*/*', '~./*']}]", {"0.0.0.0_80"}),
        ("[{hosts: ['~/*']}]", set()),
        ("[{port: {number: 90, protocol: TCP, name: t}, hosts: ['*/*']}]", {"10.96.0.1_90"}),
        (
            "[{port: {number: 90, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}]",
            {"127.0.0.1_90"},
        ),
        ("[{port: {number: 80, protocol: HTTP, name: t}, bind: 10.5.5.5, hosts: ['*/*']}]", {"10.5.5.5_80"}),
        ("[{hosts: ['*/*'], captureMode: NONE}]", {"127.0.0.1_90", "127.0.0.1_80"}),
        (
            "[{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, hosts: ['*/*']}]",
            {"127.0.0.1_3128"},
        ),
        ("[{port: {number: 0, protocol: HTTP, name: u}, bind: 'unix:///tmp/s', hosts: ['*/*']}]", {"unix:///tmp/s_0"}),
    ],
)
def test_egress_listeners(egress: str, names: set[str]) -> None:
    assert set(listeners(*BOTH, sidecar(f"egress: {egress}"))) - {"virtualInbound", "virtualOutbound"} == names


def test_port_of_an_egress_listener_excludes_other_services() -> None:
    egress = "[{port: {number: 80, protocol: HTTP, name: h}, hosts: ['b/*']}, {hosts: ['*/*']}]"
    result = listeners(*BOTH, sidecar(f"egress: {egress}"))
    assert destinations(result["0.0.0.0_80"]) == ["routes 80", PASS]
    assert "10.96.0.1_90" in result


def test_interception_mode_none_binds_localhost() -> None:
    client = proxy("sidecar", "web-0", "a", "10.1.0.1", INTERCEPTION_MODE="NONE")
    result = listeners(*BOTH, proxy=client)
    assert set(result) == {"127.0.0.1_90", "127.0.0.1_80"}
    assert all(
        listener["maxConnectionsToAcceptPerSocketEvent"] == 1 and "bindToPort" not in listener
        for listener in result.values()
    )


@pytest.mark.parametrize(
    ("metadata", "port", "listens"),
    [
        ({}, 15001, False),
        ({}, 15006, False),
        ({"ENVOY_STATUS_PORT": 15021}, 15021, False),
        ({"ENVOY_PROMETHEUS_PORT": 15090.0}, 15090, False),
        ({}, 15021, True),
        ({"UNPRIVILEGED_POD": "true"}, 80, True),
    ],
)
def test_reserved_ports(metadata: dict[str, Any], port: int, listens: bool) -> None:
    client = proxy("sidecar", "web-0", "a", "10.1.0.1", **metadata)
    assert (f"0.0.0.0_{port}" in listeners(service("x", f"[{{name: http, port: {port}}}]"), proxy=client)) is listens


def test_unprivileged_pod_has_no_low_ports() -> None:
    client = proxy("sidecar", "web-0", "a", "10.1.0.1", INTERCEPTION_MODE="NONE", UNPRIVILEGED_POD="true")
    assert set(listeners(service("x", "[{name: http, port: 80}, {name: http-b, port: 8080}]"), proxy=client)) == {
        "127.0.0.1_8080"
    }


# -- unknown destinations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mesh", "policy", "cluster"),
    [
        ("", "", PASS),
        ("outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "", "BlackHoleCluster"),
        ("outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "outboundTrafficPolicy: {mode: ALLOW_ANY}", PASS),
        ("", "outboundTrafficPolicy: {mode: REGISTRY_ONLY}", "BlackHoleCluster"),
        (
            "",
            "outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: out.com, port: {number: 7}, subset: s}}",
            "outbound|7|s|out.com",
        ),
    ],
)
def test_outbound_traffic_policy(mesh: str, policy: str, cluster: str) -> None:
    result = listeners(service("x", "[{name: http, port: 80}]"), *([sidecar(policy)] if policy else []), mesh=mesh)
    assert destinations(result["virtualOutbound"]) == ["BlackHoleCluster", cluster]
    assert destinations(result["0.0.0.0_80"]) == ["routes 80", cluster]


def test_allow_any_dynamic_dns() -> None:
    result = listeners(
        service("x", "[{name: http, port: 80}]"), mesh="outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}"
    )
    assert destinations(result["virtualOutbound"]) == ["BlackHoleCluster", "routes allow_any_dynamic_dns", PASS]
    assert http_filters(result["0.0.0.0_80"])[-2:] == [
        "envoy.filters.http.dynamic_forward_proxy",
        "envoy.filters.http.router",
    ]


# -- proxy capabilities ------------------------------------------------------------------------------------------------------


def test_stock_envoy_gets_only_supported_filters() -> None:
    result = listeners(
        service("web", "[{name: http, port: 80}]"),
        proxy=replace(WEB, extensions=frozenset({"envoy.filters.http.router"})),
    )
    assert http_filters(result["0.0.0.0_80"]) == [
        f"envoy.filters.http.{n}" for n in ("grpc_stats", "fault", "cors", "router")
    ]
    assert {f for c in chains(result["virtualInbound"]) for f in network_filters(c)} == {
        HCM,
        "envoy.filters.network.tcp_proxy",
    }


def test_filters_by_protocol() -> None:
    ports = "[{name: mongo, port: 1}, {name: redis, port: 2}, {name: mysql, port: 3}]"
    flags = {f"PILOT_ENABLE_{p}_FILTER": "true" for p in ("MONGO", "REDIS", "MYSQL")}
    result = listeners(service("x", ports), **flags)
    by_port = [[n.rpartition(".")[2] for n in network_filters(chains(result[f"10.96.0.1_{p}"])[0])] for p in (1, 2, 3)]
    assert by_port == [["mongo_proxy", "tcp_proxy"], ["redis_proxy"], ["mysql_proxy", "tcp_proxy"]]


def test_http_proxy_port() -> None:
    listener = listeners(service("x", "[{name: http, port: 80}]"), mesh="proxyHttpPort: 15002")["127.0.0.1_15002"]
    assert destinations(listener) == ["routes http_proxy"]
    assert http(listener)["httpProtocolOptions"] == {"allowAbsoluteUrl": True}


def test_http_proxy_filters_follow_the_last_service() -> None:
    egress = sidecar("egress: [{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, hosts: ['*/*']}]")
    wildcard_entry = entry(
        "hosts: ['*.wild.com'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DYNAMIC_DNS", day=2
    )
    resolver = "envoy.filters.http.dynamic_forward_proxy"
    for day, resolves in ((1, True), (3, False)):
        listener = listeners(service("x", "[{name: http, port: 80}]", day=day), wildcard_entry, egress)[
            "127.0.0.1_3128"
        ]
        assert destinations(listener) == ["routes 3128"]
        assert (resolver in http_filters(listener)) is resolves


def test_dual_stack_listeners() -> None:
    client = proxy("sidecar", "web-0", "a", "10.1.0.1")
    result = listeners(
        service("x", "[{name: http, port: 80}]"),
        proxy=replace(client, ips=("10.1.0.1", "fd00::1")),
        ISTIO_DUAL_STACK="true",
    )
    for name in ("0.0.0.0_80", "virtualOutbound", "virtualInbound"):
        assert [a["address"]["socketAddress"]["address"] for a in result[name]["additionalAddresses"]] == ["::"]


def test_ipv6_only_proxy() -> None:
    client = proxy("sidecar", "web-0", "a", "fd00::1")
    result = listeners(
        entry("hosts: [x.com], resolution: DNS, ports: [{number: 90, name: tcp, protocol: TCP}]"), proxy=client
    )
    assert "::_90" in result
    assert result["virtualOutbound"]["address"]["socketAddress"]["address"] == "::"


def test_stat_prefix_pattern() -> None:
    listener = listeners(TCP_X, mesh="outboundClusterStatName: '%SERVICE%_%SERVICE_PORT%'")["10.96.0.1_90"]
    assert last_filter(chains(listener)[0])["statPrefix"] == "x.a_90"


def test_route_without_port_uses_the_only_service_port() -> None:
    objects = (
        service("y", "[{name: tcp, port: 7000}]", "10.96.0.2"),
        virtual_service("hosts: [x], tcp: [{route: [{destination: {host: y}}]}]"),
    )
    assert destinations(listeners(TCP_X, *objects)["10.96.0.1_90"])[0] == f"outbound|7000||{Y}"
