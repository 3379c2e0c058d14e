"""What ztunnels are told of workloads and services."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from pilot.config.kinds.kubernetes import POD
from pilot.config.object import RegistryKey
from pilot.lib.xds_types import ADDRESS
from pilot.mesh.ambient.served import listing_services
from pilot.mesh.model.address import AddressKey, parse_uid
from protos.istio import workload_pb2
from testing.clients.ztunnel import ambient, told, workload, ztunnel
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod
from testing.mesh.world import World, rows_of

WEB = "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80, targetPort: %s}]}"
SERVICE = "a/web.a.svc.cluster.local"


def web(target: str = "8080", **more: Any) -> Plain:
    return make("Service", "web", WEB % target, **more)


def ips(one: Any) -> list[str]:
    return [str(ipaddress.ip_address(raw)) for raw in one.addresses]


def ports(one: Any, service: str = SERVICE) -> list[tuple[int, int]]:
    return [(p.service_port, p.target_port) for p in one.services[service].ports]


# -- Pods ------------------------------------------------------------------------------------------------------------------


def test_a_pod() -> None:
    spec = "{serviceAccountName: sa, nodeName: n}"
    labels = "{topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s}"
    redirected = make(
        "Pod", "p", spec, labels="{app: web, version: v1}", annotations="{ambient.istio.io/redirection: enabled}"
    )
    made = ambient(web(), make("Node", "n", labels=labels), redirected | pod_status("10.1.0.1"))
    assert workload(made, "p") == workload_pb2.Workload(
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
def test_how_a_workload_takes_tunnels(labels: str, annotations: str, protocol: str, native: bool) -> None:
    found = workload(ambient(make("Pod", "p", labels=labels, annotations=annotations) | pod_status("10.1.0.1")), "p")
    assert (workload_pb2.TunnelProtocol.Name(found.tunnel_protocol), found.native_tunnel) == (protocol, native)


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
def test_the_health_of_a_pod(phase: str, ready: str, more: dict[str, str], status: str) -> None:
    made = make("Pod", "p") | pod_status("10.1.0.1", phase=phase, ready=ready)
    made["metadata"] |= more
    found = workload(ambient(made), "p")
    assert (workload_pb2.WorkloadStatus.Name(found.status) if found is not None else "") == status


def test_a_pod_has_all_of_its_addresses() -> None:
    assert ips(workload(ambient(make("Pod", "p") | pod_status("10.1.0.1", "fd00::1")), "p")) == ["10.1.0.1", "fd00::1"]


def test_a_pod_without_an_address_is_not_told_of() -> None:
    assert workload(ambient(make("Pod", "p") | {"status": {"phase": "Pending"}}), "p") is None


def test_a_pod_of_the_nodes_network_shares_its_address() -> None:
    found = workload(ambient(make("Pod", "p", "{hostNetwork: true}") | pod_status("10.0.0.1")), "p")
    assert found.network_mode == workload_pb2.HOST_NETWORK


def test_a_network_and_the_way_into_it() -> None:
    spec = "{gatewayClassName: istio-remote, listeners: [{name: h, port: 15008, protocol: HBONE}], addresses: [{value: 9.9.9.9}]}"
    way = make(
        "Gateway",
        "w",
        spec,
        "istio-system",
        labels="{topology.istio.io/network: other}",
        apiVersion="gateway.networking.k8s.io/v1",
    )
    entry = make("WorkloadEntry", "vm", "{address: 10.2.0.1, network: other}")
    made = ambient(
        make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"), way, entry, pod("p", "10.1.0.1")
    )
    assert workload(made, "p").network == "east"
    remote = workload(made, "vm")
    assert remote.network == "other"
    assert remote.network_gateway.hbone_mtls_port == 15008
    assert remote.network_gateway.address.network == "other"
    assert ipaddress.ip_address(remote.network_gateway.address.address) == ipaddress.ip_address("9.9.9.9")
    stands_for = told(made)["NetworkGateway/other/9.9.9.9/15008"]
    assert (stands_for.network, ips(stands_for), stands_for.service_account) == ("other", ["9.9.9.9"], "w-istio-remote")


def test_the_trust_domain_is_told_where_it_is_not_the_usual_one() -> None:
    assert workload(ambient(pod("p", "10.1.0.1")), "p").trust_domain == ""
    assert (
        workload(ambient(pod("p", "10.1.0.1"), mesh_config="trustDomain: example.org"), "p").trust_domain
        == "example.org"
    )


def test_the_waypoint_of_a_workload_and_the_binding_of_a_waypoints_own() -> None:
    gateway = make(
        "Gateway",
        "w",
        "{gatewayClassName: other, listeners: []}",
        labels="{istio.io/waypoint-for: all}",
        apiVersion="gateway.networking.k8s.io/v1",
        annotations="{ambient.istio.io/waypoint-inbound-binding: PROXY/15088}",
        status={"addresses": [{"type": "Hostname", "value": "w.a.svc"}]},
    )
    users = pod("p", "10.1.0.1", labels="{istio.io/use-waypoint: w}"), pod("q", "10.1.0.2")
    own = pod("r", "10.1.0.3", labels="{gateway.networking.k8s.io/gateway-name: w}")
    made = ambient(gateway, *users, own)
    assert workload(made, "p").waypoint == workload_pb2.GatewayAddress(
        hostname=workload_pb2.NamespacedHostname(namespace="a", hostname="w.a.svc"), hbone_mtls_port=15008
    )
    assert not workload(made, "q").HasField("waypoint")
    assert not workload(made, "r").HasField("waypoint")
    assert workload(made, "r").application_tunnel == workload_pb2.ApplicationTunnel(
        protocol=workload_pb2.ApplicationTunnel.PROXY, port=15088
    )


# -- services of workloads -------------------------------------------------------------------------------------------------


def test_a_named_port_is_that_of_the_pod() -> None:
    spec = "{containers: [{name: c, image: c, ports: [{name: web, containerPort: 9090}]}]}"
    made = ambient(
        web("web"), pod("p", "10.1.0.1", spec=spec, labels="{app: web}"), pod("q", "10.1.0.2", labels="{app: web}")
    )
    assert ports(workload(made, "p")) == [(80, 9090)]
    assert ports(workload(made, "q")) == []
    assert [p.target_port for p in told(made)[SERVICE].ports] == [0]


def test_a_service_without_a_selector_has_the_pods_of_its_slices() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80, targetPort: 8080}]}")
    made = ambient(service, pod("p", "10.1.0.1"), pod("q", "10.1.0.2"), endpoint_slice("web", at("10.1.0.1", "p")))
    assert ports(workload(made, "p")) == [(80, 8080)]
    assert not workload(made, "q").services


def test_a_service_that_names_a_pod_in_two_slices_has_it_once() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80, targetPort: 8080}]}")
    other = make("Service", "other", "{clusterIP: 10.96.0.2, ports: [{name: http, port: 81, targetPort: 8081}]}")
    slices = [
        endpoint_slice(of, at("10.1.0.1", "p"), name=f"{of}-{number}") for of in ("web", "other") for number in range(2)
    ]
    made = ambient(service, other, pod("p", "10.1.0.1"), *slices)
    key = RegistryKey("Kubernetes", "a", "p")
    row = POD.table(made.mesh).peek(key)
    assert row is not None
    found = listing_services(made.mesh, key, row, ())
    assert sorted(one.ref.hostname for one in found) == ["other.a.svc.cluster.local", "web.a.svc.cluster.local"]
    assert [one.ref.hostname for one in listing_services(made.mesh, key, row, found[:1])] == [found[1].ref.hostname]


def test_an_address_of_a_slice_that_is_no_pods_is_a_workload() -> None:
    service = make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}")
    made = ambient(service, endpoint_slice("web", at("10.3.0.1"), at("10.3.0.2", conditions="{ready: false}")))
    found = told(made)["Kubernetes/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.1"]
    assert (ips(found), ports(found), found.network_mode) == (["10.3.0.1"], [(80, 8080)], workload_pb2.HOST_NETWORK)
    other = told(made)["Kubernetes/discovery.k8s.io/EndpointSlice/a/web-0/10.3.0.2"]
    assert other.status == workload_pb2.UNHEALTHY


def test_a_workload_entry() -> None:
    spec = (
        "{address: 10.2.0.1, labels: {app: web}, ports: {http: 9090}, serviceAccount: vm, locality: r/z/s, weight: 3}"
    )
    found = workload(
        ambient(web(), make("WorkloadEntry", "vm", spec, annotations="{ambient.istio.io/redirection: enabled}")), "vm"
    )
    assert found.uid == "Kubernetes/networking.istio.io/WorkloadEntry/a/vm"
    assert (ips(found), found.service_account, found.capacity.value) == (["10.2.0.1"], "vm", 3)
    assert (found.locality.region, found.locality.zone, found.locality.subzone) == ("r", "z", "s")
    assert (ports(found), found.tunnel_protocol) == ([(80, 9090)], workload_pb2.HBONE)


def test_a_workload_entry_with_a_name_is_looked_up() -> None:
    found = workload(ambient(make("WorkloadEntry", "vm", "{address: vm.example.com}")), "vm")
    assert (found.hostname, list(found.addresses)) == ("vm.example.com", [])


ENTRY = "{hosts: [x.example, y.example], addresses: [10.97.0.1], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], %s}"


def test_the_endpoints_of_a_service_entry() -> None:
    spec = (
        ENTRY
        % "resolution: STATIC, endpoints: [{address: 10.2.0.1, ports: {http: 9090}}, {address: 10.2.0.2, weight: 2}]"
    )
    made = told(ambient(make("ServiceEntry", "e", spec)))
    first, second = (made[f"Kubernetes/networking.istio.io/ServiceEntry/a/e/10.2.0.{n}"] for n in (1, 2))
    assert {name: ports(first, name) for name in first.services} == {
        "a/x.example": [(80, 9090)],
        "a/y.example": [(80, 9090)],
    }
    assert ports(second, "a/x.example") == [(80, 8080)]
    assert second.capacity.value == 2


def test_hosts_that_are_looked_up_are_their_own_endpoints() -> None:
    made = told(ambient(make("ServiceEntry", "e", ENTRY % "resolution: DNS")))
    found = made["Kubernetes/networking.istio.io/ServiceEntry/a/e/y.example"]
    assert (found.hostname, list(found.services)) == ("y.example", ["a/y.example"])


def test_an_entry_selects_pods_and_workload_entries_of_its_namespace() -> None:
    entry = make("ServiceEntry", "e", ENTRY % "resolution: STATIC, workloadSelector: {labels: {app: web}}")
    workloads = (
        pod("p", "10.1.0.1", labels="{app: web}"),
        make("WorkloadEntry", "vm", "{address: 10.2.0.1, labels: {app: web}}"),
    )
    made = ambient(entry, *workloads, pod("q", "10.1.0.3", "b", labels="{app: web}"))
    assert ports(workload(made, "p"), "a/x.example") == ports(workload(made, "vm"), "a/x.example") == [(80, 8080)]
    assert not workload(made, "q").services


def test_an_entry_whose_hosts_an_older_one_has_declares_nothing() -> None:
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.2.0.%d}]}"
    made = told(ambient(make("ServiceEntry", "new", spec % 1, day=2), make("ServiceEntry", "old", spec % 2, day=1)))
    assert [name for name in made if "ServiceEntry" in name] == [
        "Kubernetes/networking.istio.io/ServiceEntry/a/old/10.2.0.2"
    ]
    assert made["a/x.example"].name == "old"


# -- services --------------------------------------------------------------------------------------------------------------


def balancing(spec: str, **more: Any) -> Any:
    made = make("Service", "web", f"{{clusterIP: 10.96.0.1, ports: [{{name: http, port: 80}}], {spec}}}", **more)
    return told(ambient(made))[SERVICE].load_balancing


def test_a_service() -> None:
    spec = "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilies: [IPv4, IPv6], ports: [{name: grpc, port: 80, targetPort: 8080}]}"
    made = ambient(
        make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"), make("Service", "web", spec)
    )
    found = told(made)[SERVICE]
    assert [(one.network, str(ipaddress.ip_address(one.address))) for one in found.addresses] == [
        ("east", "10.96.0.1"),
        ("east", "fd00::1"),
    ]
    assert list(found.ports) == [workload_pb2.Port(service_port=80, target_port=8080, app_protocol=workload_pb2.GRPC)]
    assert (found.name, found.namespace, found.hostname) == ("web", "a", "web.a.svc.cluster.local")
    assert (found.ip_families, found.canonical) == (workload_pb2.DUAL, True)


def test_services_of_type_external_name_are_not_told_of() -> None:
    assert SERVICE not in told(ambient(make("Service", "web", "{type: ExternalName, externalName: x.example}")))


def test_how_workloads_of_a_service_are_chosen() -> None:
    scopes, modes = workload_pb2.LoadBalancing.Scope.Name, workload_pb2.LoadBalancing.Mode.Name

    def said(found: Any) -> tuple[str, list[str], bool]:
        return modes(found.mode), [scopes(one) for one in found.routing_preference], bool(found.health_policy)

    assert said(balancing("type: ClusterIP")) == ("UNSPECIFIED_MODE", [], False)
    assert said(balancing("trafficDistribution: PreferClose")) == ("FAILOVER", ["NETWORK", "REGION", "ZONE"], False)
    assert said(balancing("trafficDistribution: PreferSameNode")) == (
        "FAILOVER",
        ["NETWORK", "REGION", "ZONE", "SUBZONE", "NODE"],
        False,
    )
    annotated = "{networking.istio.io/traffic-distribution: PreferClose}"
    assert said(balancing("type: ClusterIP", annotations=annotated)) == (
        "FAILOVER",
        ["NETWORK", "REGION", "ZONE"],
        False,
    )
    assert said(balancing("internalTrafficPolicy: Local, trafficDistribution: PreferClose")) == (
        "STRICT",
        ["NODE"],
        False,
    )
    assert said(balancing("publishNotReadyAddresses: true")) == ("UNSPECIFIED_MODE", [], True)


def test_a_service_entry_passes_through_what_it_does_not_resolve() -> None:
    found = told(
        ambient(
            make(
                "ServiceEntry",
                "e",
                "{hosts: [x.example], addresses: [10.97.0.7/24], ports: [{number: 80, name: t, protocol: TLS}]}",
            )
        )
    )
    assert found["a/x.example"].load_balancing.mode == workload_pb2.LoadBalancing.PASSTHROUGH
    (address,) = found["a/x.example"].addresses
    assert (str(ipaddress.ip_address(address.address)), address.length) == ("10.97.0.0", 24)


def test_an_entry_without_addresses_has_those_that_are_allocated() -> None:
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS, subjectAltNames: ['spiffe://td/x']}"
    found = told(ambient(make("ServiceEntry", "e", spec)))["a/x.example"]
    assert ipaddress.ip_address(found.addresses[0].address) in ipaddress.ip_network("240.240.0.0/16")
    assert list(found.subject_alt_names) == ["spiffe://td/x"]


def entry_of(namespace: str, day: int) -> Plain:
    return make(
        "ServiceEntry",
        "e",
        "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        namespace,
        day=day,
    )


def test_of_services_of_one_host_name_the_oldest_is_canonical() -> None:
    made = told(ambient(entry_of("a", 2), entry_of("b", 1)))
    assert {name: made[name].canonical for name in ("a/x.example", "b/x.example")} == {
        "a/x.example": False,
        "b/x.example": True,
    }
    spec = "{hosts: [web.a.svc.cluster.local], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"
    made = told(ambient(web(day=3), make("ServiceEntry", "e", spec, "b")))
    assert made[SERVICE].canonical
    assert not made["b/web.a.svc.cluster.local"].canonical


@pytest.mark.parametrize(("visibility", "expected"), [("PUBLIC", "PUBLIC"), ("NAMESPACE", "NAMESPACE"), ("NONE", "")])
def test_who_knows_an_entry(visibility: str, expected: str) -> None:
    made = told(ambient(entry_of("a", 1), mesh_config=f"serviceEntryVisibility: {{defaultVisibility: {visibility}}}"))
    found = made.get("a/x.example")
    assert (workload_pb2.Service.Visibility.Name(found.visibility) if found is not None else "") == expected


def test_a_service_has_its_waypoint_and_the_share_of_its_canary() -> None:
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
    found = told(ambient(gateway("w"), gateway("next"), web(labels=labels, annotations=annotations)))[SERVICE]
    assert found.waypoint.hostname.hostname == "w.a.svc"
    assert [(one.destination.hostname.hostname, one.weight) for one in found.weighted_waypoints] == [
        ("w.a.svc", 75),
        ("next.a.svc", 25),
    ]
    assert found.ingress_use_waypoint


# -- the whole -------------------------------------------------------------------------------------------------------------


def test_names_of_workloads_are_found_again() -> None:
    for one in (
        AddressKey("Pod", "c", "a", "p"),
        AddressKey("WorkloadEntry", "c", "a", "vm"),
        AddressKey("ServiceEntry", "c", "a", "e", "unix:///a/b"),
        AddressKey("EndpointSlice", "c", "a", "s", "fd00::1"),
    ):
        assert parse_uid(one.uid) == one
    for text in ("", "a/b", "east/10.0.0.1", "a/web.a.svc.cluster.local", "c//Job/a/p", "c/x/Pod/a/p"):
        assert parse_uid(text) is None


def test_a_mesh_that_is_not_ambient_derives_nothing_of_this() -> None:
    made = World()
    made.apply_objects(web(), pod("p", "10.1.0.1", labels="{app: web}"))
    assert made.resources(ztunnel(made)).get(ADDRESS, {}) == {}
    assert not any("ambient" in node.fn.__module__ for node in made.mesh.live_nodes())


def test_ztunnels_get_nothing_but_workloads_services_and_policies() -> None:
    made = ambient(web(), pod("p", "10.1.0.1"))
    assert {url.rpartition(".")[2] for url, found in made.resources(ztunnel(made)).items() if found} == {
        "Address",
        "Workload",
    }


def test_a_pod_that_becomes_ready_changes_its_own_workload_alone() -> None:
    others = (pod(f"q{n}", f"10.1.1.{n}", labels="{app: web}") for n in range(50))
    made = ambient(web(), pod("p", "10.1.0.1", labels="{app: web}", ready=False), *others)
    key = ztunnel(made)
    before = made.resources(key)[ADDRESS]
    runs = made.mesh.runs
    made.set(rows_of([pod("p", "10.1.0.1", labels="{app: web}")]))
    after = made.resources(key)[ADDRESS]
    assert [name for name in after if before[name] is not after[name]] == ["Kubernetes//Pod/a/p"]
    assert made.mesh.runs - runs < 30
