"""Workloads and services of remote clusters and networks sent to ztunnels."""

from __future__ import annotations

import ipaddress
from typing import Any

from protos.istio import workload_pb2
from testing.clients.ztunnel import ambient, messages
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, rows_of

MULTI_NETWORK = {"AMBIENT_ENABLE_MULTI_NETWORK": "true"}
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


def gateway(network_name: str, address: str) -> Plain:
    spec = f"{{gatewayClassName: istio-remote, listeners: [{{name: h, port: 15008, protocol: HBONE}}], addresses: [{{value: {address}}}]}}"
    labels = f"{{topology.istio.io/network: {network_name}}}"
    return make("Gateway", "remote", spec, "istio-system", apiVersion="gateway.networking.k8s.io/v1", labels=labels)


def waypoint() -> tuple[Plain, ...]:
    """A running waypoint for services and workloads: its Gateway, Service, Pod and endpoint."""
    spec = "{gatewayClassName: istio-waypoint, listeners: [{name: mesh, port: 15008, protocol: HBONE}]}"
    port = "[{name: mesh, port: 15008}]"
    return (
        make("Gateway", "w", spec, apiVersion="gateway.networking.k8s.io/v1", labels="{istio.io/waypoint-for: all}"),
        make("Service", "w", f"{{clusterIP: 10.96.0.9, ports: {port}}}"),
        pod("w-1", "10.1.0.9", labels="{gateway.networking.k8s.io/gateway-name: w}"),
        endpoint_slice("w", at("10.1.0.9"), ports=port),
    )


def two_clusters(
    local: tuple[Plain, ...],
    remote: tuple[Plain, ...],
    environ: dict[str, str] | None = None,
    mesh_config: str = GLOBAL,
) -> World:
    world = ambient(*local, mesh_config=mesh_config, **(MULTI_NETWORK if environ is None else environ))
    world.set(rows_of(remote, "other"))
    return world


def web_pod(name: str, ip: str, account: str = "default", labels: str = "{app: web}") -> Plain:
    return pod(name, ip, spec=f"{{serviceAccountName: {account}}}", labels=labels)


def addresses(resource: Any) -> list[tuple[str, str]]:
    return [(a.network, str(ipaddress.ip_address(a.address))) for a in resource.addresses]


def uids(world: World) -> list[str]:
    return sorted(name for name, resource in messages(world).items() if isinstance(resource, workload_pb2.Workload))


def test_single_network_mesh_ignores_remote_clusters() -> None:
    world = two_clusters((web("10.96.0.1"), web_pod("p", "10.1.0.1")), (web("10.97.0.1"), web_pod("q", "10.2.0.1")), {})
    assert uids(world) == ["Kubernetes//Pod/a/p"]
    assert addresses(messages(world)[SERVICE]) == [("", "10.96.0.1")]


def test_remote_workloads_of_the_same_network_are_sent() -> None:
    world = two_clusters(
        (network("n"), web("10.96.0.1"), web_pod("p", "10.1.0.1")),
        (network("n"), web("10.97.0.1"), web_pod("q", "10.2.0.1")),
    )
    assert uids(world) == ["Kubernetes//Pod/a/p", "other//Pod/a/q"]
    remote = messages(world)["other//Pod/a/q"]
    assert (remote.cluster_id, remote.network, list(remote.services)) == ("other", "n", [SERVICE])
    assert addresses(messages(world)[SERVICE]) == [("n", "10.96.0.1"), ("n", "10.97.0.1")]


