"""The placement of proxies required by rules and services."""

from __future__ import annotations

import pytest

from pilot.lib import labels as label
from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.facets import LocationFacet
from pilot.mesh.proxies import classify
from pilot.mesh.proxies.placement import Placement, placement
from testing.mesh.listeners import service
from testing.mesh.objects import make, world
from testing.mesh.world import proxy


def locality_rule(fields: str) -> dict[str, object]:
    policy = f"{{outlierDetection: {{}}, loadBalancer: {{simple: ROUND_ROBIN, localityLbSetting: {{{fields}}}}}}}"
    return make("DestinationRule", "r", f"{{host: x.example, trafficPolicy: {policy}}}")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            "failoverPriority: [kubernetes.io/hostname, zoo]",
            Placement(locality=True, node=True, labels=frozenset({"zoo"})),
        ),
        ("failoverPriority: [topology.kubernetes.io/zone]", Placement(locality=True)),
        (
            "failoverPriority: [topology.istio.io/network]",
            Placement(locality=True, network=True, labels=frozenset({label.NETWORK})),
        ),
        ("failoverPriority: [zoo]", Placement(locality=True, labels=frozenset({"zoo"}))),
    ],
)
def test_placement_required_by_failover_priority(fields: str, expected: Placement) -> None:
    assert placement(world(locality_rule(fields), mesh_config="{localityLbSetting: {enabled: false}}").mesh) == expected


@pytest.mark.parametrize(
    ("preference", "expected"),
    [
        ("PreferSameZone", Placement(locality=True, network=True, labels=frozenset({label.NETWORK}))),
        ("PreferSameNode", Placement(locality=True, node=True, network=True, labels=frozenset({label.NETWORK}))),
    ],
)
def test_placement_required_by_traffic_distribution(preference: str, expected: Placement) -> None:
    web = service("web", "[{name: http, port: 80}]")
    web["spec"]["trafficDistribution"] = preference
    assert placement(world(web, mesh_config="{localityLbSetting: {enabled: false}}").mesh) == expected


def test_placement_required_by_internal_traffic_policy() -> None:
    web = service("web", "[{name: http, port: 80}]")
    web["spec"]["internalTrafficPolicy"] = "Local"
    config = "{localityLbSetting: {enabled: false}}"
    assert placement(world(web, mesh_config=config).mesh) == Placement(node=True)
    assert placement(world(mesh_config=config).mesh) == Placement()


@pytest.mark.parametrize(
    "required", [Placement(), Placement(locality=True), Placement(node=True), Placement(network=True)], ids=str
)
def test_location_facet_has_only_the_required_placement(monkeypatch: pytest.MonkeyPatch, required: Placement) -> None:
    harness = world()
    node_id = harness.connect(
        proxy(
            "sidecar",
            "web-0",
            "a",
            "10.0.0.1",
            NODE_NAME="n1",
            NETWORK="net",
            CLUSTER_ID="c2",
            REQUESTED_NETWORK_VIEW="x,y",
        )
    )
    client = harness.mesh.proxies.peek(node_id)
    assert client is not None
    locality, network = Locality("r", "z", "s"), "net"
    monkeypatch.setattr(classify, "placement", lambda db: required)
    monkeypatch.setattr(classify, "proxy_locality", lambda db, node: locality)
    monkeypatch.setattr(classify, "proxy_network", lambda db, node: network)
    assert classify._location(harness.mesh, client, node_id) == LocationFacet(
        network=network if required.network else "",
        cluster_id="c2",
        locality=locality if required.locality else Locality(),
        node="n1" if required.node else "",
        ipv4=True,
        ipv6=False,
        networks=frozenset({"x", "y"}),
    )
