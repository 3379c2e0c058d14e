"""EnvoyFilters for every applyTo and operation, with their patches, the expected Envoy configuration and behaviour."""

from __future__ import annotations

import json

from testing.mesh.objects import Plain
from testing.processes.patched_gateway import Case, GatewayPort
from testing.processes.process import eventually

ANY = "'@type': type.googleapis.com/envoy.extensions"


def patch(apply_to: str, operation: str, value: str = "", match: str = "", more: str = "") -> str:
    """Return a patch. `match` extends its match conditions, `more` its operation."""
    value_field = f", value: {{{value}}}" if value else ""
    match_fields = f", {match}" if match else ""
    return f"{{applyTo: {apply_to}, match: {{context: GATEWAY{match_fields}}}, patch: {{operation: {operation}{more}{value_field}}}}}"


def names(filters: list[Plain]) -> list[str]:
    return [item["name"] for item in filters]


def is_directly_before(filters: list[Plain], one: str, other: str) -> bool:
    """Return whether one filter is directly before another."""
    filter_names = names(filters)
    return filter_names.index(one) + 1 == filter_names.index(other)


# -- HTTP filters ----------------------------------------------------------------------------------------------------------

MANAGER = "envoy.filters.network.http_connection_manager"
FAULT, CORS, ROUTER = "envoy.filters.http.fault", "envoy.filters.http.cors", "envoy.filters.http.router"
ABORT = "abort: {http_status: 418, percentage: {numerator: 100}}"
FAULT_TYPE = f"{ANY}.filters.http.fault.v3.HTTPFault"
TEAPOT = f"name: teapot, typed_config: {{{FAULT_TYPE}, {ABORT}}}"


def http(operation: str, value: str = "", sub: str = "", more: str = "") -> str:
    filter_match = f"name: {MANAGER}" + (f", subFilter: {{name: {sub}}}" if sub else "")
    return patch(
        "HTTP_FILTER",
        operation,
        value,
        f"listener: {{portNumber: PORT, filterChain: {{filter: {{{filter_match}}}}}}}",
        more,
    )


def teapot(at: GatewayPort) -> bool:
    return at.status() == 418


def fault(*headers: str) -> str:
    matchers = ", ".join(f"{{name: {name}, present_match: true}}" for name in headers)
    return f"name: {FAULT}, typed_config: {{{FAULT_TYPE}, {ABORT}, headers: [{matchers}]}}"


