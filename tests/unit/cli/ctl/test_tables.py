"""Tables of Envoy resources."""

from __future__ import annotations

from pilot.cli.ctl.tables import clusters, listeners, routes
from pilot.cli.ctl.tables.filters import Filters


def test_routes_are_sorted_by_port_then_name() -> None:
    names = ["tea", "9080", "80", "65536", "a"]
    configs = [
        {"name": name, "virtualHosts": [{"name": "h", "domains": list("abcd"[:n])}]} for n, name in enumerate(names)
    ]
    assert [(row[0], row[2]) for row in routes.rows(configs)] == [
        ("80", "a, b"),
        ("9080", "a"),
        ("65536", "a, b + 1 more"),
        ("a", "a, b + 2 more"),
        ("tea", ""),
    ]


def test_routes_show_timeouts_retries_and_faults_of_the_hosts_that_are_asked_for() -> None:
    fault = {
        "delay": {"fixedDelay": "5s", "percentage": {"numerator": 500, "denominator": "MILLION"}},
        "abort": {"httpStatus": 503, "percentage": {"numerator": 10}},
    }
    limits = {"cluster": "c", "timeout": "3s", "retryPolicy": {"numRetries": 4, "perTryTimeout": "1s"}}
    tea = [
        {"match": {"prefix": "/"}, "route": limits, "typedPerFilterConfig": {"envoy.filters.http.fault": fault}},
        {"match": {"prefix": "/"}, "route": {"cluster": "c", "timeout": "0s"}},
    ]
    hosts = [{"name": "tea", "domains": ["tea.shop.svc", "tea"], "routes": tea}, {"name": "cup", "domains": ["cup"]}]
    configs = [{"name": "80", "virtualHosts": hosts}, {"name": "81", "virtualHosts": hosts[1:]}]
    selection = routes.select(configs, Filters(fqdn="tea.shop"))
    assert [(row[1], *row[6:]) for row in routes.rows(selection)] == [
        ("tea", "3s", "4, 1s each", "delay 5s 0.05%, abort 503 10%"),
        ("tea", "-", "-", "-"),
    ]


def test_clusters_and_listeners_are_sorted() -> None:
    names = [
        "outbound|9080||b",
        "outbound|80||b",
        "outbound|80|v1|b",
        "PassthroughCluster",
        "inbound|80||",
        "outbound|80||a",
    ]
    assert [row[:4] for row in clusters.rows([{"name": name} for name in names])] == [
        ("-", "80", "-", "inbound"),
        ("PassthroughCluster", "-", "-", "-"),
        ("a", "80", "-", "outbound"),
        ("b", "80", "-", "outbound"),
        ("b", "80", "v1", "outbound"),
        ("b", "9080", "-", "outbound"),
    ]
    addresses = [("b", 80), ("a", 80), ("c", 15001), ("d", 0)]
    configs = [
        {"name": name, "address": {"socketAddress": {"address": "0.0.0.0", **({"portValue": n} if n else {})}}}
        for name, n in addresses
    ]
    rows = listeners.rows([{**config, "filterChains": [{}]} for config in [*configs, {"name": "internal"}]])
    assert [row[-1] for row in rows] == ["d", "internal", "a", "b", "c"]


def test_missing_prefix_length_is_zero() -> None:
    chains = [
        {
            "filterChainMatch": {
                "prefixRanges": [{"addressPrefix": "0.0.0.0"}, {"addressPrefix": "::1", "prefixLen": 128}]
            }
        }
    ]
    (row,) = listeners.rows(
        [{"name": "l", "address": {"socketAddress": {"address": "0.0.0.0", "portValue": 80}}, "filterChains": chains}]
    )
    assert "address 0.0.0.0/0, ::1" in row
