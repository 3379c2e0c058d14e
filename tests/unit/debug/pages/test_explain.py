"""Explanations of resources by the objects that they are built from."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

from pilot.debug.pages import explain as explain_page_module
from pilot.debug.pages.explain import explain_page
from pilot.ingest.files.field_lines import find_lines
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.world import World, proxy

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: tea, namespace: shop}
spec: {clusterIP: 10.1.0.1, selector: {app: tea}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cups, namespace: shop}
spec: {clusterIP: 10.1.0.2, selector: {app: cups}, ports: [{name: tcp, port: 90}]}
---
apiVersion: v1
kind: Pod
metadata: {name: tea-1, namespace: shop, labels: {app: tea}}
spec: {serviceAccountName: brewer, nodeName: node-1, containers: []}
status: {podIP: 10.2.0.1, podIPs: [{ip: 10.2.0.1}], phase: Running}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tea-1, namespace: shop, labels: {kubernetes.io/service-name: tea}}
addressType: IPv4
endpoints: [{addresses: [10.2.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: tea-1, namespace: shop}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tea-rule, namespace: shop}
spec: {host: tea, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cups-rule, namespace: shop}
spec: {host: cups, trafficPolicy: {loadBalancer: {simple: RANDOM}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: tea-routes, namespace: shop}
spec: {hosts: [tea], http: [{route: [{destination: {host: tea, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: own, namespace: shop}
spec: {egress: [{hosts: ["./*"]}]}
"""
SHOP = {("Service", "tea"), ("Service", "cups"), ("DestinationRule", "tea-rule"), ("DestinationRule", "cups-rule")}


@pytest.fixture(scope="module")
def explain() -> Any:
    world = World()
    world.apply(OBJECTS)
    sidecar = proxy("sidecar", "tea-1", "shop", "10.2.0.1", {"app": "tea"})
    node_id = world.connect(sidecar)
    world.resources(node_id)
    assert not world.failures
    page_sources = sources(world.mesh, FakeConnection("tea-1.shop-1", node_id, sidecar))

    def explain(resource: str, short_type: str, part: str = "objects") -> set[tuple[str, str]]:
        (explanation,) = asyncio.run(
            explain_page(page_sources, {"proxyID": "tea-1", "resource": resource, "type": short_type})
        ).make()["explanations"]
        return {(item["kind"], item["name"]) for item in explanation[part]}

    return explain


def test_cluster(explain: Any) -> None:
    objects = explain("outbound|80|v1|tea.shop.svc.cluster.local", "cds")
    assert objects & SHOP == {("Service", "tea"), ("DestinationRule", "tea-rule")}


def test_endpoints(explain: Any) -> None:
    objects = explain("outbound|80||tea.shop.svc.cluster.local", "eds")
    assert {("EndpointSlice", "tea-1"), ("Pod", "tea-1"), ("Service", "tea")} <= objects
    assert not objects & {("Service", "cups"), ("DestinationRule", "cups-rule")}


def test_listener(explain: Any) -> None:
    assert explain("10.1.0.2_90", "lds") & SHOP == {("Service", "cups")}


def test_routes(explain: Any) -> None:
    objects = explain("80", "rds")
    assert {("VirtualService", "tea-routes"), ("Service", "tea")} <= objects
    assert ("DestinationRule", "cups-rule") not in objects


def test_proxy_attributes(explain: Any) -> None:
    assert {("Service", "tea"), ("Pod", "tea-1")} <= explain("virtualInbound", "lds", "proxy")
    assert ("VirtualService", "tea-routes") not in explain("virtualInbound", "lds")


def test_objects_have_topics_and_places(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(OBJECTS)
    world = World()
    world.apply(OBJECTS)
    sidecar = proxy("sidecar", "tea-1", "shop", "10.2.0.1", {"app": "tea"})
    node_id = world.connect(sidecar)
    world.resources(node_id)
    page_sources = sources(
        world.mesh,
        FakeConnection("tea-1.shop-1", node_id, sidecar),
        document_of=lambda ref: str(file) if ref.kind.name != "Pod" else "Kubernetes",
        find_lines=find_lines,
    )
    query = {"proxyID": "tea-1", "resource": "80", "type": "rds"}
    (explanation,) = asyncio.run(explain_page(page_sources, query)).make()["explanations"]
    objects = {o["kind"]: o for o in explanation["objects"] if o["name"] in ("tea", "tea-routes")}
    lines = OBJECTS.splitlines()
    for kind, name in (("VirtualService", "tea-routes"), ("Service", "tea")):
        place = objects[kind]["file"], objects[kind]["line"]
        assert place == (str(file), next(n for n, line in enumerate(lines, 1) if f"{{name: {name}," in line))
    assert objects["VirtualService"]["via"] == ["routes", "VirtualServices of the host"]
    assert all("file" not in o for o in explanation["proxy"] if o["kind"] == "Pod")


def test_object_identity() -> None:
    reference = {"group": "g", "kind": "K", "cluster": "c", "namespace": "n", "name": "x", "through": ["y"]}
    assert explain_page_module._identity(reference) == ("g", "K", "c", "n", "x")
    assert explain_page_module._identity({"kind": "K", "name": "x"}) == ("", "K", "", "", "x")