HTTP = (
    Case(
        "HTTP_FILTER INSERT_FIRST",
        "http",
        (http("INSERT_FIRST", TEAPOT),),
        lambda at: names(at.http)[0] == "teapot",
        teapot,
    ),
    Case(
        "HTTP_FILTER ADD", "http", (http("ADD", TEAPOT),), lambda at: names(at.http)[-2:] == ["teapot", ROUTER], teapot
    ),
    Case(
        "HTTP_FILTER INSERT_BEFORE",
        "http",
        (http("INSERT_BEFORE", TEAPOT, CORS),),
        lambda at: is_directly_before(at.http, "teapot", CORS),
        teapot,
    ),
    Case(
        "HTTP_FILTER INSERT_AFTER",
        "http",
        (http("INSERT_AFTER", TEAPOT, CORS),),
        lambda at: is_directly_before(at.http, CORS, "teapot"),
        teapot,
    ),
    Case(
        "HTTP_FILTER REPLACE", "http", (http("REPLACE", TEAPOT, FAULT),), lambda at: FAULT not in names(at.http), teapot
    ),
    Case(
        "HTTP_FILTER REMOVE",
        "http",
        (http("REMOVE", "", CORS),),
        lambda at: CORS not in names(at.http),
        lambda at: at.status() == 200,
    ),
    Case(
        "HTTP_FILTER MERGE",
        "http",
        (http("MERGE", fault("x-a"), FAULT),),
        lambda at: any(item["typed_config"].get("headers") for item in at.http if item["name"] == FAULT),
        lambda at: (at.status(), at.status(x_a="1")) == (200, 418),
    ),
    Case(
        "HTTP_FILTER MERGE_AND_REPLACE_LIST",
        "http",
        (http("MERGE", fault("x-a"), FAULT), http("MERGE_AND_REPLACE_LIST", fault("x-b"), FAULT)),
        lambda at: [len(item["typed_config"]["headers"]) for item in at.http if item["name"] == FAULT] == [1],
        lambda at: (at.status(x_a="1"), at.status(x_b="1")) == (200, 418),
    ),
    Case(
        "HTTP_FILTER ADD of a class",
        "http",
        (http("ADD", TEAPOT, more=", filterClass: STATS"),),
        lambda at: is_directly_before(at.http, "teapot", "envoy.filters.http.grpc_stats"),
        teapot,
    ),
    Case(
        "HTTP_FILTER of a TypedStruct",
        "http",
        (
            http(
                "INSERT_FIRST",
                "name: teapot, typed_config: {'@type': type.googleapis.com/xds.type.v3.TypedStruct, type_url: "
                f"type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, value: {{{ABORT}}}}}",
            ),
        ),
        lambda at: names(at.http)[0] == "teapot",
        teapot,
    ),
    Case(
        "EXTENSION_CONFIG ADD",
        "http",
        (
            patch("EXTENSION_CONFIG", "ADD", f"name: own.teapot, typed_config: {{{FAULT_TYPE}, {ABORT}}}"),
            http(
                "INSERT_FIRST",
                "name: own.teapot, config_discovery: {config_source: {ads: {}, resource_api_version: V3}, "
                "type_urls: [type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault]}",
            ),
        ),
        lambda at: "own.teapot" in json.dumps(at.edge.envoy.get("/config_dump?resource=ecds_filters")),
        teapot,
    ),
)


# -- network filters -------------------------------------------------------------------------------------------------------

TCP = "envoy.filters.network.tcp_proxy"
DENY = (
    f"name: deny, typed_config: {{{ANY}.filters.network.rbac.v3.RBAC, stat_prefix: d, "
    "rules: {action: DENY, policies: {all: {permissions: [{any: true}], principals: [{any: true}]}}}}"
)
LIMIT = f"name: limit, typed_config: {{{ANY}.filters.network.connection_limit.v3.ConnectionLimit, stat_prefix: l, max_connections: 9}}"
PONG = (
    f"name: pong, typed_config: {{{ANY}.filters.network.direct_response.v3.Config, response: {{inline_string: pong}}}}"
)
LOG = f"access_log: [{{name: log, typed_config: {{{ANY}.access_loggers.file.v3.FileAccessLog, path: /dev/null}}}}]"


def network(operation: str, value: str = "", name: str = "") -> str:
    chain = f", filterChain: {{filter: {{name: {name}}}}}" if name else ""
    return patch("NETWORK_FILTER", operation, value, f"listener: {{portNumber: PORT{chain}}}")


def tcp_proxy(more: str) -> str:
    return f"name: {TCP}, typed_config: {{{ANY}.filters.network.tcp_proxy.v3.TcpProxy, {more}}}"


def refuses(at: GatewayPort) -> bool:
    return not at.connects()


