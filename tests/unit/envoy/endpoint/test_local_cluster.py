"""Endpoints of the local cluster."""

from __future__ import annotations

from typing import Any

from envoy.config.endpoint.v3 import endpoint_pb2
from google.protobuf import any_pb2

from pilot.lib.xds_types import ENDPOINT
from testing.mesh.objects import at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy

SERVICE = make(
    "Service",
    "alpha",
    "{clusterIP: 10.96.0.1, selector: {app: alpha}, ports: [{name: http, port: 80, targetPort: 8080}]}",
)
NODES = [
    make("Node", f"n{i}", labels=f"{{topology.kubernetes.io/region: r{i // 2}, topology.kubernetes.io/zone: z{i}}}")
    for i in (0, 1, 2)
]
LABELS = "{app: alpha, pod-template-hash: h1, service.istio.io/workload-name: alpha}"


def shop_world() -> World:
    return world(
        SERVICE,
        *NODES,
        pod("own", "10.1.0.1", labels=LABELS, spec="{nodeName: n0}"),
        pod("zone", "10.1.0.2", labels=LABELS, spec="{nodeName: n1}"),
        pod("region", "10.1.0.3", labels=LABELS, spec="{nodeName: n2}"),
        pod("older", "10.1.0.4", labels=LABELS.replace("h1", "h0"), spec="{nodeName: n0}"),
        pod(
            "other",
            "10.1.0.5",
            labels=LABELS.replace("workload-name: alpha", "workload-name: beta"),
            spec="{nodeName: n0}",
        ),
        endpoint_slice(
            "alpha", *(at(f"10.1.0.{i}", name) for i, name in enumerate(("own", "zone", "region", "older", "other"), 1))
        ),
    )


def addresses(world: World, **metadata: Any) -> list[str] | None:
    key = world.connect(proxy("sidecar", "own", "a", "10.1.0.1", WORKLOAD_NAME="alpha", **metadata))
    resource = world.resources(key)[ENDPOINT].get("local_cluster")
    if resource is None:
        return None
    assignment = endpoint_pb2.ClusterLoadAssignment.FromString(any_pb2.Any.FromString(resource.any).value)
    return [e.endpoint.address.socket_address.address for group in assignment.endpoints for e in group.lb_endpoints]


def test_endpoints_of_the_same_workload_revision_and_region() -> None:
    assert addresses(shop_world(), ENABLE_SELF_DISCOVERY="true") == ["10.1.0.1", "10.1.0.2"]


def test_self_discovery_is_opt_in() -> None:
    assert addresses(shop_world()) is None


def test_proxy_without_service_has_no_endpoints() -> None:
    assert addresses(world(), ENABLE_SELF_DISCOVERY="true") == []
