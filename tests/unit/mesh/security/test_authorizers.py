"""External authorizers: valid extension providers, and the effect of an invalid one on a workload."""

from __future__ import annotations

import pytest
from envoy.config.listener.v3 import listener_pb2
from google.protobuf import any_pb2

from pilot.lib.xds_types import LISTENER
from pilot.mesh.security.authorizers import Authorizer, authorizer
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import make, world
from testing.mesh.world import World, proxy

AUTHORIZER_SERVICE = make("Service", "judge", "{clusterIP: 10.96.0.9, ports: [{name: grpc, port: 9000}]}", "court")
HOST = "judge.court.svc.cluster.local"
GRPC, HTTP = (
    f"envoyExtAuthzGrpc: {{service: {HOST}, port: 9000}}",
    f"envoyExtAuthzHttp: {{service: court/{HOST}, port: 9000}}",
)


def providers(*entries: str) -> str:
    return f"{{extensionProviders: [{', '.join(f'{{{entry}}}' for entry in entries)}]}}"


@pytest.mark.parametrize(
    "status", [100, 200, 208, 226, 300, 305, 307, 308, 400, 417, 421, 424, 426, 428, 429, 431, 500, 508, 510, 511]
)
def test_status_on_error_accepts_envoy_status_codes(status: int) -> None:
    entry = f"name: judge, {GRPC}".replace("}", f", statusOnError: '{status}'}}")
    assert isinstance(authorizer(world(AUTHORIZER_SERVICE, mesh_config=providers(entry)).mesh, "judge"), Authorizer)


@pytest.mark.parametrize("kind", [GRPC, HTTP], ids=["grpc", "http"])
def test_authorizer_is_a_service_of_the_mesh(kind: str) -> None:
    result = authorizer(world(AUTHORIZER_SERVICE, mesh_config=providers(f"name: judge, {kind}")).mesh, "judge")
    assert isinstance(result, Authorizer)
    assert (result.hostname, result.port) == (HOST, 9000)


BAD = [
    ("name: other, " + GRPC, "no external authorizer judge"),
    ("name: judge, zipkin: {service: z, port: 1}", "no external authorizer judge"),
    ("name: judge, " + GRPC.replace("9000", "0"), "port: required"),
    ("name: judge, " + GRPC.replace("judge.court", "ghost.court"), "ghost.court.svc.cluster.local matches no service"),
    ("name: judge, " + HTTP.replace("court/", "far/"), "far/judge.court.svc.cluster.local matches no service"),
    ("name: judge, " + GRPC.replace("}", ", statusOnError: '999'}"), "999"),
    ("name: judge, " + GRPC.replace("}", ", statusOnError: none}"), "'none'"),
    ("name: judge, " + GRPC.replace("}", ", includeRequestBodyInCheck: {}}"), "maxRequestBytes"),
    ("name: judge, " + HTTP.replace("}", ", pathPrefix: check}"), "pathPrefix"),
    ("name: judge, " + HTTP.replace("}", ", headersToDownstreamOnDeny: ['*']}"), "header name *"),
    ("name: judge, " + HTTP.replace("}", ", timeout: -1s}"), "timeout"),
]