NETWORK = (
    Case(
        "NETWORK_FILTER INSERT_FIRST",
        "tcp",
        (network("INSERT_FIRST", DENY),),
        lambda at: names(at.network)[0] == "deny",
        refuses,
    ),
    Case(
        "NETWORK_FILTER ADD",
        "tcp",
        (network("ADD", DENY),),
        lambda at: names(at.network)[-2:] == ["deny", TCP],
        refuses,
    ),
    Case(
        "NETWORK_FILTER INSERT_BEFORE",
        "tcp",
        (network("INSERT_BEFORE", DENY, TCP),),
        lambda at: is_directly_before(at.network, "deny", TCP),
        refuses,
    ),
    Case(
        "NETWORK_FILTER INSERT_AFTER",
        "tcp",
        (network("INSERT_FIRST", LIMIT), network("INSERT_AFTER", DENY, "limit")),
        lambda at: names(at.network)[:2] == ["limit", "deny"],
        refuses,
    ),
    Case(
        "NETWORK_FILTER REPLACE",
        "tcp",
        (network("REPLACE", PONG, TCP),),
        lambda at: names(at.network) == ["pong"],
        lambda at: at.greeting() == "pong",
    ),
    Case(
        "NETWORK_FILTER REMOVE",
        "tcp",
        (network("INSERT_FIRST", DENY), network("REMOVE", "", "deny")),
        lambda at: "deny" not in names(at.network),
        lambda at: at.connects(),
    ),
    Case(
        "NETWORK_FILTER MERGE",
        "tcp",
        (network("MERGE", tcp_proxy("cluster: BlackHoleCluster"), TCP),),
        lambda at: at.network[-1]["typed_config"]["cluster"] == "BlackHoleCluster",
        refuses,
    ),
    Case(
        "NETWORK_FILTER MERGE_AND_REPLACE_LIST",
        "tcp",
        (network("MERGE", tcp_proxy(LOG), TCP), network("MERGE_AND_REPLACE_LIST", tcp_proxy(LOG), TCP)),
        lambda at: len(at.network[-1]["typed_config"]["access_log"]) == 1,
        lambda at: at.connects(),
    ),
)


# -- listeners, their filters and chains -----------------------------------------------------------------------------------


def listener(operation: str, value: str = "") -> str:
    return patch("LISTENER", operation, value, "listener: {portNumber: PORT}")


def chain(operation: str, value: str = "", match: str = "") -> str:
    return patch("FILTER_CHAIN", operation, value, f"listener: {{portNumber: PORT{match}}}")


def inspector(operation: str, value: str = "", name: str = "") -> str:
    return patch(
        "LISTENER_FILTER",
        operation,
        value,
        f"listener: {{portNumber: PORT{f', listenerFilter: {name}' if name else ''}}}",
    )


def added_listener(name: str) -> str:
    address = "address: {socket_address: {address: 127.0.0.1, port_value: SPARE}}"
    return f"name: {name}, {address}, filter_chains: [{{filters: [{{{PONG}}}]}}]"


def on_spare(at: GatewayPort) -> bool:
    return GatewayPort(at.edge, at.spare, 0).greeting() == "pong"


def source(address: str) -> str:
    return f"filter_chain_match: {{source_prefix_ranges: [{{address_prefix: {address}, prefix_len: 32}}]}}"


TLS = f"name: tls, typed_config: {{{ANY}.filters.listener.tls_inspector.v3.TlsInspector}}"
PLAIN = f"name: http, typed_config: {{{ANY}.filters.listener.http_inspector.v3.HttpInspector}}"
PROXIED = f"{ANY}.filters.listener.proxy_protocol.v3.ProxyProtocol"


def rules(key: str) -> str:
    rule = f"{{tlv_type: 1, on_tlv_present: {{key: {key}}}}}"
    return f"name: proxied, typed_config: {{{PROXIED}, allow_requests_without_proxy_protocol: true, rules: [{rule}]}}"


def inspectors(at: GatewayPort) -> list[str]:
    return names(at.listener["listener_filters"])


