"""Workloads and services sent to ztunnels."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from pilot.config.kinds.kubernetes import POD
from pilot.config.object import RegistryKey
from pilot.lib.xds_types import ADDRESS
from pilot.mesh.ambient.served_services import listing_services
from pilot.mesh.model.address import AddressKey, parse_uid
from protos.istio import workload_pb2
from testing.clients.ztunnel import ambient, messages, workload, ztunnel
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, rows_of

WEB = "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: %s}]}"
SERVICE = "a/web.a.svc.cluster.local"


def web(target: str = "8080", **more: Any) -> Plain:
    return make("Service", "web", WEB % target, **more)


def ips(resource: Any) -> list[str]:
    return [str(ipaddress.ip_address(raw)) for raw in resource.addresses]


def ports(workload_: Any, service: str = SERVICE) -> list[tuple[int, int]]:
    return [(p.service_port, p.target_port) for p in workload_.services[service].ports]


# -- Pods ------------------------------------------------------------------------------------------------------------------


def test_pod_fields() -> None:
    spec = "{serviceAccountName: sa, nodeName: n}"
    labels = "{topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}"
    captured = make(
        "Pod", "p", spec, labels="{app: web, version: v1}", annotations="{ambient.istio.io/redirection: enabled}"
    )
    world = ambient(web(), make("Node", "n", labels=labels), captured | pod_status("10.1.0.1"))
    assert workload(world, "p") == workload_pb2.Workload(
        uid="Kubernetes//Pod/a/p",
        name="p",
        namespace="a",
        addresses=[ipaddress.ip_address("10.1.0.1").packed],
        cluster_id="Kubernetes",
        service_account="sa",
        node="n",
        workload_name="p",
        workload_type=workload_pb2.POD,
        canonical_name="web",
        canonical_revision="v1",
        tunnel_protocol=workload_pb2.HBONE,
        locality=workload_pb2.Locality(region="r", zone="z", subzone="s"),
        services={SERVICE: workload_pb2.PortList(ports=[workload_pb2.Port(service_port=80, target_port=8080)])},
    )


def pod_status(*addresses: str, phase: str = "Running", ready: str = "True") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "status": {
            "phase": phase,
            "podIP": addresses[0],
            "podIPs": [{"ip": ip} for ip in addresses],
            "conditions": conditions,
        }
    }


@pytest.mark.parametrize(
    ("labels", "annotations", "protocol", "native"),
    [
        ("{}", "{}", "NONE", False),
        ("{}", "{ambient.istio.io/redirection: disabled}", "NONE", False),
        ("{istio.io/dataplane-mode: ambient}", "{}", "NONE", False),
        ("{}", "{ambient.istio.io/redirection: enabled}", "HBONE", False),
        ("{networking.istio.io/tunnel: http}", "{}", "HBONE", True),
        ("{networking.istio.io/tunnel: other}", "{}", "NONE", False),
        ("{security.istio.io/tlsMode: istio}", "{}", "NONE", False),
    ],
)
def test_tunnel_protocol(labels: str, annotations: str, protocol: str, native: bool) -> None:
    result = workload(ambient(make("Pod", "p", labels=labels, annotations=annotations) | pod_status("10.1.0.1")), "p")
    assert (workload_pb2.TunnelProtocol.Name(result.tunnel_protocol), result.native_tunnel) == (protocol, native)


@pytest.mark.parametrize(
    ("phase", "ready", "more", "status"),
    [
        ("Running", "True", {}, "HEALTHY"),
        ("Running", "False", {}, "UNHEALTHY"),
        ("Pending", "False", {}, "UNHEALTHY"),
        ("Running", "True", {"deletionTimestamp": "2025-01-02T00:00:00Z"}, "UNHEALTHY"),
        ("Succeeded", "True", {}, ""),
        ("Failed", "True", {}, ""),
    ],
)
def test_pod_health(phase: str, ready: str, more: dict[str, str], status: str) -> None:
    pod_ = make("Pod", "p") | pod_status("10.1.0.1", phase=phase, ready=ready)
    pod_["metadata"] |= more
    result = workload(ambient(pod_), "p")
    assert (workload_pb2.WorkloadStatus.Name(result.status) if result is not None else "") == status


def test_dual_stack_pod_has_both_addresses() -> None:
    assert ips(workload(ambient(make("Pod", "p") | pod_status("10.1.0.1", "fd00::1")), "p")) == ["10.1.0.1", "fd00::1"]


def test_pod_without_address_is_not_sent() -> None:
    assert workload(ambient(make("Pod", "p") | {"status": {"phase": "Pending"}}), "p") is None


def test_host_network_pod() -> None:
    result = workload(ambient(make("Pod", "p", "{hostNetwork: true}") | pod_status("10.0.0.1")), "p")
    assert result.network_mode == workload_pb2.HOST_NETWORK


def test_network_gateway() -> None:
    spec = "{gatewayClassName: istio-remote, listeners: [{name: h, port: 15008, protocol: HBONE}], addresses: [{value: 9.9.9.9}]}"
    gateway = make(
        "Gateway",
        "w",
        spec,
        "istio-system",
        labels="{topology.istio.io/network: other}",
        apiVersion="gateway.networking.k8s.io/v1",
    )
    entry = make("WorkloadEntry", "vm", "{address: 10.2.0.1, network: other}")
    world = ambient(
        make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"),
        gateway,
        entry,
        pod("p", "10.1.0.1"),
    )
    assert workload(world, "p").network == "east"
    remote = workload(world, "vm")
    assert remote.network == "other"
    assert remote.network_gateway.hbone_mtls_port == 15008
    assert remote.network_gateway.address.network == "other"
    assert ipaddress.ip_address(remote.network_gateway.address.address) == ipaddress.ip_address("9.9.9.9")
    gateway_workload = messages(world)["NetworkGateway/other/9.9.9.9/15008"]
    assert (gateway_workload.network, ips(gateway_workload), gateway_workload.service_account) == (
        "other",
        ["9.9.9.9"],
        "w-istio-remote",
    )


def test_default_trust_domain_is_omitted() -> None:
    assert workload(ambient(pod("p", "10.1.0.1")), "p").trust_domain == ""
    assert (
        workload(ambient(pod("p", "10.1.0.1"), mesh_config="trustDomain: example.org"), "p").trust_domain
        == "example.org"
    )


def test_waypoint_and_application_tunnel() -> None:
    gateway = make(
        "Gateway",
        "w",
        "{gatewayClassName: other, listeners: []}",
        labels="{istio.io/waypoint-for: all}",
        apiVersion="gateway.networking.k8s.io/v1",
        annotations="{ambient.istio.io/waypoint-inbound-binding: PROXY/15088}",
        status={"addresses": [{"type": "Hostname", "value": "w.a.svc"}]},
    )
    clients = pod("p", "10.1.0.1", labels="{istio.io/use-waypoint: w}"), pod("q", "10.1.0.2")
    waypoint_pod = pod("r", "10.1.0.3", labels="{gateway.networking.k8s.io/gateway-name: w}")
    world = ambient(gateway, *clients, waypoint_pod)
    assert workload(world, "p").waypoint == workload_pb2.GatewayAddress(
        hostname=workload_pb2.NamespacedHostname(namespace="a", hostname="w.a.svc"), hbone_mtls_port=15008
    )
    assert not workload(world, "q").HasField("waypoint")
    assert not workload(world, "r").HasField("waypoint")
    assert workload(world, "r").application_tunnel == workload_pb2.ApplicationTunnel(
        protocol=workload_pb2.ApplicationTunnel.PROXY, port=15088
    )


# -- services of workloads -------------------------------------------------------------------------------------------------


def test_named_target_port() -> None:
    spec = "{containers: [{name: c, image: c, ports: [{name: web, containerPort: 9090}]}]}"
    world = ambient(
        web("web"), pod("p", "10.1.0.1", spec=spec, labels="{app: web}"), pod("q", "10.1.0.2", labels="{app: web}")
    )
    assert ports(workload(world, "p")) == [(80, 9090)]
    assert ports(workload(world, "q")) == []
    assert [p.target_port for p in messages(world)[SERVICE].ports] == [0]


def test_service_without_selector_uses_endpoint_slices() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80, targetPort: 8080}]}")
    world = ambient(service, pod("p", "10.1.0.1"), pod("q", "10.1.0.2"), endpoint_slice("web", at("10.1.0.1", "p")))
    assert ports(workload(world, "p")) == [(80, 8080)]
    assert not workload(world, "q").services


def test_pod_in_two_slices_appears_once() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80, targetPort: 8080}]}")
    other = make("Service", "other", "{clusterIP: 10.96.0.2, ports: [{name: http, port: 81, targetPort: 8081}]}")
    slices = [
        endpoint_slice(service_name, at("10.1.0.1", "p"), name=f"{service_name}-{number}")
        for service_name in ("web", "other")
        for number in range(2)
    ]
    world = ambient(service, other, pod("p", "10.1.0.1"), *slices)
    key = RegistryKey("Kubernetes", "a", "p")
    row = POD.table(world.mesh).peek(key)
    assert row is not None
    services = listing_services(world.mesh, key, row, ())
    assert sorted(service_.ref.hostname for service_ in services) == [
        "other.a.svc.cluster.local",
        "web.a.svc.cluster.local",
    ]
    assert [service_.ref.hostname for service_ in listing_services(world.mesh, key, row, services[:1])] == [
        services[1].ref.hostname
    ]


def test_slice_address_without_pod_is_a_workload() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}")
    world = ambient(service, endpoint_slice("web", at("10.3.0.1"), at("10.3.0.2", conditions="{ready: false}")))
    ready = messages(world)["Kubernetes/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.1"]
    assert (ips(ready), ports(ready), ready.network_mode) == (["10.3.0.1"], [(80, 8080)], workload_pb2.HOST_NETWORK)
    unready = messages(world)["Kubernetes/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.2"]
    assert unready.status == workload_pb2.UNHEALTHY


def test_workload_entry_fields() -> None:
    spec = (
        "{address: 10.2.0.1, labels: {app: web}, ports: {http: 9090}, serviceAccount: vm, locality: r/z/s, weight: 3}"
    )
    result = workload(
        ambient(web(), make("WorkloadEntry", "vm", spec, annotations="{ambient.istio.io/redirection: enabled}")), "vm"
    )
    assert result.uid == "Kubernetes/networking.istio.io/WorkloadEntry/a/vm"
    assert (ips(result), result.service_account, result.capacity.value) == (["10.2.0.1"], "vm", 3)
    assert (result.locality.region, result.locality.zone, result.locality.subzone) == ("r", "z", "s")
    assert (ports(result), result.tunnel_protocol) == ([(80, 9090)], workload_pb2.HBONE)


def test_workload_entry_with_hostname() -> None:
    result = workload(ambient(make("WorkloadEntry", "vm", "{address: vm.example.com}")), "vm")
    assert (result.hostname, list(result.addresses)) == ("vm.example.com", [])


ENTRY = "{hosts: [x.example, y.example], addresses: [10.97.0.1], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], %s}"


def test_service_entry_endpoints() -> None:
    spec = (
        ENTRY
        % "resolution: STATIC, endpoints: [{address: 10.2.0.1, ports: {http: 9090}}, {address: 10.2.0.2, weight: 2}]"
    )
    resources = messages(ambient(make("ServiceEntry", "e", spec)))
    first, second = (resources[f"Kubernetes/networking.istio.io/ServiceEntry/a/e/10.2.0.{n}"] for n in (1, 2))
    assert {name: ports(first, name) for name in first.services} == {
        "a/x.example": [(80, 9090)],
        "a/y.example": [(80, 9090)],
    }
    assert ports(second, "a/x.example") == [(80, 8080)]
    assert second.capacity.value == 2


def test_dns_hosts_are_endpoints() -> None:
    resources = messages(ambient(make("ServiceEntry", "e", ENTRY % "resolution: DNS")))
    endpoint = resources["Kubernetes/networking.istio.io/ServiceEntry/a/e/y.example"]
    assert (endpoint.hostname, list(endpoint.services)) == ("y.example", ["a/y.example"])


def test_service_entry_selects_pods_and_workload_entries() -> None:
    entry = make("ServiceEntry", "e", ENTRY % "resolution: STATIC, workloadSelector: {labels: {app: web}}")
    workloads = (
        pod("p", "10.1.0.1", labels="{app: web}"),
        make("WorkloadEntry", "vm", "{address: 10.2.0.1, labels: {app: web}}"),
    )
    world = ambient(entry, *workloads, pod("q", "10.1.0.3", "b", labels="{app: web}"))
    assert ports(workload(world, "p"), "a/x.example") == ports(workload(world, "vm"), "a/x.example") == [(80, 8080)]
    assert not workload(world, "q").services


def test_service_entry_with_duplicate_hosts_is_ignored() -> None:
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.2.0.%d}]}"
    resources = messages(
        ambient(make("ServiceEntry", "new", spec % 1, day=2), make("ServiceEntry", "old", spec % 2, day=1))
    )
    assert [name for name in resources if "ServiceEntry" in name] == [
        "Kubernetes/networking.istio.io/ServiceEntry/a/old/10.2.0.2"
    ]
    assert resources["a/x.example"].name == "old"


# -- services --------------------------------------------------------------------------------------------------------------


def load_balancing(spec: str, **more: Any) -> Any:
    service = make("Service", "web", f"{{clusterIP: 10.96.0.1, ports: [{{name: http, port: 80}}], {spec}}}", **more)
    return messages(ambient(service))[SERVICE].load_balancing


def test_service_fields() -> None:
    spec = "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ports: [{name: grpc, port: 80, targetPort: 8080}]}"
    world = ambient(
        make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"), make("Service", "web", spec)
    )
    service = messages(world)[SERVICE]
    assert [(address.network, str(ipaddress.ip_address(address.address))) for address in service.addresses] == [
        ("east", "10.96.0.1"),
        ("east", "fd00::1"),
    ]
    assert list(service.ports) == [workload_pb2.Port(service_port=80, target_port=8080, app_protocol=workload_pb2.GRPC)]
    assert (service.name, service.namespace, service.hostname) == ("web", "a", "web.a.svc.cluster.local")
    assert (service.ip_families, service.canonical) == (workload_pb2.DUAL, True)


@pytest.mark.parametrize(
    ("spec", "families"),
    [
        ("clusterIP: 10.96.0.1", "IPV4_ONLY"),
        ("clusterIP: 'fd00::1'", "IPV6_ONLY"),
        ("clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1']", "DUAL"),
        ("clusterIP: None", "AUTOMATIC"),
        ("clusterIP: None, ipFamilies: [IPv6]", "IPV6_ONLY"),
        ("clusterIP: None, ipFamilies: [IPv6, IPv4]", "DUAL"),
        ("clusterIP: 10.96.0.1, ipFamilies: [IPv4]", "IPV4_ONLY"),
    ],
)
def test_ip_families_follow_from_the_addresses_if_they_are_not_given(spec: str, families: str) -> None:
    service = messages(ambient(make("Service", "web", f"{{{spec}, ports: [{{name: http, port: 80}}]}}")))[SERVICE]
    assert workload_pb2.IPFamilies.Name(service.ip_families) == families


def test_external_name_services_are_not_sent() -> None:
    assert SERVICE not in messages(ambient(make("Service", "web", "{type: ExternalName, externalName: x.example}")))


def test_load_balancing_of_services() -> None:
    scopes, modes = workload_pb2.LoadBalancing.Scope.Name, workload_pb2.LoadBalancing.Mode.Name

    def summary(setting: Any) -> tuple[str, list[str], bool]:
        return modes(setting.mode), [scopes(scope) for scope in setting.routing_preference], bool(setting.health_policy)

    assert summary(load_balancing("type: ClusterIP")) == ("UNSPECIFIED_MODE", [], False)
    assert summary(load_balancing("trafficDistribution: PreferClose")) == (
        "FAILOVER",
        ["NETWORK", "REGION", "ZONE"],
        False,
    )
    assert summary(load_balancing("trafficDistribution: PreferSameNode")) == (
        "FAILOVER",
        ["NETWORK", "REGION", "ZONE", "SUBZONE", "NODE"],
        False,
    )
    annotations = "{networking.istio.io/traffic-distribution: PreferClose}"
    assert summary(load_balancing("type: ClusterIP", annotations=annotations)) == (
        "FAILOVER",
        ["NETWORK", "REGION", "ZONE"],
        False,
    )
    assert summary(load_balancing("internalTrafficPolicy: Local, trafficDistribution: PreferClose")) == (
        "STRICT",
        ["NODE"],
        False,
    )
    assert summary(load_balancing("publishNotReadyAddresses: true")) == ("UNSPECIFIED_MODE", [], True)


def test_service_entry_without_resolution_passes_through() -> None:
    resources = messages(
        ambient(
            make(
                "ServiceEntry",
                "e",
                "{hosts: [x.example], addresses: [10.97.0.7/24], ports: [{number: 80, name: t, protocol: TLS}]}",
            )
        )
    )
    assert resources["a/x.example"].load_balancing.mode == workload_pb2.LoadBalancing.PASSTHROUGH
    (address,) = resources["a/x.example"].addresses
    assert (str(ipaddress.ip_address(address.address)), address.length) == ("10.97.0.0", 24)


def test_service_entry_with_allocated_addresses() -> None:
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, subjectAltNames: ['spiffe://td/x']}"
    service = messages(ambient(make("ServiceEntry", "e", spec)))["a/x.example"]
    assert ipaddress.ip_address(service.addresses[0].address) in ipaddress.ip_network("240.240.0.0/16")
    assert list(service.subject_alt_names) == ["spiffe://td/x"]


def dns_entry(namespace: str, day: int) -> Plain:
    return make(
        "ServiceEntry",
        "e",
        "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        namespace,
        day=day,
    )


def test_oldest_service_of_a_hostname_is_canonical() -> None:
    resources = messages(ambient(dns_entry("a", 2), dns_entry("b", 1)))
    assert {name: resources[name].canonical for name in ("a/x.example", "b/x.example")} == {
        "a/x.example": False,
        "b/x.example": True,
    }
    spec = "{hosts: [web.a.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"
    resources = messages(ambient(web(day=3), make("ServiceEntry", "e", spec, "b")))
    assert resources[SERVICE].canonical
    assert not resources["b/web.a.svc.cluster.local"].canonical


@pytest.mark.parametrize(("visibility", "expected"), [("PUBLIC", "PUBLIC"), ("NAMESPACE", "NAMESPACE"), ("NONE", "")])
def test_service_entry_visibility(visibility: str, expected: str) -> None:
    resources = messages(
        ambient(dns_entry("a", 1), mesh_config=f"serviceEntryVisibility: {{defaultVisibility: {visibility}}}")
    )
    service = resources.get("a/x.example")
    assert (workload_pb2.Service.Visibility.Name(service.visibility) if service is not None else "") == expected


def test_canary_waypoint() -> None:
    def gateway(name: str) -> Plain:
        status = {"addresses": [{"type": "Hostname", "value": f"{name}.a.svc"}]}
        return make(
            "Gateway",
            name,
            "{gatewayClassName: other, listeners: []}",
            apiVersion="gateway.networking.k8s.io/v1",
            status=status,
        )

    labels = "{istio.io/use-waypoint: w, istio.io/use-waypoint-canary: next, istio.io/ingress-use-waypoint: 'true'}"
    annotations = "{istio.io/use-waypoint-canary-weight: '25'}"
    service = messages(ambient(gateway("w"), gateway("next"), web(labels=labels, annotations=annotations)))[SERVICE]
    assert service.waypoint.hostname.hostname == "w.a.svc"
    assert [(waypoint.destination.hostname.hostname, waypoint.weight) for waypoint in service.weighted_waypoints] == [
        ("w.a.svc", 75),
        ("next.a.svc", 25),
    ]
    assert service.ingress_use_waypoint


# -- general ---------------------------------------------------------------------------------------------------------------


def test_uids_round_trip() -> None:
    for key in (
        AddressKey("Pod", "c", "a", "p"),
        AddressKey("WorkloadEntry", "c", "a", "vm"),
        AddressKey("ServiceEntry", "c", "a", "e", "unix:///a/b"),
        AddressKey("EndpointSlice", "c", "a", "s", "fd00::1"),
    ):
        assert parse_uid(key.uid) == key
    for text in ("", "a/b", "east/10.0.0.1", "a/web.a.svc.cluster.local", "c//Job/a/p", "c/x/Pod/a/p"):
        assert parse_uid(text) is None


def test_without_ambient_nothing_is_derived() -> None:
    world = World()
    world.apply_objects(web(), pod("p", "10.1.0.1", labels="{app: web}"))
    assert world.resources(ztunnel(world)).get(ADDRESS, {}) == {}
    assert not any("ambient" in node.fn.__module__ for node in world.mesh.live_nodes())


def test_ztunnels_get_only_workload_types() -> None:
    world = ambient(web(), pod("p", "10.1.0.1"))
    assert {url.rpartition(".")[2] for url, resources in world.resources(ztunnel(world)).items() if resources} == {
        "Address",
        "Workload",
    }


def test_pod_readiness_changes_only_its_workload() -> None:
    others = (pod(f"q{n}", f"10.1.1.{n}", labels="{app: web}") for n in range(50))
    world = ambient(web(), pod("p", "10.1.0.1", labels="{app: web}", ready=False), *others)
    key = ztunnel(world)
    before = world.resources(key)[ADDRESS]
    runs = world.mesh.runs
    world.set(rows_of([pod("p", "10.1.0.1", labels="{app: web}")]))
    after = world.resources(key)[ADDRESS]
    assert [name for name in after if before[name] is not after[name]] == ["Kubernetes//Pod/a/p"]
    assert world.mesh.runs - runs < 30
