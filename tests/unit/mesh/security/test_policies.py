"""Policies of a workload, and the listeners and filters that follow from them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pilot.config.kinds.istio import (
    AUTHORIZATION_POLICY,
    ENVOY_FILTER,
    PEER_AUTHENTICATION,
    REQUEST_AUTHENTICATION,
    TRAFFIC_EXTENSION,
)
from pilot.envoy.filter_phase import Phase, in_order
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import LISTENER
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.proxies.classify import inbound_facet, outbound_listeners_facet
from pilot.mesh.proxies.router import gateway_listeners_facet
from pilot.mesh.security.policies import POLICIES, policies_of, proxy_policies
from testing.mesh.listeners import WEB_POD, http_filters, listeners, service
from testing.mesh.objects import make, pod, world
from testing.mesh.world import World, proxy

WEB = frozenset((("app", "web"),))
SUBJECT = PolicySubjectKey("a", WEB)
WEB_ONLY, OTHER_ONLY = "selector: {matchLabels: {app: web}}", "selector: {matchLabels: {app: other}}"
JWT = "jwtRules: [{issuer: me, jwks: '{\"keys\": []}'}]"
MESH, HERE, ELSEWHERE = "istio-system", "a", "b"


def applied(kind: str, *policies: Any, subject: PolicySubjectKey = SUBJECT) -> list[str]:
    """Return the names of the policies that apply, in order."""
    return [key.name for key in policies_of(world(*policies).mesh, subject).of(kind)]


def policy(kind: str, name: str, namespace: str, spec: str = "", day: int = 1) -> Any:
    selects = (
        spec.replace("selector: {matchLabels", "workloadSelector: {labels") if kind == ENVOY_FILTER.id.name else spec
    )
    return make(kind, name, f"{{{selects}}}", namespace, day)


LEVELS = [
    ("web", HERE, WEB_ONLY, 1),
    ("younger-web", HERE, WEB_ONLY, 2),
    ("here", HERE, "", 1),
    ("younger-here", HERE, "", 2),
    ("other", HERE, OTHER_ONLY, 1),
    ("mesh", MESH, "", 1),
    ("younger-mesh", MESH, "", 2),
    ("mesh-web", MESH, WEB_ONLY, 1),
    ("elsewhere", ELSEWHERE, "", 1),
]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (PEER_AUTHENTICATION.id.name, ["mesh", "here", "web"]),
        (
            REQUEST_AUTHENTICATION.id.name,
            ["mesh", "mesh-web", "younger-mesh", "here", "web", "younger-here", "younger-web"],
        ),
        (
            AUTHORIZATION_POLICY.id.name,
            ["mesh", "mesh-web", "younger-mesh", "here", "web", "younger-here", "younger-web"],
        ),
        (ENVOY_FILTER.id.name, ["mesh", "mesh-web", "younger-mesh", "here", "web", "younger-here", "younger-web"]),
    ],
)
def test_mesh_policies_come_before_namespace_policies(kind: str, names: list[str]) -> None:
    """One PeerAuthentication per level applies, and a selector in the root namespace is ignored. All other kinds apply."""
    assert applied(kind, *(policy(kind, *level) for level in LEVELS)) == names


@pytest.mark.parametrize("kind", POLICIES)
def test_result_is_independent_of_arrival_order(kind: str) -> None:
    spec = ", lua: {inlineCode: 'x = 1'}" if kind == TRAFFIC_EXTENSION.id.name else ""
    objects = [
        policy(kind, name, namespace, (policy_spec + spec).removeprefix(", "), day)
        for name, namespace, policy_spec, day in LEVELS[:4]
    ]
    assert len({tuple(applied(kind, *order)) for order in itertools.permutations(objects)}) == 1


@pytest.mark.parametrize(
    ("kind", "names"), [(PEER_AUTHENTICATION.id.name, ["mesh"]), (REQUEST_AUTHENTICATION.id.name, ["mesh", "mesh-web"])]
)
def test_root_namespace_policies_apply_once(kind: str, names: list[str]) -> None:
    policies = (policy(kind, *level) for level in LEVELS if level[:1] != ("younger-mesh",))
    assert applied(kind, *policies, subject=PolicySubjectKey(MESH, WEB)) == names


def to_gateway(name: str) -> str:
    return f"targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: {name}}}], {JWT}"


@pytest.mark.parametrize(
    ("spec", "namespace", "applies"),
    [
        (to_gateway("edge"), HERE, True),
        (to_gateway("other"), HERE, False),
        (to_gateway("edge"), MESH, False),
        (f"targetRef: {{group: gateway.networking.k8s.io, kind: Gateway, name: edge}}, {JWT}", HERE, True),
        (f"targetRefs: [{{group: '', kind: Service, name: edge}}], {JWT}", HERE, False),
    ],
)
def test_policy_with_targets_applies_to_the_router_of_that_gateway(spec: str, namespace: str, applies: bool) -> None:
    harness = world(policy(REQUEST_AUTHENTICATION.id.name, "p", namespace, spec))
    labels = {"gateway.networking.k8s.io/gateway-name": "edge"}
    router = harness.connect(proxy("router", "edge-0", HERE, "10.9.0.1", labels))
    unnamed = harness.connect(proxy("router", "old-0", HERE, "10.9.0.2", {"istio": "edge"}))
    sidecar = harness.connect(proxy("sidecar", "web-0", HERE, "10.9.0.3", labels))
    assert (
        bool(gateway_listeners_facet(harness.mesh, router).listening.policies.of(REQUEST_AUTHENTICATION.id.name))
        is applies
    )
    assert not proxy_policies(harness.mesh, unnamed).applied
    assert not proxy_policies(harness.mesh, sidecar).applied


@pytest.mark.parametrize("flag", ["true", "false"])
def test_selector_policies_apply_to_gateway_api_routers_by_setting(flag: str) -> None:
    objects = (
        policy(AUTHORIZATION_POLICY.id.name, "all", HERE),
        policy(AUTHORIZATION_POLICY.id.name, "web", HERE, WEB_ONLY),
    )
    harness = world(*objects, ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY=flag)
    edge = harness.connect(
        proxy("router", "edge-0", HERE, "10.9.0.1", {"gateway.networking.k8s.io/gateway-name": "edge", "app": "web"})
    )
    old = harness.connect(proxy("router", "old-0", HERE, "10.9.0.2", {"app": "web"}))
    applied = [
        [key.name for key in proxy_policies(harness.mesh, node).of(AUTHORIZATION_POLICY.id.name)]
        for node in (edge, old)
    ]
    assert applied == [["all", "web"] if flag == "true" else [], ["all", "web"]]


def test_workloads_with_the_same_policies_share_facets() -> None:
    """Labels only decide which policies apply."""
    harness = world(
        policy(REQUEST_AUTHENTICATION.id.name, "mesh", MESH, JWT),
        policy(REQUEST_AUTHENTICATION.id.name, "x", HERE, f"{OTHER_ONLY}, {JWT}"),
    )
    one, two = (harness.connect(proxy("sidecar", f"p-{n}", HERE, f"10.9.0.{n}", {"app": f"app-{n}"})) for n in (1, 2))
    assert proxy_policies(harness.mesh, one) == proxy_policies(harness.mesh, two)
    assert inbound_facet(harness.mesh, one).listening == inbound_facet(harness.mesh, two).listening


def test_server_policies_are_not_in_the_outbound_facet() -> None:
    harness = world(
        policy(PEER_AUTHENTICATION.id.name, "p", HERE, "mtls: {mode: STRICT}"),
        policy(REQUEST_AUTHENTICATION.id.name, "r", HERE, JWT),
    )
    node = harness.connect(proxy("sidecar", "web-0", HERE, "10.9.0.1", {"app": "web"}))
    assert not outbound_listeners_facet(harness.mesh, node).listening.policies.applied
    assert [kind for kind, _ in inbound_facet(harness.mesh, node).listening.policies.applied] == [
        REQUEST_AUTHENTICATION.id.name
    ]
    assert [kind for kind, _ in inbound_facet(harness.mesh, node).policies.applied] == [PEER_AUTHENTICATION.id.name]


def test_policy_that_no_longer_applies_is_removed() -> None:
    """Edits of the selector and of the content take effect."""
    rule = policy(REQUEST_AUTHENTICATION.id.name, "r", HERE, f"{WEB_ONLY}, {JWT}")
    harness = world(service("web", "[{name: http, port: 80}]"), WEB_POD, rule)
    node = harness.connect(proxy("sidecar", "web-0", HERE, "10.1.0.1", {"app": "web"}))

    def checks_tokens() -> bool:
        return b"envoy.filters.http.jwt_authn" in harness.resources(node)[LISTENER]["virtualInbound"].any

    assert checks_tokens()
    harness.apply_objects(policy(REQUEST_AUTHENTICATION.id.name, "r", HERE, f"{OTHER_ONLY}, {JWT}"))
    assert not checks_tokens()
    harness.apply_objects(policy(REQUEST_AUTHENTICATION.id.name, "r", HERE, WEB_ONLY))
    assert not checks_tokens()
    harness.apply_objects(rule)
    assert checks_tokens()


def test_inbound_listener_follows_peer_authentication_edits() -> None:
    """After edits of mode, port, selector, age, namespace and labels the listener equals that of a fresh start."""
    web = service("web", "[{name: http, port: 80, targetPort: 8080}]")
    strict, off = "mtls: {mode: STRICT}", "mtls: {mode: DISABLE}"
    harness = world(web, WEB_POD)
    node = harness.connect(proxy("sidecar", "web-0", HERE, "10.1.0.1", {"app": "web"}))
    edits = [
        policy(PEER_AUTHENTICATION.id.name, "mesh", MESH, strict),
        policy(PEER_AUTHENTICATION.id.name, "mesh", MESH, off),
        policy(PEER_AUTHENTICATION.id.name, "here", HERE, strict, 2),
        policy(PEER_AUTHENTICATION.id.name, "older", HERE, off, 1),
        policy(PEER_AUTHENTICATION.id.name, "web", HERE, f"{OTHER_ONLY}, {strict}"),
        policy(PEER_AUTHENTICATION.id.name, "web", HERE, f"{WEB_ONLY}, {strict}"),
        policy(PEER_AUTHENTICATION.id.name, "web", HERE, f"{WEB_ONLY}, {strict}, portLevelMtls: {{8080: {off[6:]}}}"),
        pod("web-0", "10.1.0.1", labels="{app: other}"),
        WEB_POD,
    ]
    configurations = set()
    for edit in edits:
        harness.apply_objects(edit)
        fresh = World()
        fresh.set(harness.rows())
        fresh_node = fresh.connect(proxy("sidecar", "web-0", HERE, "10.1.0.1", {"app": "web"}))
        configuration = harness.resources(node)[LISTENER]["virtualInbound"].any
        assert configuration == fresh.resources(fresh_node)[LISTENER]["virtualInbound"].any, edit
        configurations.add(configuration)
    assert len(configurations) > 3


def test_root_namespace_change_changes_the_policies() -> None:
    harness = world(WEB_POD, policy(PEER_AUTHENTICATION.id.name, "x", "root", "mtls: {mode: STRICT}"))
    node = harness.connect(proxy("sidecar", "web-0", HERE, "10.1.0.1", {"app": "web"}))
    before = harness.resources(node)[LISTENER]["virtualInbound"].any
    mesh, _ = decode_mesh_config([{"rootNamespace": "root"}])
    harness.mesh.commit([(harness.mesh.mesh, "mesh", mesh)])
    assert harness.resources(node)[LISTENER]["virtualInbound"].any != before
    assert [key.name for key in proxy_policies(harness.mesh, node).of(PEER_AUTHENTICATION.id.name)] == ["x"]


def test_metadata_exchange_comes_before_jwt_authn() -> None:
    by_name = listeners(
        service("web", "[{name: http, port: 80}]"), WEB_POD, policy(REQUEST_AUTHENTICATION.id.name, "r", HERE, JWT)
    )
    names = [n.rpartition(".")[2] for n in http_filters(by_name["virtualInbound"])]
    assert names == ["metadata_exchange", "jwt_authn", "grpc_stats", "fault", "cors", "router"]


def test_filters_of_one_phase_keep_their_order() -> None:
    filters = [
        (Phase.TERMINAL, "router"),
        (Phase.AUTHZ, "deny"),
        (Phase.AUTHN, "jwt"),
        (Phase.AUTHZ, "allow"),
        (Phase.PEER_METADATA, "peer"),
    ]
    assert in_order(filters) == ["peer", "jwt", "deny", "allow", "router"]
