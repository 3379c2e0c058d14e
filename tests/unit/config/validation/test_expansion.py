"""Objects whose lists are multiplied are refused if their configuration would be too large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pilot.ingest.decode import decode_document


def _codes(api: str, kind: str, spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the codes and paths of the errors of an object."""
    plain = {
        "apiVersion": f"{api}.istio.io/v1",
        "kind": kind,
        "metadata": {"name": "large", "namespace": "tenant"},
        "spec": spec,
    }
    return [(problem.code, problem.path) for problem in decode_document(plain).problems if problem.severity == "error"]


def _entry(hosts: int, ports: int, protocol: str = "HTTP", **fields: Any) -> Mapping[str, Any]:
    return {
        "hosts": [f"h{i}.example.com" for i in range(hosts)],
        "ports": [{"name": f"p{i}", "number": 1000 + i, "protocol": protocol} for i in range(ports)],
        "resolution": "STATIC",
        "endpoints": [{"address": "192.0.2.1"}],
        **fields,
    }


def test_service_entry_with_many_hosts_and_ports_is_refused() -> None:
    assert _codes("networking", "ServiceEntry", _entry(256, 256)) == [("too-large", "spec.ports")]


def test_service_entry_with_many_endpoints_for_each_host_is_refused() -> None:
    endpoints = [{"address": f"192.0.{i // 256}.{i % 256}"} for i in range(4096)]
    spec = _entry(256, 4, endpoints=endpoints)
    assert _codes("networking", "ServiceEntry", spec) == [("too-large", "spec.ports")]


def test_service_entry_with_many_endpoints_in_total_is_refused() -> None:
    endpoints = [{"address": f"192.0.{i // 256}.{i % 256}"} for i in range(1000)]
    assert not _codes("networking", "ServiceEntry", _entry(20, 5, endpoints=endpoints))
    spec = _entry(80, 10, endpoints=endpoints)
    assert _codes("networking", "ServiceEntry", spec) == [("too-large", "spec.ports")]


def test_service_entry_with_many_addresses_for_each_port_is_refused() -> None:
    addresses = [f"192.0.{i // 256}.{i % 256}" for i in range(4096)]
    spec = _entry(1, 256, "TCP", addresses=addresses)
    assert _codes("networking", "ServiceEntry", spec) == [("too-large", "spec.ports")]


def test_service_entry_whose_addresses_repeat_endpoints_is_refused() -> None:
    endpoints = [{"address": f"192.0.2.{i}"} for i in range(4)]
    spec = _entry(9, 139, endpoints=endpoints)
    assert not _codes("networking", "ServiceEntry", spec)
    spec = _entry(9, 139, endpoints=endpoints, addresses=[f"198.51.100.{i}" for i in range(7)])
    assert _codes("networking", "ServiceEntry", spec) == [("too-large", "spec.ports")]


def test_virtual_service_with_many_hosts_and_routes_is_refused() -> None:
    spec = {
        "hosts": [f"h{i}.example.com" for i in range(300)],
        "http": [
            {"match": [{"uri": {"prefix": f"/{i}/"}}], "route": [{"destination": {"host": "a.example.com"}}]}
            for i in range(300)
        ],
    }
    assert _codes("networking", "VirtualService", spec) == [("too-large", "spec.http")]


def test_virtual_service_that_repeats_large_headers_for_each_match_is_refused() -> None:
    route = {
        "match": [{"uri": {"prefix": f"/{i}/"}} for i in range(1000)],
        "route": [{"destination": {"host": "a.example.com"}}],
        "headers": {"request": {"set": {"x-large": "x" * 40_000}}},
    }
    spec = {"hosts": ["a.example.com"], "http": [route]}
    assert _codes("networking", "VirtualService", spec) == [("too-large", "spec.http")]


