"""Stock Envoys in two networks: the ingress gateway sends a nested HBONE tunnel through the east-west gateway to the waypoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.processes.process import eventually
from tests.e2e.test_waypoints import ALICE, EVE, GATEWAY_NAME, Mesh

EAST_WEST = "10.79.1.4"
OBJECTS = f"""---
kind: Namespace
apiVersion: v1
metadata: {{name: istio-system, labels: {{topology.istio.io/network: there}}}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: gateway-there, namespace: istio-system, labels: {{topology.istio.io/network: there}}}}
spec:
  gatewayClassName: istio-remote
  addresses: [{{value: {EAST_WEST}}}]
  listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]
---
kind: Pod
apiVersion: v1
metadata:
  name: east-west-0
  namespace: istio-system
  labels: {{{GATEWAY_NAME}: east-west, gateway.istio.io/managed: istio.io-eastwest-controller, topology.istio.io/network: there}}
spec: {{serviceAccountName: east-west}}
status: {{podIP: {EAST_WEST}, podIPs: [{{ip: {EAST_WEST}}}], phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}
"""
MESH = "serviceScopeConfigs: [{servicesSelector: {matchExpressions: [{key: istio.io/global, operator: In, values: ['true']}]}, scope: GLOBAL}]\n"
ENVIRON = {"AMBIENT_ENABLE_MULTI_NETWORK": "true", "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "true"}


class Networks(Mesh):
    """The clients are in network `here`, and all others in `there`, behind an east-west gateway."""

    mesh_config, environ, more = MESH, ENVIRON, OBJECTS
    services = "istio.io/global: 'true', istio.io/ingress-use-waypoint: 'true'"
    client_labels = {"istio": "ingressgateway"}
    client_metadata, metadata = {"NETWORK": "here"}, {"NETWORK": "there"}

    def add(self) -> None:
        self.east_west = self.network.attach(EAST_WEST)
        labels = {GATEWAY_NAME: "east-west", "gateway.istio.io/managed": "istio.io-eastwest-controller"}
        self.envoys["east-west-0"] = self._envoy(
            "waypoint", "east-west-0", "istio-system", EAST_WEST, "east-west", self.east_west, labels, self.metadata
        )
        self.hosts["east-west-0"] = self.east_west


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networks]:
    mesh = Networks(tmp_path_factory.mktemp("networks"))
    try:
        eventually(lambda: mesh.ask(ALICE).status == 200, 60, "a request succeeds")
        eventually(lambda: mesh.ask(EVE).status == 403, 60, "the other client is denied")
        yield mesh
    finally:
        mesh.stop()


def test_no_configuration_is_rejected(networks: Networks) -> None:
    assert {name: networks.host_of(name).run(envoy.rejected) for name, envoy in networks.envoys.items()} == {
        n: {} for n in networks.envoys
    }


def test_requests_pass_the_east_west_gateway_and_the_waypoint(networks: Networks) -> None:
    assert networks.ask(ALICE).status == 200
    assert sum(networks.stats("east-west-0", "^cluster.forward_inner_connect;?.upstream_cx_total$").values()) > 0
    assert (
        networks.stats("waypoint-0", "^http.connect_terminate.downstream_rq_2xx$")[
            "http.connect_terminate.downstream_rq_2xx"
        ]
        > 0
    )
    assert sum(networks.stats("alice", "^cluster.inner_connect_originate;?.upstream_cx_total$").values()) > 0
    assert sum(networks.stats("alice", "^cluster.connect_originate;?.upstream_cx_total$").values()) == 0


def test_waypoint_sees_the_identity_of_the_inner_tunnel(networks: Networks) -> None:
    assert networks.ask(ALICE, method="POST").status == 403
    assert networks.ask(EVE).status == 403