LISTENERS = (
    Case(
        "LISTENER MERGE",
        "http",
        (listener("MERGE", "per_connection_buffer_limit_bytes: 4321"),),
        lambda at: at.listener["per_connection_buffer_limit_bytes"] == 4321,
        lambda at: at.status() == 200,
    ),
    Case(
        "LISTENER MERGE_AND_REPLACE_LIST",
        "http",
        (listener("MERGE", LOG), listener("MERGE_AND_REPLACE_LIST", LOG)),
        lambda at: len(at.listener["access_log"]) == 1,
        lambda at: at.status() == 200,
    ),
    Case(
        "LISTENER ADD",
        "tcp",
        (listener("ADD", added_listener("added-SPARE")),),
        lambda at: at.spare in at.edge.listeners(),
        on_spare,
    ),
    Case(
        "LISTENER INSERT_FIRST",
        "tcp",
        (listener("INSERT_FIRST", added_listener("first-SPARE")),),
        lambda at: at.spare in at.edge.listeners(),
        on_spare,
    ),
    Case("LISTENER REMOVE", "tcp", (listener("REMOVE"),), lambda at: not at.listener, refuses),
    Case(
        "FILTER_CHAIN MERGE",
        "tcp",
        (chain("MERGE", "transport_socket_connect_timeout: 9s"),),
        lambda at: at.chains[0]["transport_socket_connect_timeout"] == "9s",
        lambda at: at.connects(),
    ),
    Case(
        "FILTER_CHAIN MERGE_AND_REPLACE_LIST",
        "tcp",
        (chain("MERGE", source("127.0.0.1")), chain("MERGE_AND_REPLACE_LIST", source("127.0.0.2"))),
        lambda at: len(at.chains[0]["filter_chain_match"]["source_prefix_ranges"]) == 1,
        lambda at: (at.connects(), at.connects("127.0.0.2")) == (False, True),
    ),
    Case(
        "FILTER_CHAIN ADD",
        "tcp",
        (chain("ADD", f"name: more, {source('127.0.0.2')}, filters: [{{{PONG}}}]"),),
        lambda at: len(at.chains) == 2,
        lambda at: (at.connects(), at.greeting("127.0.0.2")) == (True, "pong"),
    ),
    Case(
        "FILTER_CHAIN REMOVE",
        "tls",
        (chain("REMOVE", "", ", filterChain: {sni: gone.test}"),),
        lambda at: [c["filter_chain_match"]["server_names"] for c in at.chains] == [["kept.test"]],
        refuses,
    ),
    Case(
        "LISTENER_FILTER ADD",
        "tcp",
        (inspector("ADD", TLS),),
        lambda at: inspectors(at) == ["tls"],
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER INSERT_FIRST",
        "tcp",
        (inspector("ADD", TLS), inspector("INSERT_FIRST", f"name: proxied, typed_config: {{{PROXIED}}}")),
        lambda at: inspectors(at) == ["proxied", "tls"],
        refuses,
    ),
    Case(
        "LISTENER_FILTER INSERT_BEFORE",
        "tcp",
        (inspector("ADD", TLS), inspector("INSERT_BEFORE", PLAIN, "tls")),
        lambda at: inspectors(at) == ["http", "tls"],
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER INSERT_AFTER",
        "tcp",
        (inspector("ADD", TLS), inspector("ADD", rules("a")), inspector("INSERT_AFTER", PLAIN, "tls")),
        lambda at: inspectors(at) == ["tls", "http", "proxied"],
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER REPLACE",
        "tcp",
        (inspector("ADD", TLS), inspector("REPLACE", PLAIN, "tls")),
        lambda at: inspectors(at) == ["http"],
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER REMOVE",
        "tcp",
        (inspector("ADD", f"name: proxied, typed_config: {{{PROXIED}}}"), inspector("REMOVE", "", "proxied")),
        lambda at: "listener_filters" not in at.listener,
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER MERGE",
        "tcp",
        (
            inspector("ADD", f"name: proxied, typed_config: {{{PROXIED}}}"),
            inspector(
                "MERGE",
                f"name: proxied, typed_config: {{{PROXIED}, allow_requests_without_proxy_protocol: true}}",
                "proxied",
            ),
        ),
        lambda at: at.listener["listener_filters"][0]["typed_config"]["allow_requests_without_proxy_protocol"],
        lambda at: at.connects(),
    ),
    Case(
        "LISTENER_FILTER MERGE_AND_REPLACE_LIST",
        "tcp",
        (inspector("ADD", rules("a")), inspector("MERGE_AND_REPLACE_LIST", rules("b"), "proxied")),
        lambda at: (
            [r["on_tlv_present"]["key"] for r in at.listener["listener_filters"][0]["typed_config"]["rules"]] == ["b"]
        ),
        lambda at: at.connects(),
    ),
)


# -- routes and clusters ---------------------------------------------------------------------------------------------------


