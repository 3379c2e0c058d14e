"""Translation of VirtualServices to routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from envoy.config.route.v3 import route_components_pb2
from google.protobuf import json_format

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.networking.destination_rule import (
    ConsistentHashLB,
    DestinationRule,
    destination_hash,
    has_consistent_hash,
)
from pilot.config.networking.virtual_service import Destination, HTTPRetry, PortSelector, VirtualService
from pilot.config.object import Object
from pilot.config.protocol import Protocol
from pilot.envoy.route.action.route_action import build_hash_policy
from pilot.envoy.route.inbound_routes import build_inbound_routes
from pilot.envoy.route.route_context import RouteContext
from pilot.envoy.route.route_destination import DestinationKey, DestinationService
from pilot.envoy.route.sidecar.catch_all import build_catch_all
from pilot.envoy.route.sticky_session import StickySession
from pilot.envoy.route.virtual_service_routes import build_routes, has_routes
from pilot.lib.duration import Duration, parse_duration
from pilot.mesh.scope.sidecar_scope import OutboundPolicy

TO = [{"destination": {"host": "a.com"}}]


def decode(plain: Any, kind: Any) -> Any:
    return msgspec.convert(plain, kind, dec_hook=lambda t, v: parse_duration(v) if t is Duration else v)


def service(*rules: dict[str, Any]) -> Object[VirtualService]:
    """Return an unvalidated VirtualService, because builders must cope with objects that bypassed validation."""
    return Object(
        GroupKind(NETWORKING, "VirtualService"),
        "ns",
        "v",
        decode({"hosts": ["a.com"], "http": list(rules)}, VirtualService),
    )


def routes_of(*rules: dict[str, Any], port: int = 80, **context: Any) -> list[dict[str, Any]]:
    routes: Iterator[route_components_pb2.Route] = build_routes(service(*rules), RouteContext(port=port, **context))
    return [json_format.MessageToDict(r) for r in routes]


def only_route(rule: dict[str, Any], **context: Any) -> dict[str, Any]:
    (route,) = routes_of(rule, **context)
    return route


PREVIOUS_HOSTS = [
    {
        "name": "envoy.retry_host_predicates.previous_hosts",
        "typedConfig": {
            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
        },
    }
]
CONDITIONS = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes"
RETRIES = {
    "retryOn": CONDITIONS,
    "numRetries": 2,
    "retryHostPredicate": PREVIOUS_HOSTS,
    "hostSelectionRetryMaxAttempts": "5",
}


def test_route_fields() -> None:
    assert only_route(
        {"name": "r", "match": [{"name": "m", "uri": {"prefix": "/a"}, "statPrefix": "s"}], "route": TO}
    ) == {
        "name": "r.m",
        "match": {"prefix": "/a", "caseSensitive": True},
        "metadata": {
            "filterMetadata": {"istio": {"config": "/apis/networking.istio.io/v1/namespaces/ns/virtual-service/v"}}
        },
        "statPrefix": "s",
        "decorator": {"operation": "a.com:80/a*"},
        "route": {"cluster": "outbound|80||a.com", "timeout": "0s", "maxGrpcTimeout": "0s", "retryPolicy": RETRIES},
    }


# -- order -----------------------------------------------------------------------------------------------------------------


def test_routes_after_a_catch_all_are_omitted() -> None:
    rules = [
        {"match": [{"uri": {"prefix": "/a"}}, {"uri": {"prefix": "/"}}, {"uri": {"prefix": "/b"}}], "route": TO},
        {"route": TO},
    ]
    assert [r["match"]["prefix"] for r in routes_of(*rules)] == ["/a", "/"]
    assert len(routes_of({"route": TO}, {"route": TO})) == 1


def test_matches_of_other_ports_and_namespaces_are_omitted() -> None:
    rules = [{"match": [{"port": 81}, {"sourceNamespace": "x"}], "route": TO}]
    assert routes_of(*rules) == []
    assert not has_routes(service(*rules).spec, 80, frozenset(("mesh",)), "ns", frozenset())
    assert has_routes(service(*rules).spec, 81, frozenset(("mesh",)), "ns", frozenset())
    assert len(routes_of(*rules, port=81)) == 1
    assert len(routes_of(*rules, namespace="x")) == 1


# -- destinations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("destination", "target", "port", "cluster"),
    [
        ({"host": "a.com"}, None, 80, "outbound|80||a.com"),
        ({"host": "a.com", "port": {"number": 9}}, DestinationService((1,)), 80, "outbound|9||a.com"),
        ({"host": "a.com", "subset": "v1"}, None, 80, "outbound|80|v1|a.com"),
        ({"host": "a.com"}, DestinationService((8080,)), 0, "outbound|8080||a.com"),
        ({"host": "a.com"}, DestinationService((8080, 8081)), 0, "outbound|0||a.com"),
        ({"host": "a.com"}, DestinationService((80,), external_name="b.com"), 80, "outbound|80||b.com"),
    ],
)
def test_destination_clusters(
    destination: dict[str, Any], target: DestinationService | None, port: int, cluster: str
) -> None:
    route = only_route(
        {"route": [{"destination": destination}]}, port=port, destinations={"a.com": target} if target else {}
    )
    assert route["route"]["cluster"] == cluster


def test_weighted_destinations() -> None:
    route = [{"destination": {"host": h}, "weight": w} for h, w in (("a.com", 90), ("b.com", 10), ("c.com", 0))]
    route[1]["headers"] = {"request": {"set": {"x": "1", "Host": "h"}}, "response": {"remove": ["y"]}}
    result = only_route({"route": route})
    assert result["route"]["weightedClusters"] == {
        "clusters": [
            {"name": "outbound|80||a.com", "weight": 90},
            {
                "name": "outbound|80||b.com",
                "weight": 10,
                "requestHeadersToAdd": [
                    {"header": {"key": "x", "value": "1"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"}
                ],
                "responseHeadersToRemove": ["y"],
                "hostRewriteLiteral": "h",
            },
        ]
    }
    assert result["decorator"]["operation"] == "v:80/*"


@pytest.mark.parametrize("rule", [{"redirect": {"uri": "/b", "redirectCode": 399}}, {"route": []}])
def test_rules_without_action_are_omitted(rule: dict[str, Any]) -> None:
    assert routes_of({"match": [{"uri": {"prefix": "/a"}}], **rule}, {"route": TO})[0]["match"] == {"prefix": "/"}


def test_single_destination_ignores_its_weight() -> None:
    assert (
        only_route({"route": [{"destination": {"host": "a.com"}, "weight": 0}]})["route"]["cluster"]
        == "outbound|80||a.com"
    )


@pytest.mark.parametrize(("timeout", "expected"), [("5s", "5s"), ("0s", "0s"), ("1500ms", "1.500s")])
def test_timeouts(timeout: str, expected: str) -> None:
    route = only_route({"route": TO, "timeout": timeout})["route"]
    assert route["timeout"] == route["maxGrpcTimeout"] == expected


# -- headers and hosts -----------------------------------------------------------------------------------------------------


def test_header_operations() -> None:
    headers = {
        "request": {"set": {"b": "1", "a": "2"}, "add": {"c": "3"}, "remove": ["d", "host", ":path"]},
        "response": {"set": {"e": "4", ":status": "200"}, "add": {"f": "5"}, "remove": ["g"]},
    }
    route = only_route({"headers": headers, "route": [{**TO[0], "headers": {"request": {"add": {"z": "9"}}}}]})
    assert [
        (h["header"]["key"], h.get("appendAction", "APPEND_IF_EXISTS_OR_ADD")) for h in route["requestHeadersToAdd"]
    ] == [
        ("a", "OVERWRITE_IF_EXISTS_OR_ADD"),
        ("b", "OVERWRITE_IF_EXISTS_OR_ADD"),
        ("c", "APPEND_IF_EXISTS_OR_ADD"),
        ("z", "APPEND_IF_EXISTS_OR_ADD"),
    ]
    assert route["requestHeadersToRemove"] == ["d"]
    assert [h["header"]["key"] for h in route["responseHeadersToAdd"]] == ["e", "f"]
    assert route["responseHeadersToRemove"] == ["g"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"headers": {"request": {"set": {"Host": "set"}}}}, "set"),
        ({"headers": {"request": {"add": {":authority": "add"}}}}, "add"),
        ({"headers": {"request": {"set": {"Host": "set"}, "add": {":authority": "add"}}}}, "set"),
        ({"headers": {"request": {"set": {"Host": "set"}}}, "rewrite": {"authority": "rewrite"}}, "rewrite"),
    ],
)
def test_host_rewrite_precedence(rule: dict[str, Any], expected: str) -> None:
    assert only_route({**rule, "route": TO})["route"]["hostRewriteLiteral"] == expected
    route = [{**TO[0], "headers": {"request": {"set": {"host": "own"}}}}]
    assert only_route({**rule, "route": route})["route"]["hostRewriteLiteral"] == expected
    assert only_route({"route": route})["route"]["hostRewriteLiteral"] == "own"


@pytest.mark.parametrize(
    ("rewrite", "expected"),
    [
        ({"uri": "/b"}, {"prefixRewrite": "/b"}),
        (
            {"uriRegexRewrite": {"match": "^/a/(.*)", "rewrite": "/\\1"}},
            {"regexRewrite": {"pattern": {"regex": "^/a/(.*)"}, "substitution": "/\\1"}},
        ),
    ],
)
def test_rewrites(rewrite: dict[str, Any], expected: dict[str, Any]) -> None:
    route = only_route({"match": [{"uri": {"prefix": "/a"}}], "rewrite": rewrite, "route": TO})["route"]
    assert route.items() >= expected.items()
    assert "appendXForwardedHost" not in route
    assert (
        only_route({"rewrite": {"authority": "x"}, "route": TO}, forwarded_host=True)["route"]["appendXForwardedHost"]
        is True
    )


# -- redirects and direct responses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("redirect", "context", "expected"),
    [
        ({"uri": "/b"}, {}, {"pathRedirect": "/b"}),
        (
            {"uri": "/b", "authority": "x", "redirectCode": 308},
            {},
            {"pathRedirect": "/b", "hostRedirect": "x", "responseCode": "PERMANENT_REDIRECT"},
        ),
        (
            {"authority": "x", "redirectCode": 302},
            {},
            {"hostRedirect": "x", "pathRedirect": "", "responseCode": "FOUND"},
        ),
        ({"uri": "/b", "redirectCode": 303}, {}, {"pathRedirect": "/b", "responseCode": "SEE_OTHER"}),
        ({"uri": "/b", "redirectCode": 307}, {}, {"pathRedirect": "/b", "responseCode": "TEMPORARY_REDIRECT"}),
        ({"uri": "/b", "scheme": "https"}, {}, {"pathRedirect": "/b", "schemeRedirect": "https"}),
        ({"uri": "/b", "port": 8443}, {}, {"pathRedirect": "/b", "portRedirect": 8443}),
        ({"uri": "/b", "port": 80}, {}, {"pathRedirect": "/b"}),
        (
            {"uri": "/b", "port": 80, "scheme": "https"},
            {},
            {"pathRedirect": "/b", "portRedirect": 80, "schemeRedirect": "https"},
        ),
        ({"uri": "/b", "port": 443}, {"tls": True}, {"pathRedirect": "/b"}),
        (
            {"uri": "/b", "derivePort": "FROM_REQUEST_PORT"},
            {"port": 8080},
            {"pathRedirect": "/b", "portRedirect": 8080},
        ),
        ({"uri": "/b", "derivePort": "FROM_PROTOCOL_DEFAULT"}, {"port": 8080}, {"pathRedirect": "/b"}),
    ],
)
def test_redirects(redirect: dict[str, Any], context: dict[str, Any], expected: dict[str, Any]) -> None:
    route = only_route({"redirect": redirect}, **context)
    assert route["redirect"] == expected
    assert route["decorator"]["operation"] == f"v:{context.get('port', 80)}/*"
    assert "route" not in route


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"status": 503}, {"status": 503}),
        ({"status": 200, "body": {"string": "x"}}, {"status": 200, "body": {"inlineString": "x"}}),
        ({"status": 200, "body": {"bytes": "eA=="}}, {"status": 200, "body": {"inlineBytes": "eA=="}}),
    ],
)
def test_direct_responses(response: dict[str, Any], expected: dict[str, Any]) -> None:
    assert only_route({"directResponse": response})["directResponse"] == expected


# -- retries ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        ({"attempts": 0}, None),
        ({"attempts": 3}, {**RETRIES, "numRetries": 3}),
        ({"attempts": 3, "perTryTimeout": "2s"}, {**RETRIES, "numRetries": 3, "perTryTimeout": "2s"}),
        ({"attempts": 1}, {**RETRIES, "numRetries": 1}),
        ({"attempts": 0, "retryOn": "5xx", "perTryTimeout": "1s"}, None),
        ({"attempts": 2, "retryOn": ""}, RETRIES),
        ({"attempts": 2, "retryOn": "5xx, reset"}, {**RETRIES, "retryOn": "5xx,reset"}),
        (
            {"attempts": 2, "retryOn": "gateway-error,503,429"},
            {**RETRIES, "retryOn": "gateway-error,retriable-status-codes", "retriableStatusCodes": [503, 429]},
        ),
        (
            {"attempts": 2, "retryOn": "503,retriable-status-codes"},
            {**RETRIES, "retryOn": "retriable-status-codes", "retriableStatusCodes": [503]},
        ),
        ({"attempts": 2, "backoff": "100ms"}, {**RETRIES, "retryBackOff": {"baseInterval": "0.100s"}}),
        ({"attempts": 2, "retryIgnorePreviousHosts": True}, RETRIES),
        (
            {"attempts": 2, "retryIgnorePreviousHosts": False},
            {k: v for k, v in RETRIES.items() if k != "retryHostPredicate"},
        ),
    ],
)
def test_retry_policies(retries: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert only_route({"route": TO, "retries": retries})["route"].get("retryPolicy") == expected


def test_retry_remote_localities() -> None:
    policy = only_route({"route": TO, "retries": {"attempts": 2, "retryRemoteLocalities": True}})["route"][
        "retryPolicy"
    ]
    assert policy["retryPriority"]["name"] == "envoy.retry_priorities.previous_priorities"
    assert policy["retryPriority"]["typedConfig"]["updateFrequency"] == 2


def test_mesh_default_retry_policy() -> None:
    retries = service({"route": TO, "retries": {"attempts": 7}}).spec.http[0].retries
    assert only_route({"route": TO}, retries=retries)["route"]["retryPolicy"]["numRetries"] == 7
    assert (
        only_route({"route": TO, "retries": {"attempts": 1}}, retries=retries)["route"]["retryPolicy"]["numRetries"]
        == 1
    )


def millionths(numerator: int) -> dict[str, Any]:
    return {"numerator": numerator, "denominator": "MILLION"}


# -- faults, mirrors, cross-origin policy ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            {"delay": {"fixedDelay": "2s", "percentage": {"value": 0.1}}},
            {"delay": {"fixedDelay": "2s", "percentage": millionths(1000)}},
        ),
        (
            {"delay": {"fixedDelay": "2s", "percent": 5}},
            {"delay": {"fixedDelay": "2s", "percentage": {"numerator": 5}}},
        ),
        ({"delay": {"exponentialDelay": "2s"}}, {}),
        (
            {"abort": {"httpStatus": 503, "percentage": {"value": 100}}},
            {"abort": {"httpStatus": 503, "percentage": millionths(1000000)}},
        ),
        (
            {"abort": {"grpcStatus": "UNAVAILABLE", "percentage": {"value": 1}}},
            {"abort": {"grpcStatus": 14, "percentage": millionths(10000)}},
        ),
        ({"abort": {"http2Error": "x"}}, {}),
    ],
)
def test_faults(fault: dict[str, Any], expected: dict[str, Any]) -> None:
    config = only_route({"route": TO, "fault": fault})["typedPerFilterConfig"]["envoy.filters.http.fault"]
    assert config == {"@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", **expected}


MIRROR = {"cluster": "outbound|80||m.com", "traceSampled": False, "disableShadowHostSuffixAppend": True}
ALL = {"defaultValue": {"numerator": 100}}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"mirror": {"host": "m.com"}}, [ALL]),
        ({"mirror": {"host": "m.com"}, "mirrorPercentage": {"value": 50}}, [{"defaultValue": millionths(500000)}]),
        ({"mirror": {"host": "m.com"}, "mirrorPercentage": {"value": 0}}, []),
        (
            {
                "mirrors": [
                    {"destination": {"host": "m.com"}},
                    {"destination": {"host": "m.com"}, "percentage": {"value": 1}},
                ]
            },
            [ALL, {"defaultValue": millionths(10000)}],
        ),
    ],
)
def test_mirrors(rule: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    policies = only_route({**rule, "route": TO})["route"].get("requestMirrorPolicies", [])
    assert policies == [{**MIRROR, "runtimeFraction": share} for share in expected]


def test_shadow_host_suffix() -> None:
    (policy,) = only_route({"mirror": {"host": "m.com"}, "route": TO}, shadow_suffix=True)["route"][
        "requestMirrorPolicies"
    ]
    assert "disableShadowHostSuffixAppend" not in policy


def test_cors_policy() -> None:
    policy = {
        "allowOrigins": [{"exact": "https://a.com"}, {"regex": ".*\\.b\\.com"}],
        "allowMethods": ["GET", "PUT"],
        "allowHeaders": ["x"],
        "exposeHeaders": ["y"],
        "maxAge": "24h",
        "allowCredentials": False,
        "unmatchedPreflights": "IGNORE",
    }
    config = only_route({"route": TO, "corsPolicy": policy})["typedPerFilterConfig"]["envoy.filters.http.cors"]
    assert config == {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
        "allowOriginStringMatch": [{"exact": "https://a.com"}, {"safeRegex": {"regex": ".*\\.b\\.com"}}],
        "allowMethods": "GET,PUT",
        "allowHeaders": "x",
        "exposeHeaders": "y",
        "maxAge": "86400",
        "allowCredentials": False,
        "filterEnabled": {"defaultValue": {"numerator": 100}},
        "forwardNotMatchingPreflights": False,
    }
    bare = only_route({"route": TO, "corsPolicy": {"allowOrigin": ["*"]}})["typedPerFilterConfig"][
        "envoy.filters.http.cors"
    ]
    assert bare["allowOriginStringMatch"] == [{"exact": "*"}]
    assert bare["forwardNotMatchingPreflights"] is True


def test_alt_svc_header() -> None:
    route = only_route({"route": TO}, port=443, alt_svc=True)
    assert route["responseHeadersToAdd"] == [{"header": {"key": "alt-svc", "value": 'h3=":443"; ma=86400'}}]


# -- hashing and sessions --------------------------------------------------------------------------------------------------

HASH = ConsistentHashLB(http_header_name="x-user")
KEY = DestinationKey("a.com", "", 0)


def test_consistent_hash_disables_previous_hosts_predicate() -> None:
    route = only_route({"route": TO}, consistent_hashes={KEY: HASH})["route"]
    assert route["hashPolicy"] == [{"header": {"headerName": "x-user"}}]
    assert "retryHostPredicate" not in route["retryPolicy"]
    weighted = [{"destination": {"host": h}, "weight": 50} for h in ("a.com", "b.com")]
    route = only_route({"route": weighted}, consistent_hashes={KEY: HASH})["route"]
    assert route["hashPolicy"] == [{"header": {"headerName": "x-user"}}]
    assert "retryHostPredicate" in route["retryPolicy"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"httpHeaderName": "x"}, {"header": {"headerName": "x"}}),
        ({"useSourceIp": True}, {"connectionProperties": {"sourceIp": True}}),
        ({"httpQueryParameterName": "q"}, {"queryParameter": {"name": "q"}}),
        (
            {
                "httpCookie": {
                    "name": "c",
                    "path": "/p",
                    "ttl": "60s",
                    "attributes": [{"name": "SameSite", "value": "Lax"}],
                }
            },
            {"cookie": {"name": "c", "path": "/p", "ttl": "60s", "attributes": [{"name": "SameSite", "value": "Lax"}]}},
        ),
        ({"httpCookie": {"name": "c"}}, {"cookie": {"name": "c"}}),
        ({"ringHash": {"minimumRingSize": 5}}, None),
        ({"httpHeaderName": ""}, None),
        ({"httpQueryParameterName": ""}, None),
    ],
)
def test_hash_policies(settings: dict[str, Any], expected: dict[str, Any] | None) -> None:
    hash_policy = build_hash_policy(decode(settings, ConsistentHashLB))
    assert (json_format.MessageToDict(hash_policy) if hash_policy is not None else None) == expected


RULE = {
    "host": "a.com",
    "trafficPolicy": {
        "loadBalancer": {"consistentHash": {"httpHeaderName": "rule"}},
        "portLevelSettings": [
            {"port": {"number": 81}, "loadBalancer": {"consistentHash": {"httpHeaderName": "port"}}},
            {"port": {"number": 82}, "loadBalancer": {"simple": "RANDOM"}},
        ],
    },
    "subsets": [
        {"name": "plain"},
        {
            "name": "own",
            "trafficPolicy": {
                "loadBalancer": {"consistentHash": {"httpHeaderName": "subset"}},
                "portLevelSettings": [
                    {"port": {"number": 81}, "loadBalancer": {"consistentHash": {"httpHeaderName": "subset-port"}}}
                ],
            },
        },
    ],
}


@pytest.mark.parametrize(
    ("subset", "port", "expected"),
    [
        ("", 0, "rule"),
        ("", 80, "rule"),
        ("", 81, "port"),
        ("", 82, "rule"),
        ("plain", 81, "port"),
        ("own", 80, "subset"),
        ("own", 81, "subset-port"),
        ("own", 0, "subset"),
        ("absent", 0, "rule"),
    ],
)
def test_consistent_hash_precedence(subset: str, port: int, expected: str) -> None:
    rule = decode(RULE, DestinationRule)
    consistent_hash = destination_hash(rule, subset, port)
    assert consistent_hash is not None
    assert consistent_hash.http_header_name == expected
    assert has_consistent_hash(rule)
    assert not has_consistent_hash(DestinationRule(host="a.com"))


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([StickySession(cookie="c:/p")], {"name": "c", "path": "/p"}),
        ([StickySession(cookie="c")], {"name": "c", "path": "/"}),
        ([StickySession(cookie="first"), StickySession(cookie="second")], {"name": "first", "path": "/"}),
        ([None, StickySession(cookie="second")], {"name": "second", "path": "/"}),
        ([StickySession(cookie="first"), None], None),
    ],
)
def test_sticky_sessions(sessions: list[StickySession | None], expected: dict[str, str] | None) -> None:
    hosts = [f"h{i}.com" for i in range(len(sessions))]
    destinations = {h: DestinationService((80,), session=s) for h, s in zip(hosts, sessions, strict=True)}
    filters = only_route(
        {"route": [{"destination": {"host": h}, "weight": 50} for h in hosts]}, destinations=destinations
    ).get("typedPerFilterConfig", {})
    config = filters.get("envoy.filters.http.stateful_session")
    cookie = config["statefulSession"]["sessionState"]["typedConfig"]["cookie"] if config else None
    assert cookie == expected


def test_sticky_session_by_header() -> None:
    filters = only_route(
        {"route": TO}, destinations={"a.com": DestinationService((80,), session=StickySession(header="x-s"))}
    )["typedPerFilterConfig"]
    state = filters["envoy.filters.http.stateful_session"]["statefulSession"]["sessionState"]
    assert state["name"] == "envoy.http.stateful_session.header"
    assert state["typedConfig"]["name"] == "x-s"


# -- inbound routes --------------------------------------------------------------------------------------------------------


def test_inbound_routes() -> None:
    configuration = json_format.MessageToDict(build_inbound_routes("inbound|8080||", "a.com", 80, Protocol.HTTP, None))
    no_time = {"maxStreamDuration": "0s", "grpcTimeoutHeaderMax": "0s"}
    action = {"cluster": "inbound|8080||", "timeout": "0s", "maxStreamDuration": no_time}
    retry = {"retryOn": "reset-before-request", "numRetries": 2}
    route = {
        "name": "default",
        "match": {"prefix": "/"},
        "decorator": {"operation": "a.com:80/*"},
        "route": {**action, "retryPolicy": retry},
    }
    host = {"name": "inbound|http|80", "domains": ["*"], "routes": [route]}
    assert configuration == {"name": "inbound|8080||", "virtualHosts": [host], "validateClusters": False}


@pytest.mark.parametrize(
    ("protocol", "retries", "expected"),
    [
        (Protocol.GRPC, None, None),
        (Protocol.GRPC_WEB, None, None),
        (Protocol.HTTP2, None, {"retryOn": "reset-before-request", "numRetries": 2}),
        (Protocol.HTTP, {"attempts": 0}, None),
        (Protocol.HTTP, {"attempts": 5, "retryOn": "5xx", "perTryTimeout": "1s"}, {"retryOn": "5xx", "numRetries": 5}),
        (Protocol.HTTP, {"attempts": 5, "retryOn": "reset"}, {"retryOn": "reset", "numRetries": 5}),
    ],
)
def test_inbound_retries(protocol: Protocol, retries: dict[str, Any] | None, expected: dict[str, Any] | None) -> None:
    policy = decode(retries, HTTPRetry) if retries is not None else None
    action = build_inbound_routes("c", "a.com", 80, protocol, policy).virtual_hosts[0].routes[0].route
    assert (json_format.MessageToDict(action.retry_policy) if action.HasField("retry_policy") else None) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OutboundPolicy("ALLOW_ANY"), ("allow_any", "PassthroughCluster")),
        (
            OutboundPolicy("ALLOW_ANY", Destination("e.com", "v1", PortSelector(8080))),
            ("allow_any", "outbound|8080|v1|e.com"),
        ),
        (OutboundPolicy("ALLOW_ANY_DYNAMIC_DNS"), ("allow_any_dynamic_dns", "AllowAnyDynamicDNSCluster")),
        (OutboundPolicy("REGISTRY_ONLY"), ("block_all", "")),
    ],
)
def test_catch_all_virtual_host(policy: OutboundPolicy, expected: tuple[str, str]) -> None:
    host = build_catch_all(policy, True, False)
    assert (host.name, host.routes[0].route.cluster) == expected
    assert list(host.domains) == ["*"]
    assert host.include_request_attempt_count
    assert host.routes[0].direct_response.status == (0 if expected[1] else 502)
