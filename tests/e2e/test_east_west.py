"""Stock Envoys of two networks: a gateway of one sends a tunnel in a tunnel to the gateway of the other, which hands on the inner one to the waypoint
of the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.processes.process import eventually
from tests.e2e.test_waypoints import ALICE, EVE, GATEWAY_NAME, Mesh

PASSAGE = "10.79.1.4"
OBJECTS = f"""---
kind: Namespace
apiVersion: v1
metadata: {{name: istio-system, labels: {{topology.istio.io/network: there}}}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: into-there, namespace: istio-system, labels: {{topology.istio.io/network: there}}}}
spec:
  gatewayClassName: istio-remote
  addresses: [{{value: {PASSAGE}}}]
  listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]
---
kind: Pod
apiVersion: v1
metadata:
  name: passage-0
  namespace: istio-system
  labels: {{{GATEWAY_NAME}: passage, gateway.istio.io/managed: istio.io-eastwest-controller, topology.istio.io/network: there}}
spec: {{serviceAccountName: passage}}
status: {{podIP: {PASSAGE}, podIPs: [{{ip: {PASSAGE}}}], phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}
"""
MESH = "serviceScopeConfigs: [{servicesSelector: {matchExpressions: [{key: istio.io/global, operator: In, values: ['true']}]}, scope: GLOBAL}]\n"
ENVIRON = {"AMBIENT_ENABLE_MULTI_NETWORK": "true", "AMBIENT_ENABLE_MULTI_NETWORK_INGRESS": "true"}


class Networks(Mesh):
    """The clients are in the network `here`, all others in `there`, behind a gateway of their own."""

    mesh_config, environ, more = MESH, ENVIRON, OBJECTS
    services = "istio.io/global: 'true', istio.io/ingress-use-waypoint: 'true'"
    client_labels = {"istio": "ingressgateway"}
    client_metadata, metadata = {"NETWORK": "here"}, {"NETWORK": "there"}

    def add(self) -> None:
        self.passage = self.network.attach(PASSAGE)
        labels = {GATEWAY_NAME: "passage", "gateway.istio.io/managed": "istio.io-eastwest-controller"}
        self.envoys["passage-0"] = self._envoy(
            "waypoint", "passage-0", "istio-system", PASSAGE, "passage", self.passage, labels, self.metadata
        )
        self.hosts["passage-0"] = self.passage


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Networks]:
    made = Networks(tmp_path_factory.mktemp("networks"))
    try:
        eventually(lambda: made.ask(ALICE).status == 200, 60, "a request comes through")
        eventually(lambda: made.ask(EVE).status == 403, 60, "the other client is answered too")
        yield made
    finally:
        made.stop()


def test_nothing_is_refused(networks: Networks) -> None:
    assert {name: networks.host_of(name).run(envoy.rejected) for name, envoy in networks.envoys.items()} == {
        n: {} for n in networks.envoys
    }


def test_requests_go_through_the_gateway_of_the_network_and_its_waypoint(networks: Networks) -> None:
    assert networks.ask(ALICE).status == 200
    assert sum(networks.stats("passage-0", "^cluster.forward_inner_connect;?.upstream_cx_total$").values()) > 0
    assert (
        networks.stats("waypoint-0", "^http.connect_terminate.downstream_rq_2xx$")[
            "http.connect_terminate.downstream_rq_2xx"
        ]
        > 0
    )
    assert sum(networks.stats("alice", "^cluster.inner_connect_originate;?.upstream_cx_total$").values()) > 0
    assert sum(networks.stats("alice", "^cluster.connect_originate;?.upstream_cx_total$").values()) == 0


def test_the_inner_tunnel_says_who_opened_it(networks: Networks) -> None:
    assert networks.ask(ALICE, method="POST").status == 403
    assert networks.ask(EVE).status == 403