def routed(apply_to: str, operation: str, value: str = "", vhost: str = "") -> str:
    return patch(
        apply_to,
        operation,
        value,
        f"routeConfiguration: {{portNumber: PORT{f', vhost: {{{vhost}}}' if vhost else ''}}}",
    )


def header(name: str) -> str:
    return f"response_headers_to_add: [{{header: {{key: {name}, value: 'yes'}}}}]"


def route(name: str, path: str, status: int) -> str:
    return f"name: {name}, match: {{path: {path}}}, direct_response: {{status: {status}}}"


MAIN = "route: {name: main}"


def route_names(at: GatewayPort) -> list[str]:
    return [route.get("name", "") for route in at.host["routes"]]


ROUTES = (
    Case(
        "ROUTE_CONFIGURATION MERGE",
        "http",
        (routed("ROUTE_CONFIGURATION", "MERGE", header("x-merged")),),
        lambda at: len(at.routes["response_headers_to_add"]) == 1,
        lambda at: "x-merged: yes" in at.answer(),
    ),
    Case(
        "ROUTE_CONFIGURATION MERGE_AND_REPLACE_LIST",
        "http",
        (
            routed("ROUTE_CONFIGURATION", "MERGE", header("x-gone")),
            routed("ROUTE_CONFIGURATION", "MERGE_AND_REPLACE_LIST", header("x-kept")),
        ),
        lambda at: len(at.routes["response_headers_to_add"]) == 1,
        lambda at: "x-kept" in (response := at.answer()) and "x-gone" not in response,
    ),
    Case(
        "VIRTUAL_HOST MERGE",
        "http",
        (routed("VIRTUAL_HOST", "MERGE", header("x-host")),),
        lambda at: "response_headers_to_add" in at.host,
        lambda at: "x-host: yes" in at.answer(),
    ),
    Case(
        "VIRTUAL_HOST MERGE_AND_REPLACE_LIST",
        "http",
        (routed("VIRTUAL_HOST", "MERGE_AND_REPLACE_LIST", "domains: [only.test]"),),
        lambda at: at.host["domains"] == ["only.test"],
        lambda at: (at.status(), at.status(host="only.test")) == (404, 200),
    ),
    Case(
        "VIRTUAL_HOST ADD",
        "http",
        (routed("VIRTUAL_HOST", "ADD", f"name: added, domains: [added.test], routes: [{{{route('a', '/', 203)}}}]"),),
        lambda at: len(at.routes["virtual_hosts"]) == 2,
        lambda at: (at.status(), at.status(host="added.test")) == (200, 203),
    ),
    Case(
        "VIRTUAL_HOST REPLACE",
        "http",
        (routed("VIRTUAL_HOST", "REPLACE", f"name: other, domains: ['*'], routes: [{{{route('a', '/', 204)}}}]"),),
        lambda at: at.host["name"] == "other",
        lambda at: at.status() == 204,
    ),
    Case(
        "VIRTUAL_HOST REMOVE",
        "http",
        (routed("VIRTUAL_HOST", "REMOVE"),),
        lambda at: not at.routes.get("virtual_hosts"),
        lambda at: at.status() == 404,
    ),
    Case(
        "HTTP_ROUTE INSERT_FIRST",
        "http",
        (routed("HTTP_ROUTE", "INSERT_FIRST", route("first", "/t", 418)),),
        lambda at: route_names(at)[0] == "first",
        lambda at: (at.status("/t"), at.status()) == (418, 200),
    ),
    Case(
        "HTTP_ROUTE INSERT_BEFORE",
        "http",
        (routed("HTTP_ROUTE", "INSERT_BEFORE", route("before", "/t", 418), MAIN),),
        lambda at: route_names(at)[-2:] == ["before", "main"],
        lambda at: at.status("/t") == 418,
    ),
    Case(
        "HTTP_ROUTE INSERT_AFTER",
        "http",
        (routed("HTTP_ROUTE", "INSERT_AFTER", route("after", "/old", 418), "route: {name: old}"),),
        lambda at: route_names(at) == ["old", "after", "main"],
        lambda at: at.status("/old") == 301,
    ),
    Case(
        "HTTP_ROUTE ADD",
        "http",
        (routed("HTTP_ROUTE", "ADD", route("last", "/t", 418)),),
        lambda at: route_names(at)[-1] == "last",
        lambda at: at.status("/t") == 200,
    ),
    Case(
        "HTTP_ROUTE MERGE",
        "http",
        (routed("HTTP_ROUTE", "MERGE", "route: {prefix_rewrite: /beds}", "route: {action: ROUTE}"),),
        lambda at: at.host["routes"][-1]["route"]["prefix_rewrite"] == "/beds",
        lambda at: '"path": "/beds"' in at.answer(),
    ),
    Case(
        "HTTP_ROUTE MERGE_AND_REPLACE_LIST",
        "http",
        (
            routed("HTTP_ROUTE", "MERGE", header("x-gone"), MAIN),
            routed("HTTP_ROUTE", "MERGE_AND_REPLACE_LIST", header("x-kept"), MAIN),
        ),
        lambda at: len(at.host["routes"][-1]["response_headers_to_add"]) == 1,
        lambda at: "x-kept" in (response := at.answer()) and "x-gone" not in response,
    ),
    Case(
        "HTTP_ROUTE REMOVE",
        "http",
        (routed("HTTP_ROUTE", "REMOVE", "", "route: {action: REDIRECT}"),),
        lambda at: route_names(at) == ["main"],
        lambda at: at.status("/old") == 200,
    ),
)