@pytest.mark.parametrize(("entry", "reason"), BAD, ids=[row[1] for row in BAD])
def test_invalid_authorizer_is_reported(entry: str, reason: str) -> None:
    result = authorizer(world(AUTHORIZER_SERVICE, mesh_config=providers(entry)).mesh, "judge")
    assert isinstance(result, str)
    assert reason in result


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("judge.court", f"matches no service; write {HOST}"),
        ("judge", f"matches no service; write {HOST} or judge.far.svc.cluster.local"),
        ("judge.gone", f"matches no service; write {HOST} or judge.far.svc.cluster.local"),
        (f"far/{HOST}", f"matches no service in that namespace; write court/{HOST}"),
        ("judge.example", "is a host of several namespaces; write a/judge.example or b/judge.example"),
        ("ghost", "matches no service; write the whole HOST or NAMESPACE/HOST"),
    ],
)
def test_missing_service_of_an_authorizer_names_those_that_may_be_meant(name: str, expected: str) -> None:
    entry = "{hosts: [judge.example], ports: [{number: 9000, name: http, protocol: HTTP}], resolution: DNS}"
    entries = [make("ServiceEntry", "judge", entry, namespace) for namespace in ("a", "b")]
    far = service("judge", "[{name: http, port: 9000}]", namespace="far")
    mesh = providers(f"name: judge, envoyExtAuthzGrpc: {{service: {name}, port: 9000}}")
    result = authorizer(world(AUTHORIZER_SERVICE, far, *entries, mesh_config=mesh).mesh, "judge")
    assert result == f"extension provider judge: {name} {expected}"


@pytest.mark.parametrize("name", ["Judge", "a.b", "-a", "a" * 64, "a_b"])
def test_authorizer_name_is_a_dns_label(name: str) -> None:
    assert isinstance(
        authorizer(world(AUTHORIZER_SERVICE, mesh_config=providers(f"name: '{name}', {GRPC}")).mesh, name), str
    )


# -- filters of a workload -------------------------------------------------------------------------------------------------


def policy(name: str, provider: str, paths: str = "/x") -> object:
    rules = f"[{{to: [{{operation: {{paths: [{paths}]}}}}]}}]"
    return make("AuthorizationPolicy", name, f"{{action: CUSTOM, provider: {{name: {provider}}}, rules: {rules}}}")


def filters(harness: World, node_id: str) -> list[str]:
    """Return the authorization filters of the TCP chain for all ports. HTTP filters are built alike."""
    listener = listener_pb2.Listener()
    any_pb2.Any.FromString(harness.resources(node_id)[LISTENER]["virtualInbound"].any).Unpack(listener)
    chain = next(c for c in listener.filter_chains if c.name == "virtualInbound")
    return [
        f.name.removeprefix("envoy.filters.network.") for f in chain.filters if "authz" in f.name or "rbac" in f.name
    ]


def start(*policies: object, mesh: str, **environ: str) -> tuple[World, str]:
    harness = world(
        AUTHORIZER_SERVICE, service("web", "[{name: tcp, port: 80}]"), WEB_POD, *policies, mesh_config=mesh, **environ
    )  # type: ignore[arg-type]
    return harness, harness.connect(proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web"}))


BOTH = providers(f"name: one, {GRPC}", f"name: two, {GRPC}")


def test_tcp_connections_use_only_grpc_authorizers() -> None:
    mesh = providers(f"name: one, {GRPC}", f"name: two, {HTTP}")
    assert filters(*start(policy("p", "one"), mesh=mesh)) == ["rbac", "ext_authz"]
    assert filters(*start(policy("p", "two"), mesh=mesh)) == []


def test_missing_authorizer_denies() -> None:
    harness, node = start(policy("p", "ghost"), mesh=BOTH)
    assert filters(harness, node) == ["rbac"]
    assert b"-deny-due-to-bad-CUSTOM-action" in harness.resources(node)[LISTENER]["virtualInbound"].any


def test_several_authorizers_deny_by_default() -> None:
    harness, node = start(policy("p", "one"), policy("q", "two"), mesh=BOTH)
    assert filters(harness, node) == ["rbac", "rbac"]
    assert harness.resources(node)[LISTENER]["virtualInbound"].any.count(b"-deny-due-to-bad-CUSTOM-action") > 1


def test_several_authorizers_are_chained_when_enabled() -> None:
    several = {"PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS": "true"}
    assert filters(*start(policy("p", "one"), policy("q", "two"), mesh=BOTH, **several)) == [
        "rbac",
        "ext_authz",
        "rbac",
        "ext_authz",
    ]