def test_destination_rule_that_repeats_a_large_policy_for_each_subset_is_refused() -> None:
    policy = {"portLevelSettings": [{"port": {"number": 1 + i}, "loadBalancer": {}} for i in range(1000)]}
    spec = {
        "host": "a.example.com",
        "trafficPolicy": policy,
        "subsets": [{"name": f"s{i}", "labels": {"version": str(i)}} for i in range(2000)],
    }
    assert _codes("networking", "DestinationRule", spec) == [("too-large", "spec.subsets")]


def test_authorization_policy_that_repeats_conditions_for_each_source_is_refused() -> None:
    rule = {
        "from": [{"source": {"principals": [f"td/ns/n/sa/{i}"]}} for i in range(300)],
        "when": [{"key": f"request.headers[x{i}]", "values": ["a"]} for i in range(300)],
    }
    assert _codes("security", "AuthorizationPolicy", {"rules": [rule]}) == [("too-large", "spec.rules")]


@pytest.mark.parametrize(("hosts", "ports"), [(256, 8), (8, 256), (1, 256), (256, 1)])
def test_large_ordinary_service_entries_are_accepted(hosts: int, ports: int) -> None:
    assert not _codes("networking", "ServiceEntry", _entry(hosts, ports))


def test_large_ordinary_virtual_services_are_accepted() -> None:
    routes = [
        {"match": [{"uri": {"prefix": f"/{i}/"}}], "route": [{"destination": {"host": "a.example.com"}}]}
        for i in range(200)
    ]
    spec = {"hosts": [f"h{i}.example.com" for i in range(50)], "http": routes}
    assert not _codes("networking", "VirtualService", spec)


def test_destination_rule_with_a_large_policy_for_each_cluster_is_refused() -> None:
    names = [f"peer-{i}.example.com" for i in range(1000)]
    large, small = {"tls": {"mode": "SIMPLE", "subjectAltNames": names}}, {"loadBalancer": {"simple": "RANDOM"}}
    spec = {"host": "*.svc.cluster.local", "trafficPolicy": large}
    assert _codes("networking", "DestinationRule", spec) == [("too-large", "spec.trafficPolicy")]
    ports = [{"port": {"number": 80}, **small}, {"port": {"number": 443}, **large}]
    subsets = [{"name": "v1", "labels": {"v": "1"}, "trafficPolicy": {"portLevelSettings": ports}}]
    spec = {"host": "*.svc.cluster.local", "trafficPolicy": small, "subsets": subsets}
    assert _codes("networking", "DestinationRule", spec) == [
        ("too-large", "spec.subsets[0].trafficPolicy.portLevelSettings[1]")
    ]


def test_wildcard_destination_rule_with_many_subsets_is_refused() -> None:
    subsets = [{"name": f"v{i}", "labels": {"v": str(i)}} for i in range(65)]
    assert _codes("networking", "DestinationRule", {"host": "*.a.com", "subsets": subsets}) == [
        ("too-many", "spec.subsets")
    ]
    assert _codes("networking", "DestinationRule", {"host": "a.com", "subsets": subsets}) == []


def test_sidecar_with_many_listeners_is_refused() -> None:
    ports = [{"number": 1000 + i, "name": f"p{i}", "protocol": "HTTP"} for i in range(1001)]
    spec = {
        "ingress": [{"port": port, "defaultEndpoint": "127.0.0.1:80"} for port in ports],
        "egress": [{"port": port, "hosts": ["./*"]} for port in ports[:129]],
    }
    assert _codes("networking", "Sidecar", spec) == [("too-many", "spec.ingress"), ("too-many", "spec.egress")]


def test_peer_authentication_with_many_ports_is_refused() -> None:
    ports = {str(1000 + i): {"mode": "STRICT"} for i in range(1001)}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "portLevelMtls": ports}
    assert _codes("security", "PeerAuthentication", spec) == [("too-many", "spec.portLevelMtls")]


def test_large_telemetry_is_refused() -> None:
    tags = {f"t{i}": {"value": "request.host"} for i in range(2000)}
    spec = {"metrics": [{"providers": [{"name": "prometheus"}], "overrides": [{"tagOverrides": tags}]}]}
    assert _codes("telemetry", "Telemetry", spec) == [("too-large", "spec")]