def cluster(operation: str, service: str, value: str = "") -> str:
    return patch("CLUSTER", operation, value, f"cluster: {{service: {service}.test, portNumber: 80}}")


def checks(path: str) -> str:
    return f"health_checks: [{{timeout: 1s, interval: 60s, unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {{path: {path}}}}}]"


def own_cluster(name: str) -> str:
    endpoint = "endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: BETA}}}"
    assignment = f"cluster_name: {name}, endpoints: [{{lb_endpoints: [{{{endpoint}}}]}}]"
    return f"name: {name}, type: STATIC, connect_timeout: 1s, load_assignment: {{{assignment}}}"


def route_to(name: str) -> str:
    return routed("HTTP_ROUTE", "INSERT_FIRST", f"name: own, match: {{prefix: /own}}, route: {{cluster: {name}}}")


CLUSTERS = (
    Case(
        "CLUSTER MERGE",
        "http",
        (cluster("MERGE", "usual", "connect_timeout: 0.321s"),),
        lambda at: at.cluster("outbound|80||usual.test")["connect_timeout"] == "0.321s",
        lambda at: at.status() == 200,
    ),
    Case(
        "CLUSTER MERGE_AND_REPLACE_LIST",
        "http",
        (cluster("MERGE", "other", checks("/a")), cluster("MERGE_AND_REPLACE_LIST", "other", checks("/b"))),
        lambda at: (
            [c["http_health_check"]["path"] for c in at.cluster("outbound|80||other.test")["health_checks"]] == ["/b"]
        ),
        lambda at: eventually(lambda: "/b" in at.edge.beta_paths(), 20, "a health check") is True,
    ),
    Case(
        "CLUSTER ADD",
        "http",
        (patch("CLUSTER", "ADD", own_cluster("own-added")), route_to("own-added")),
        lambda at: at.cluster("own-added")["type"] == "STATIC",
        lambda at: '"backend": "beta"' in at.answer("/own"),
    ),
    Case(
        "CLUSTER INSERT_FIRST",
        "http",
        (patch("CLUSTER", "INSERT_FIRST", own_cluster("own-first")), route_to("own-first")),
        lambda at: at.cluster("own-first")["type"] == "STATIC",
        lambda at: '"backend": "beta"' in at.answer("/own"),
    ),
    Case(
        "CLUSTER REMOVE",
        "http",
        (cluster("REMOVE", "gone"), route_to("outbound|80||gone.test")),
        lambda at: not at.cluster("outbound|80||gone.test"),
        lambda at: at.status("/own") == 503,
    ),
)
CASES = (*HTTP, *NETWORK, *LISTENERS, *ROUTES, *CLUSTERS)
