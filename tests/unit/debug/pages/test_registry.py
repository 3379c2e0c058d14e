"""Services and endpoints on debug pages."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.debug.pages.registry import ServiceDetails, _endpoint, show_service
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef


def make_service(**fields: Any) -> Service:
    defaults: dict[str, Any] = {
        "hostname": "x.example",
        "namespace": "a",
        "name": "x",
        "registry": Registry.EXTERNAL,
        "source": ObjectKey("a", "entry"),
        "ports": (Port("web", 80, Protocol.HTTP, 8080),),
        "resolution": Resolution.DNS_LB,
    }
    return Service(**(defaults | fields))


def test_service_entry_fields() -> None:
    service = make_service(
        auto_addresses=("240.240.0.1", "2001:2::1"),
        created="2024-01-01T00:00:00Z",
        labels=(("app", "x"),),
        selector=(("run", "x"),),
        service_accounts=("spiffe://x",),
        mesh_external=True,
        traffic_distribution="PreferSameNode",
        race_connect=True,
        publish_not_ready=True,
        export_to=frozenset({"b", "a"}),
    )
    result = show_service(ServiceDetails(service, "", {}, (ServiceRef("y.example", "b"),), "east"))
    attributes = result.pop("Attributes")
    assert result == {
        "ports": [{"name": "web", "port": 80, "protocol": "HTTP"}],
        "serviceAccounts": ["spiffe://x"],
        "creationTime": "2024-01-01T00:00:00Z",
        "hostname": "x.example",
        "clusterVIPs": {"Addresses": None},
        "defaultAddress": "0.0.0.0",
        "autoAllocatedIPv4Address": "240.240.0.1",
        "autoAllocatedIPv6Address": "2001:2::1",
        "Resolution": 1,
        "MeshExternal": True,
        "ResourceVersion": "",
    }
    assert attributes == {
        "ServiceRegistry": "External",
        "Name": "x",
        "Namespace": "a",
        "Labels": {"app": "x"},
        "ExportTo": {"a": {}, "b": {}},
        "Visibility": 0,
        "LabelSelectors": {"run": "x"},
        "Aliases": [{"Hostname": "y.example", "Namespace": "b"}],
        "ClusterExternalAddresses": {"Addresses": None},
        "ClusterExternalPorts": None,
        "PassthroughTargetPorts": None,
        "Type": "",
        "ExternalName": "",
        "NodeLocal": False,
        "TrafficDistribution": 2,
        "ObjectName": "entry",
        "DNSConnectStrategy": 1,
        "PublishNotReadyAddresses": True,
    }


@pytest.mark.parametrize(
    ("fields", "vips", "address"),
    [
        ({}, {"east": ["0.0.0.0"]}, "0.0.0.0"),
        ({"addresses": ("10.1.0.1",)}, {"east": ["10.1.0.1"]}, "10.1.0.1"),
        (
            {"addresses": ("10.1.0.1",), "cluster_addresses": (("west", ("10.1.0.1", "fd00::1")), ("north", ()))},
            {"west": ["10.1.0.1", "fd00::1"]},
            "10.1.0.1",
        ),
    ],
)
def test_kubernetes_service_addresses_by_cluster(
    fields: dict[str, Any], vips: dict[str, list[str]], address: str
) -> None:
    result = show_service(
        ServiceDetails(
            make_service(registry=Registry.KUBERNETES, **fields), "ClusterIP", {"west": ("1.2.3.4",)}, (), "east"
        )
    )
    assert (result["clusterVIPs"], result["defaultAddress"]) == ({"Addresses": vips}, address)
    assert result["Attributes"]["ClusterExternalAddresses"] == {"Addresses": {"west": ["1.2.3.4"]}}
    assert (result["Attributes"]["Type"], result["Attributes"]["ObjectName"], result["creationTime"]) == (
        "ClusterIP",
        "",
        "0001-01-01T00:00:00Z",
    )


@pytest.mark.parametrize(
    ("resolution", "number"),
    zip(("ClientSideLB", "DNSLB", "Passthrough", "DNSRoundRobinLB", "Alias", "DynamicDNS"), range(6), strict=True),
)
def test_resolution_numbers_match_istiod(resolution: str, number: int) -> None:
    assert (
        show_service(ServiceDetails(make_service(resolution=Resolution(resolution)), "", {}, (), "east"))["Resolution"]
        == number
    )


@pytest.mark.parametrize(("number", "health"), list(enumerate(EndpointHealth)))
def test_endpoint_health_numbers_match_istiod(number: int, health: EndpointHealth) -> None:
    assert (
        _endpoint(Endpoint(addresses=("10.0.0.1",), port=80, port_name="http", health=health), of_kubernetes=True)[
            "HealthStatus"
        ]
        == number
    )
