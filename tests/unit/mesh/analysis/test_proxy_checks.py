"""Problems between objects and the proxies that are connected."""

from __future__ import annotations

from testing.mesh.objects import world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy, rows_of
from testing.security.credentials import tls_secret
from tests.unit.mesh.analysis.test_checks import BASE, CERTIFICATE, HTTPS, gw, request, shown, to, vs


def test_servers_that_conflict_are_told_where_a_router_has_both() -> None:
    made = world(*BASE, gw(), gw(port="{number: 80, name: tcp, protocol: TCP}", name="other"))
    assert problems_of(made) == ()
    made.connect(proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"}))
    (problem,) = problems_of(made)
    assert (problem.code, problem.object.name, problem.path) == ("gateway-conflict", "other", "spec.servers[0]")


def test_a_router_that_no_registry_knows_is_a_workload_of_its_gateway() -> None:
    made = world(*BASE, gw(selector="{istio: vm}"))
    assert shown(problems_of(made)) == [("selector-without-workloads", "spec.selector")]
    made.connect(proxy("router", "vm-0", "edge", "10.9.9.9", {"istio": "vm"}))
    assert problems_of(made) == ()


def test_a_router_that_no_registry_knows_is_the_target_of_its_policies() -> None:
    made = world(*BASE, request("{targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: vm}}", "edge"))
    assert shown(problems_of(made)) == [("target-not-found", "spec.targetRef.name")]
    made.connect(proxy("router", "vm-0", "edge", "10.9.9.9", {"gateway.networking.k8s.io/gateway-name": "vm"}))
    assert problems_of(made) == ()


def test_a_namespace_is_there_while_a_proxy_is_in_it() -> None:
    made = world(*BASE, vs(f"{{hosts: [b.com], exportTo: [far], {to('api')}}}"))
    assert shown(problems_of(made)) == [("namespace-not-found", "spec.exportTo[0]")]
    node_id = made.connect(proxy("sidecar", "far-0", "far", "10.9.9.8", {}))
    assert problems_of(made) == ()
    made.mesh.commit([(made.mesh.proxies, node_id, None)])
    assert shown(problems_of(made)) == [("namespace-not-found", "spec.exportTo[0]")]


def test_a_second_certificate_for_a_host_is_told_where_a_router_has_both() -> None:
    again = tls_secret("other", CERTIFICATE)
    first, second = (
        gw("x.com", HTTPS, tls=f"mode: SIMPLE, credentialName: {name}", name=name) for name in ("cert", "other")
    )
    made = world(*BASE, again, first, second)
    made.connect(proxy("router", "edge-0", "edge", "10.1.0.9", {"istio": "ingress"}))
    (problem,) = problems_of(made)
    assert (problem.code, problem.object.name, problem.path) == ("gateway-conflict", "other", "spec.servers[0]")
    assert "x.com" in problem.message
    made.set(rows_of([gw("y.com", HTTPS, tls="mode: SIMPLE, credentialName: other", name="other")]))
    assert problems_of(made) == ()
