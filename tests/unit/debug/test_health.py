"""What is odd about a mesh: found in the background, counted by istiod's metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef, Problem
from pilot.debug import health as health_module
from pilot.debug.health import HealthChecker
from pilot.debug.health_findings import METRICS
from pilot.debug.sources import Finding
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


def of(documents: str) -> Mesh:
    made = World()
    made.apply(documents)
    return made.mesh


async def looked_at(
    mesh: Mesh, *problems: Problem, connected: Sequence[FakeConnection] = ()
) -> tuple[HealthChecker, dict[str, int]]:
    told: dict[str, int] = {}
    health = HealthChecker(mesh, FakeFleet(*connected), list(problems), told.__setitem__)
    await health.run_checks()
    return health, told


@pytest.mark.parametrize(("metric", "keys", "documents"), CASES, ids=[case[0] for case in CASES])
async def test_findings(metric: str, keys: list[str], documents: str) -> None:
    health, told = await looked_at(of(documents))
    assert health.findings is not None
    assert list(health.findings[metric]) == keys
    assert told[metric] == len(keys)


async def test_every_metric_is_told_also_where_nothing_is_odd() -> None:
    _, told = await looked_at(of(""))
    assert told == dict.fromkeys(METRICS, 0)


async def test_problems_of_hosts_and_subsets_count() -> None:
    late = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "late")
    claimed = Problem(code="host-claimed", object=late, path="spec.hosts[1]", message="an older one has it")
    rule = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "api")
    shadowed = Problem(code="subset-shadowed", object=rule, path="spec.subsets[0].name", message="an older one has it")
    health, told = await looked_at(of(VIRTUAL_SERVICE + "---\n" + SERVICE.format("api", "10.1.0.1")), claimed, shadowed)
    assert health.findings is not None
    assert list(health.findings["pilot_vservice_dup_domain"]) == ["api.a.svc.cluster.local:90"]
    assert told["pilot_destrule_subsets"] == 1


async def test_a_duplicate_domain_names_the_first_sidecar_that_sees_it() -> None:
    late = ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "late")
    claimed = Problem(code="host-claimed", object=late, path="spec.hosts[1]", message="an older one has it")
    made = World()
    made.apply(VIRTUAL_SERVICE + "---\n" + SERVICE.format("api", "10.1.0.1") + "\n---\n" + NARROW)
    connected = []
    for number, namespace in enumerate(("narrow", "b", "c")):
        of_it = proxy("sidecar", "web-0", namespace, f"10.2.0.{number}")
        connected.append(FakeConnection(f"web-0.{namespace}-1", made.connect(of_it), of_it))
    health, _ = await looked_at(made.mesh, claimed, connected=connected)
    assert health.findings is not None
    assert health.findings["pilot_vservice_dup_domain"]["api.a.svc.cluster.local:90"].proxy == "web-0.b"


POD = """
kind: Pod
apiVersion: v1
metadata: {name: web-0, namespace: a, labels: {app: web}}
spec: {serviceAccountName: web, nodeName: n}
status: {podIP: 10.0.0.1, phase: Running}
"""
OF_WEB = """
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


def of_web(name: str, protocol: str = "http", port: int = 8080, ready: str = "true") -> str:
    values = {"NAME": name, "IP": f"10.1.0.{len(name)}", "PROTOCOL": protocol, "PORT": str(port), "READY": ready}
    text = OF_WEB
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


@pytest.mark.parametrize(
    ("documents", "found"),
    [
        ((POD,), {"pilot_no_ip": {"web-0.a": ("web-0.a", "")}}),
        ((POD, of_web("web")), {}),
        ((POD, of_web("web"), of_web("again")), {}),
        ((POD, of_web("web"), of_web("other", port=8081, protocol="tcp")), {}),
        (
            (POD, of_web("web"), of_web("other", protocol="tcp")),
            {
                "pilot_conflict_inbound_listener": {
                    "web-0.a:8080": ("web-0.a", "services disagree about the protocol: HTTP, TCP")
                }
            },
        ),
        ((POD, of_web("web", ready="false")), {"pilot_endpoint_not_ready": {"web-0.a": ("web-0.a", "")}}),
    ],
)
async def test_what_is_odd_about_the_workload_of_a_connected_proxy(
    documents: tuple[str, ...], found: dict[str, Any]
) -> None:
    made = World()
    made.apply("\n---\n".join(documents))
    known = proxy("sidecar", "web-0", "a", "10.0.0.1")
    health, _ = await looked_at(made.mesh, connected=[FakeConnection("web-0.a-1", made.connect(known), known)])
    assert health.findings is not None
    told = {
        metric: {key: (one.proxy, one.message) for key, one in by_key.items()}
        for metric, by_key in health.findings.items()
        if by_key
    }
    assert {metric: by_key for metric, by_key in told.items() if metric != "pilot_eds_no_instances"} == found


async def test_what_is_odd_is_in_the_log_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(health_module._ads, "info", lambda text, shown: told.append(text % shown))
    health = HealthChecker(of(SERVICE.format("api", "10.1.0.1")), FakeFleet(), [])
    await health.run_checks()
    await health.run_checks()
    (line,) = told
    assert json.loads(line.removeprefix("Push Status: ")) == {
        "pilot_eds_no_instances": {"outbound|90||api.a.svc.cluster.local": {}}
    }


def test_very_much_that_is_odd_is_only_counted_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(health_module._ads, "info", lambda text, shown: told.append(text % shown))
    health_module.log_status(
        {"pilot_no_ip": {f"web-{n}.a": Finding("pilot_no_ip", f"web-{n}.a") for n in range(60)}, "endpoint_no_pod": {}}
    )
    assert json.loads(told[0].removeprefix("Push Status: ")) == {"pilot_no_ip": 60}
    health_module.log_status({"endpoint_no_pod": {}})
    assert len(told) == 1
    for count, shown in ((health_module.LOGGED, dict), (health_module.LOGGED + 1, int)):
        health_module.log_status(
            {"pilot_no_ip": {f"web-{n}.a": Finding("pilot_no_ip", f"web-{n}.a") for n in range(count)}}
        )
        assert isinstance(json.loads(told.pop().removeprefix("Push Status: "))["pilot_no_ip"], shown)


async def test_a_mesh_is_looked_at_again_only_where_it_changed() -> None:
    looks: list[str] = []
    mesh = of("")
    health = HealthChecker(mesh, FakeFleet(), [], lambda metric, count: looks.append(metric), now=lambda: 0.0)
    for _ in range(3):
        health.schedule()
        await settled()
    assert len(looks) == len(METRICS)
    mesh.commit([(mesh.proxies, "x", None)])
    health.schedule()
    await settled()
    assert len(looks) == 2 * len(METRICS)
    await health.stop()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