def test_remote_network_is_one_workload_at_its_gateway() -> None:
    local = network("n"), gateway("m", "9.9.9.9"), web("10.96.0.1"), web_pod("p", "10.1.0.1")
    world = two_clusters(
        local,
        (
            network("m"),
            web("10.97.0.1"),
            web_pod("q", "10.2.0.1", "one"),
            web_pod("r", "10.2.0.2", "two"),
            web_pod("x", "10.2.0.3", labels="{}"),
        ),
    )
    uid = f"m/SplitHorizonWorkload/istio-system/remote/9.9.9.9/{SERVICE}"
    assert uids(world) == ["Kubernetes//Pod/a/p", "NetworkGateway/m/9.9.9.9/15008", uid]
    workload = messages(world)[uid]
    assert (workload.network, workload.capacity.value, workload.tunnel_protocol) == ("m", 2, workload_pb2.HBONE)
    assert str(ipaddress.ip_address(workload.network_gateway.address.address)) == "9.9.9.9"
    assert [(p.service_port, p.target_port) for p in workload.services[SERVICE].ports] == [(80, 8080)]
    assert list(messages(world)[SERVICE].subject_alt_names) == [
        f"spiffe://cluster.local/ns/a/sa/{name}" for name in ("one", "two")
    ]
    assert addresses(messages(world)[SERVICE]) == [("m", "10.97.0.1"), ("n", "10.96.0.1")]
    world.set(dict.fromkeys(rows_of([web_pod("q", "10.2.0.1")], "other")))
    assert messages(world)[uid].capacity.value == 1
    assert list(messages(world)[SERVICE].subject_alt_names) == ["spiffe://cluster.local/ns/a/sa/two"]


def test_local_scope_services_stay_in_their_cluster() -> None:
    local = network("n"), gateway("m", "9.9.9.9"), web("10.96.0.1", "{}"), web_pod("p", "10.1.0.1")
    world = two_clusters(
        local, (network("m"), web("10.97.0.1", "{}"), web("10.97.0.2", "{}", "there"), web_pod("q", "10.2.0.1"))
    )
    assert uids(world) == ["Kubernetes//Pod/a/p", "NetworkGateway/m/9.9.9.9/15008"]
    assert addresses(messages(world)[SERVICE]) == [("n", "10.96.0.1")]
    assert "a/there.a.svc.cluster.local" not in messages(world)


def test_global_service_of_a_remote_cluster() -> None:
    world = two_clusters(
        (network("n"), gateway("m", "gw.example")), (network("m"), web("10.97.0.1"), web_pod("q", "10.2.0.1"))
    )
    assert addresses(messages(world)[SERVICE]) == [("m", "10.97.0.1")]
    workload = messages(world)[f"m/SplitHorizonWorkload/istio-system/remote/gw.example/{SERVICE}"]
    assert workload.network_gateway.hostname == workload_pb2.NamespacedHostname(
        namespace="istio-system", hostname="gw.example"
    )


def test_remote_endpoint_slices() -> None:
    service = make(
        "Service", "web", "{clusterIP: 10.97.0.1, ports: [{name: http, port: 80}]}", labels="{everywhere: 'yes'}"
    )
    world = two_clusters((network("n"),), (network("n"), service, endpoint_slice("web", at("10.3.0.1"))))
    assert uids(world) == ["other/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.1"]


def test_waypoint_of_another_cluster_is_not_used() -> None:
    attached = "{app: web, everywhere: 'yes', istio.io/use-waypoint: w}"
    world = two_clusters(
        (network("n"), web("10.96.0.1", attached), web_pod("p", "10.1.0.1", labels=attached)),
        (network("n"), web("10.97.0.1", attached), web_pod("q", "10.2.0.1", labels=attached), *waypoint()),
    )

    def waypoints() -> dict[str, str]:
        users = {name: messages(world)[name] for name in (SERVICE, "Kubernetes//Pod/a/p", "other//Pod/a/q")}
        return {name: user.waypoint.hostname.hostname for name, user in users.items()}

    assert set(waypoints().values()) == {""}
    world.apply_objects(*waypoint())
    assert set(waypoints().values()) == {"w.a.svc.cluster.local"}
    world.set(dict.fromkeys(rows_of(waypoint())))
    assert set(waypoints().values()) == {""}
