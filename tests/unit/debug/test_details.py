"""Details of debug responses, field by field."""

from __future__ import annotations

import gc
import time
from typing import Any

import msgspec
import pytest

from pilot.config.object import ObjectKey
from pilot.config.protocol import Protocol
from pilot.debug.health import HealthChecker
from pilot.debug.over_xds import client_config
from pilot.debug.pages.caches import _brief
from pilot.debug.pages.explain import _identity
from pilot.debug.pages.index import _proxies
from pilot.debug.pages.registry import ServiceDetails, _endpoint, show_service
from pilot.debug.slices import without_collections
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.model.service import Port, Registry, Resolution, Service, ServiceRef
from pilot.mesh.tables.database import Mesh
from testing.mesh.debug_server import FakeConnection, FakeFleet, FakeWatch
from tests.unit.debug.test_health import SERVICE, build_mesh, check_mesh

PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="web-0.a",
    ips=("10.0.0.1",),
    dns_domain="",
    namespace="a",
    metadata={"CLUSTER_ID": "east"},
    version="1.30.0",
)


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


def test_object_identity() -> None:
    reference = {"kind": "DestinationRule", "namespace": "a", "name": "b"}
    others = (
        {"group": "g"},
        {"kind": "Service"},
        {"cluster": "east"},
        {"namespace": "b"},
        {"name": "a"},
        {"namespace": ""},
    )
    assert len({_identity(reference | other) for other in ({}, *others)}) == 7
    assert _identity({"kind": "Node", "name": "n"}) == ("", "Node", "", "", "n")


def test_collection_pauses_during_large_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection is disabled for at most ten seconds, however many responses overlap."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    states = []
    with without_collections():
        states.append(gc.isenabled())
        now = 110.0
        with without_collections():
            states.append(gc.isenabled())
        states.append(gc.isenabled())
        now = 110.1
        with without_collections():
            states.append(gc.isenabled())
    assert states == [False, False, False, True]
    assert gc.isenabled()
    now = 200.0
    with without_collections():
        assert not gc.isenabled()
        now = 205.0
        with without_collections():
            assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(("count", "note"), [(50, ""), (51, "<p>The first 50 of 51.</p>")])
def test_index_lists_fifty_proxies(count: int, note: str) -> None:
    page = _proxies([FakeConnection(f"web-{n}.a-1", f"web-{n}.a", PROXY) for n in range(count)])
    assert page.count('<td class="path">') == 50
    assert page.endswith(f"</table></div>{note}\n")


@pytest.mark.parametrize(
    ("arg", "result"),
    [
        (("a", 1, "b", "c"), "a/1/b/c"),
        (("a", 1, "b", "c", "d"), "tuple"),
        ("x" * 101, "x" * 100 + "… (1 more characters)"),
        (1.5, "float"),
    ],
)
def test_short_keys_are_written_out(arg: Any, result: str) -> None:
    assert _brief(arg) == result


def test_unsent_type_has_the_zero_time() -> None:
    watches = {
        "b": FakeWatch(sent_at=0.0, nonce_sent="", nonce_acked="", last_error="no such cluster"),
        "a": FakeWatch(sent_at=1.5),
    }
    config = client_config(FakeConnection("web-0.a-1", "web-0.a", PROXY, subscriptions=watches))
    assert [entry.type_url for entry in config.generic_xds_configs] == ["a", "b"]
    assert [entry.last_updated.ToJsonString() for entry in config.generic_xds_configs] == [
        "1970-01-01T00:00:01.500Z",
        "0001-01-01T00:00:00Z",
    ]
    sent_config, unsent_config = config.generic_xds_configs
    assert not sent_config.HasField("error_state")
    assert (unsent_config.error_state.details, unsent_config.error_state.last_update_attempt) == (
        "no such cluster",
        unsent_config.last_updated,
    )
    assert dict(config.node.metadata.items()) == {"CLUSTER_ID": "east", "NAMESPACE": "a", "ISTIO_VERSION": "1.30.0"}


SLICE = """
kind: Pod
apiVersion: v1
metadata: {name: web-0, namespace: a}
spec: {serviceAccountName: web}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}], phase: Running}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: api-1, namespace: a, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: web-0, namespace: a}, conditions: %s}]
"""


@pytest.mark.parametrize(
    ("conditions", "expected"), [("{ready: false}", ["web-0.a"]), ("{ready: true}", []), ("{}", [])]
)
async def test_unready_endpoint_of_a_connected_proxy_is_reported(conditions: str, expected: list[str]) -> None:
    connection = FakeConnection("web-0.a-1", "web-0.a", msgspec.structs.replace(PROXY, metadata={}))
    health, _ = await check_mesh(
        build_mesh(SERVICE.format("api", "10.1.0.1") + "\n---\n" + SLICE % conditions), connections=[connection]
    )
    assert health.findings is not None
    assert [finding.proxy for finding in health.findings["pilot_endpoint_not_ready"].values()] == expected
    assert not health.findings["endpoint_no_pod"]


async def test_stop_before_the_first_check() -> None:
    await HealthChecker(Mesh(), FakeFleet(), []).stop()
