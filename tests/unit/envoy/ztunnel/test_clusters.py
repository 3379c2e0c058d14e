"""What ztunnels are told of other clusters, in their own network and in others."""

from __future__ import annotations

import ipaddress
from typing import Any

from protos.istio import workload_pb2
from testing.clients.ztunnel import ambient, told
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, rows_of

CROSSING = {"AMBIENT_ENABLE_MULTI_NETWORK": "true"}
GLOBAL = "serviceScopeConfigs: [{scope: GLOBAL, servicesSelector: {matchLabels: {everywhere: 'yes'}}}]"
SERVICE = "a/web.a.svc.cluster.local"


def web(ip: str, labels: str = "{everywhere: 'yes'}", name: str = "web") -> Plain:
    return make(
        "Service",
        name,
        f"{{clusterIP: {ip}, selector: {{app: web}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}",
        labels=labels,
    )


def network(name: str) -> Plain:
    return make("Namespace", "istio-system", labels=f"{{topology.istio.io/network: {name}}}")


def gateway(into: str, address: str) -> Plain:
    spec = f"{{gatewayClassName: istio-remote, listeners: [{{name: h, port: 15008, protocol: HBONE}}], addresses: [{{value: {address}}}]}}"
    labels = f"{{topology.istio.io/network: {into}}}"
    return make("Gateway", "remote", spec, "istio-system", apiVersion="gateway.networking.k8s.io/v1", labels=labels)


def mesh(
    own: tuple[Plain, ...], other: tuple[Plain, ...], environ: dict[str, str] | None = None, mesh_config: str = GLOBAL
) -> World:
    made = ambient(*own, mesh_config=mesh_config, **(CROSSING if environ is None else environ))
    made.set(rows_of(other, "other"))
    return made


def runs(name: str, ip: str, account: str = "default", labels: str = "{app: web}") -> Plain:
    return pod(name, ip, spec=f"{{serviceAccountName: {account}}}", labels=labels)


def addresses(one: Any) -> list[tuple[str, str]]:
    return [(a.network, str(ipaddress.ip_address(a.address))) for a in one.addresses]


def uids(world: World) -> list[str]:
    return sorted(name for name, one in told(world).items() if isinstance(one, workload_pb2.Workload))


def test_other_clusters_do_not_count_where_the_mesh_is_of_one_network() -> None:
    made = mesh((web("10.96.0.1"), runs("p", "10.1.0.1")), (web("10.97.0.1"), runs("q", "10.2.0.1")), {})
    assert uids(made) == ["Kubernetes//Pod/a/p"]
    assert addresses(told(made)[SERVICE]) == [("", "10.96.0.1")]


def test_clusters_of_one_network_are_told_of_one_by_one() -> None:
    made = mesh(
        (network("n"), web("10.96.0.1"), runs("p", "10.1.0.1")), (network("n"), web("10.97.0.1"), runs("q", "10.2.0.1"))
    )
    assert uids(made) == ["Kubernetes//Pod/a/p", "other//Pod/a/q"]
    remote = told(made)["other//Pod/a/q"]
    assert (remote.cluster_id, remote.network, list(remote.services)) == ("other", "n", [SERVICE])
    assert addresses(told(made)[SERVICE]) == [("n", "10.96.0.1"), ("n", "10.97.0.1")]


def test_what_serves_in_another_network_is_one_workload_at_its_gateway() -> None:
    own = network("n"), gateway("m", "9.9.9.9"), web("10.96.0.1"), runs("p", "10.1.0.1")
    made = mesh(
        own,
        (
            network("m"),
            web("10.97.0.1"),
            runs("q", "10.2.0.1", "one"),
            runs("r", "10.2.0.2", "two"),
            runs("x", "10.2.0.3", labels="{}"),
        ),
    )
    stand_in = f"m/SplitHorizonWorkload/istio-system/remote/9.9.9.9/{SERVICE}"
    assert uids(made) == ["Kubernetes//Pod/a/p", "NetworkGateway/m/9.9.9.9/15008", stand_in]
    found = told(made)[stand_in]
    assert (found.network, found.capacity.value, found.tunnel_protocol) == ("m", 2, workload_pb2.HBONE)
    assert str(ipaddress.ip_address(found.network_gateway.address.address)) == "9.9.9.9"
    assert [(p.service_port, p.target_port) for p in found.services[SERVICE].ports] == [(80, 8080)]
    assert list(told(made)[SERVICE].subject_alt_names) == [
        f"spiffe://cluster.local/ns/a/sa/{name}" for name in ("one", "two")
    ]
    assert addresses(told(made)[SERVICE]) == [("m", "10.97.0.1"), ("n", "10.96.0.1")]
    made.set(dict.fromkeys(rows_of([runs("q", "10.2.0.1")], "other")))
    assert told(made)[stand_in].capacity.value == 1
    assert list(told(made)[SERVICE].subject_alt_names) == ["spiffe://cluster.local/ns/a/sa/two"]


def test_services_that_are_not_global_stay_in_their_cluster() -> None:
    own = network("n"), gateway("m", "9.9.9.9"), web("10.96.0.1", "{}"), runs("p", "10.1.0.1")
    made = mesh(own, (network("m"), web("10.97.0.1", "{}"), web("10.97.0.2", "{}", "there"), runs("q", "10.2.0.1")))
    assert uids(made) == ["Kubernetes//Pod/a/p", "NetworkGateway/m/9.9.9.9/15008"]
    assert addresses(told(made)[SERVICE]) == [("n", "10.96.0.1")]
    assert "a/there.a.svc.cluster.local" not in told(made)


def test_a_global_service_that_only_another_cluster_has() -> None:
    made = mesh((network("n"), gateway("m", "gw.example")), (network("m"), web("10.97.0.1"), runs("q", "10.2.0.1")))
    assert addresses(told(made)[SERVICE]) == [("m", "10.97.0.1")]
    found = told(made)[f"m/SplitHorizonWorkload/istio-system/remote/gw.example/{SERVICE}"]
    assert found.network_gateway.hostname == workload_pb2.NamespacedHostname(
        namespace="istio-system", hostname="gw.example"
    )


def test_endpoints_of_slices_count_in_their_cluster() -> None:
    service = make(
        "Service", "web", "{clusterIP: 10.97.0.1, ports: [{name: http, port: 80}]}", labels="{everywhere: 'yes'}"
    )
    made = mesh((network("n"),), (network("n"), service, endpoint_slice("web", at("10.3.0.1"))))
    assert uids(made) == ["other/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.1"]
