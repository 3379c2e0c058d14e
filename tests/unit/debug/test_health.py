"""Background checks of mesh health, and their metrics."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug import health as health_module
from pilot.debug.health import HealthChecker
from pilot.debug.health_findings import METRICS
from pilot.debug.sources import Finding
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from testing.mesh.debug_server import FakeConnection, FakeFleet
from testing.mesh.world import World, proxy

SERVICE = "{{kind: Service, apiVersion: v1, metadata: {{name: {0}, namespace: a}}, spec: {{clusterIP: {1}, ports: [{{name: tcp, port: 90}}]}}}}"
CASES = [
    (
        "endpoint_no_pod",
        ["api.a.svc.cluster.local"],
        """
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: api-1, namespace: a, labels: {kubernetes.io/service-name: api}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: gone, namespace: a}}]
""",
    ),
    ("pilot_eds_no_instances", ["outbound|90||api.a.svc.cluster.local"], SERVICE.format("api", "10.1.0.1")),
    (
        "pilot_dns_cluster_without_endpoints",
        ["outbound|80||x.example"],
        """
kind: ServiceEntry
apiVersion: networking.istio.io/v1
metadata: {name: x, namespace: a}
spec: {hosts: [x.example], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: x}}}
""",
    ),
    (
        "pilot_conflict_outbound_listener_tcp_over_current_tcp",
        ["10.1.0.1:90"],
        SERVICE.format("api", "10.1.0.1") + "\n---\n" + SERVICE.format("twin", "10.1.0.1"),
    ),
]
VIRTUAL_SERVICE = """
kind: VirtualService
apiVersion: networking.istio.io/v1
metadata: {name: late, namespace: a}
spec: {hosts: [one.example, api], http: [{route: [{destination: {host: api}}]}]}
"""
NARROW = """
kind: Sidecar
apiVersion: networking.istio.io/v1
metadata: {name: default, namespace: narrow}
spec: {egress: [{hosts: [./*]}]}
"""


def build_mesh(documents: str) -> Mesh:
    mesh_world = World()
    mesh_world.apply(documents)
    return mesh_world.mesh


async def check_mesh(
    mesh: Mesh, *problems: Problem, connections: Sequence[FakeConnection] = ()
) -> tuple[HealthChecker, dict[str, int]]:
    counts: dict[str, int] = {}
    health = HealthChecker(mesh, FakeFleet(*connections), list(problems), counts.__setitem__)
    await health.run_checks()
    return health, counts


@pytest.mark.parametrize(("metric", "keys", "documents"), CASES, ids=[case[0] for case in CASES])
async def test_findings(metric: str, keys: list[str], documents: str) -> None:
    health, counts = await check_mesh(build_mesh(documents))
    assert health.findings is not None
    assert list(health.findings[metric]) == keys
    assert counts[metric] == len(keys)


async def test_every_metric_is_reported_without_findings() -> None:
    _, counts = await check_mesh(build_mesh(""))
    assert counts == dict.fromkeys(METRICS, 0)


async def test_host_and_subset_problems_are_findings() -> None:
    virtual_service = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "late")
    claimed = Problem(code="host-claimed", object=virtual_service, path="spec.hosts[1]", message="an older one has it")
    rule = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "api")
    shadowed = Problem(code="subset-shadowed", object=rule, path="spec.subsets[0].name", message="an older one has it")
    health, counts = await check_mesh(
        build_mesh(VIRTUAL_SERVICE + "---\n" + SERVICE.format("api", "10.1.0.1")), claimed, shadowed
    )
    assert health.findings is not None
    assert list(health.findings["pilot_vservice_dup_domain"]) == ["api.a.svc.cluster.local:90"]
    assert counts["pilot_destrule_subsets"] == 1


async def test_duplicate_domain_names_the_first_affected_sidecar() -> None:
    virtual_service = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "late")
    claimed = Problem(code="host-claimed", object=virtual_service, path="spec.hosts[1]", message="an older one has it")
    mesh_world = World()
    mesh_world.apply(VIRTUAL_SERVICE + "---\n" + SERVICE.format("api", "10.1.0.1") + "\n---\n" + NARROW)
    connections = []
    for number, namespace in enumerate(("narrow", "b", "c")):
        node = proxy("sidecar", "web-0", namespace, f"10.2.0.{number}")
        connections.append(FakeConnection(f"web-0.{namespace}-1", mesh_world.connect(node), node))
    health, _ = await check_mesh(mesh_world.mesh, claimed, connections=connections)
    assert health.findings is not None
    assert health.findings["pilot_vservice_dup_domain"]["api.a.svc.cluster.local:90"].proxy == "web-0.b"


POD = """
kind: Pod
apiVersion: v1
metadata: {name: web-0, namespace: a, labels: {app: web}}
spec: {serviceAccountName: web, nodeName: n}
status: {podIP: 10.0.0.1, phase: Running}
"""
WEB_SERVICE = """
kind: Service
apiVersion: v1
metadata: {name: @NAME@, namespace: a}
spec: {selector: {app: web}, clusterIP: @IP@, ports: [{name: @PROTOCOL@, port: 80, targetPort: @PORT@}]}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: @NAME@-1, namespace: a, labels: {kubernetes.io/service-name: @NAME@}}
addressType: IPv4
ports: [{name: @PROTOCOL@, port: @PORT@}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: @READY@}, targetRef: {kind: Pod, name: web-0, namespace: a}}]
"""


def web_service(name: str, protocol: str = "http", port: int = 8080, ready: str = "true") -> str:
    values = {"NAME": name, "IP": f"10.1.0.{len(name)}", "PROTOCOL": protocol, "PORT": str(port), "READY": ready}
    text = WEB_SERVICE
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ((POD,), {"pilot_no_ip": {"web-0.a": ("web-0.a", "")}}),
        ((POD, web_service("web")), {}),
        ((POD, web_service("web"), web_service("again")), {}),
        ((POD, web_service("web"), web_service("other", port=8081, protocol="tcp")), {}),
        (
            (POD, web_service("web"), web_service("other", protocol="tcp")),
            {
                "pilot_conflict_inbound_listener": {
                    "web-0.a:8080": ("web-0.a", "services disagree about the protocol: HTTP, TCP")
                }
            },
        ),
        ((POD, web_service("web", ready="false")), {"pilot_endpoint_not_ready": {"web-0.a": ("web-0.a", "")}}),
    ],
)
async def test_findings_of_a_connected_workload(documents: tuple[str, ...], expected: dict[str, Any]) -> None:
    mesh_world = World()
    mesh_world.apply("\n---\n".join(documents))
    node = proxy("sidecar", "web-0", "a", "10.0.0.1")
    health, _ = await check_mesh(
        mesh_world.mesh, connections=[FakeConnection("web-0.a-1", mesh_world.connect(node), node)]
    )
    assert health.findings is not None
    counts = {
        metric: {key: (finding.proxy, finding.message) for key, finding in by_key.items()}
        for metric, by_key in health.findings.items()
        if by_key
    }
    assert {metric: by_key for metric, by_key in counts.items() if metric != "pilot_eds_no_instances"} == expected


async def test_ztunnel_needs_no_service() -> None:
    mesh_world = World(environ={"PILOT_ENABLE_AMBIENT": "true"})
    node = proxy("ztunnel", "ztunnel-1", "istio-system", "10.0.0.9")
    connection = FakeConnection("ztunnel-1", mesh_world.connect(node), node)
    health, _ = await check_mesh(mesh_world.mesh, connections=[connection])
    assert health.findings is not None
    assert health.findings["pilot_no_ip"] == {}


async def test_findings_are_logged_on_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    health = HealthChecker(build_mesh(SERVICE.format("api", "10.1.0.1")), FakeFleet(), [])
    await health.run_checks()
    await health.run_checks()
    (line,) = [message for message in caplog.messages if message.startswith("Push Status: ")]
    assert json.loads(line.removeprefix("Push Status: ")) == {
        "pilot_eds_no_instances": {"outbound|90||api.a.svc.cluster.local": {}}
    }


def test_many_findings_are_only_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    health_module.log_status(
        {"pilot_no_ip": {f"web-{n}.a": Finding("pilot_no_ip", f"web-{n}.a") for n in range(60)}, "endpoint_no_pod": {}}
    )
    assert json.loads(caplog.messages[0].removeprefix("Push Status: ")) == {"pilot_no_ip": 60}
    health_module.log_status({"endpoint_no_pod": {}})
    assert len(caplog.messages) == 1
    for count, expected_type in ((health_module.LOGGED, dict), (health_module.LOGGED + 1, int)):
        health_module.log_status(
            {"pilot_no_ip": {f"web-{n}.a": Finding("pilot_no_ip", f"web-{n}.a") for n in range(count)}}
        )
        assert isinstance(json.loads(caplog.messages[-1].removeprefix("Push Status: "))["pilot_no_ip"], expected_type)


async def test_unchanged_mesh_is_not_checked_again() -> None:
    metrics: list[str] = []
    mesh = build_mesh("")
    health = HealthChecker(mesh, FakeFleet(), [], lambda metric, count: metrics.append(metric), now=lambda: 0.0)
    for _ in range(3):
        health.schedule()
        await settle()
    assert len(metrics) == len(METRICS)
    mesh.commit([(mesh.proxies, "x", None)])
    health.schedule()
    await settle()
    assert len(metrics) == 2 * len(METRICS)
    await health.stop()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="web-0.a",
    ips=("10.0.0.1",),
    dns_domain="",
    namespace="a",
    metadata={"CLUSTER_ID": "east"},
    version="1.30.0",
)


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
