"""Problems between objects and connected proxies."""

from __future__ import annotations

from testing.mesh.objects import make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy, rows_of
from testing.security.credentials import tls_secret
from tests.unit.mesh.analysis.test_checks import BASE, CERTIFICATE, HTTPS, codes_and_paths, gw, request, to, vs


def test_conflicting_servers_of_a_router_are_reported() -> None:
    harness = world(*BASE, gw(), gw(port="{number: 80, name: tcp, protocol: TCP}", name="other"))
    assert problems_of(harness) == ()
    harness.connect(proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"}))
    (problem,) = problems_of(harness)
    assert (problem.code, problem.object.name, problem.path) == ("gateway-conflict", "other", "spec.servers[0]")


def test_unregistered_router_is_a_workload_of_its_gateway() -> None:
    harness = world(*BASE, gw(selector="{istio: vm}"))
    assert codes_and_paths(problems_of(harness)) == [("selector-without-workloads", "spec.selector")]
    harness.connect(proxy("router", "vm-0", "edge", "10.9.9.9", {"istio": "vm"}))
    assert problems_of(harness) == ()


def test_unregistered_router_is_a_policy_target() -> None:
    harness = world(*BASE, request("{targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: vm}}", "edge"))
    assert codes_and_paths(problems_of(harness)) == [("target-not-found", "spec.targetRef.name")]
    harness.connect(proxy("router", "vm-0", "edge", "10.9.9.9", {"gateway.networking.k8s.io/gateway-name": "vm"}))
    assert problems_of(harness) == ()


def test_namespace_exists_while_a_proxy_is_in_it() -> None:
    harness = world(*BASE, vs(f"{{hosts: [b.com], exportTo: [far], {to('api')}}}"))
    assert codes_and_paths(problems_of(harness)) == [("namespace-not-found", "spec.exportTo[0]")]
    node_id = harness.connect(proxy("sidecar", "far-0", "far", "10.9.9.8", {}))
    assert problems_of(harness) == ()
    harness.mesh.commit([(harness.mesh.proxies, node_id, None)])
    assert codes_and_paths(problems_of(harness)) == [("namespace-not-found", "spec.exportTo[0]")]


def test_second_certificate_for_a_host_of_a_router_is_reported() -> None:
    certificate = tls_secret("other", CERTIFICATE)
    first, second = (
        gw("x.com", HTTPS, tls=f"mode: SIMPLE, credentialName: {name}", name=name) for name in ("cert", "other")
    )
    harness = world(*BASE, certificate, first, second)
    harness.connect(proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"}))
    (problem,) = problems_of(harness)
    assert (problem.code, problem.object.name, problem.path) == ("gateway-conflict", "other", "spec.servers[0]")
    assert "x.com" in problem.message
    harness.set(rows_of([gw("y.com", HTTPS, tls="mode: SIMPLE, credentialName: other", name="other")]))
    assert problems_of(harness) == ()


def test_selectors_are_not_compared_with_routers_alone() -> None:
    policy = make("AuthorizationPolicy", "p", "{selector: {matchLabels: {app: web}}}")
    harness = world(policy)
    harness.connect(proxy("router", "edge-0", "a", "10.1.0.9", {"istio": "ingress"}))
    harness.connect(proxy("sidecar", "web-0", "a", "10.1.0.8", {"app": "web"}))
    assert problems_of(harness) == ()
